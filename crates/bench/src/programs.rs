//! Other projects' programs, each as a server and a client on this machine: perftest through
//! `ferroce run`, and the alternatives without RDMA.
//!
//! They run in an [`Enclosure`], so that their servers, some of which listen on all addresses, cannot be
//! reached from elsewhere.

mod enclosure;

use std::env;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use self::enclosure::Enclosure;

/// How long a server may take until it listens.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may take.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// How often to look whether a program has come so far.
const LOOK: Duration = Duration::from_millis(5);

/// Why a program gave no figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not there, or cannot be run.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// There is no place for it.
    #[error("cannot make namespaces for other programs: {0}")]
    Enclosure(String),
    /// A file of the system that cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server does not listen, or the client does not come to an end.
    #[error("{0} takes too long")]
    Slow(String),
    /// The client failed.
    #[error("{program} failed: {says}")]
    Failed {
        /// The command.
        program: String,
        /// What it said.
        says: String,
    },
    /// Its output has no figure where one is expected.
    #[error("{program} printed no figures: {says}")]
    Unreadable {
        /// The command.
        program: String,
        /// What it said.
        says: String,
    },
}

/// Payload and messages of a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Payload in 10^9 bits a second.
    pub gbps: f64,
    /// Messages a second.
    pub messages: f64,
}

/// Messages of a size that take about `seconds`: at 16 Gb/s, and no more than 400,000 a second.
#[must_use]
pub fn messages(bytes: usize, seconds: f64) -> u64 {
    const BYTES_PER_SECOND: f64 = 2e9;
    const PER_SECOND: f64 = 4e5;
    let per_second = (BYTES_PER_SECOND / bytes.max(1) as f64).min(PER_SECOND);
    ((per_second * seconds) as u64).max(MESSAGES_MIN)
}

/// perftest takes no fewer.
const MESSAGES_MIN: u64 = 10;

/// Whether a program is in a directory of PATH.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| {
        let found = fs::metadata(directory.join(program));
        found.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    })
}

/// Where the programs run.
#[derive(Debug)]
pub struct Bench {
    /// The program `ferroce`.
    ferroce: PathBuf,
    enclosure: Enclosure,
}

/// The device of perftest's server and client.
const DEVICE: (&str, Ipv4Addr) = ("bench0", Ipv4Addr::new(127, 0, 0, 1));

impl Bench {
    /// With this program `ferroce`.
    ///
    /// # Errors
    ///
    /// The system lets this user make no namespaces.
    pub fn new(ferroce: PathBuf) -> Result<Self, Error> {
        Ok(Self {
            ferroce,
            enclosure: Enclosure::new()?,
        })
    }

    /// Bandwidth by a program of perftest, which posts 128 messages at once, with what carries its packets:
    /// `udp`, or `shm` for shared memory.
    pub fn perftest(
        &self,
        link: &str,
        tool: &str,
        bytes: usize,
        messages: u64,
    ) -> Result<Rate, Error> {
        let (size, messages) = (bytes.to_string(), messages.to_string());
        let mut args = vec!["-F", "--report_gbits", "-n", &messages];
        // Atomic operations have one size.
        if tool != "ib_atomic_bw" {
            args.extend(["-s", &size]);
        }
        let text = self.run_perftest(link, tool, &args)?;
        // Bytes, iterations, peak, average in Gb/s, messages in millions.
        let row = row(&text, &size, 5).ok_or_else(|| unreadable(tool, &text))?;
        Ok(Rate {
            gbps: row[3],
            messages: row[4] * 1e6,
        })
    }

    /// The typical (median) one-way time of messages, in microseconds.
    pub fn perftest_latency(
        &self,
        link: &str,
        tool: &str,
        bytes: usize,
        rounds: u64,
    ) -> Result<f64, Error> {
        let (size, rounds) = (bytes.to_string(), rounds.to_string());
        let text = self.run_perftest(link, tool, &["-F", "-n", &rounds, "-s", &size])?;
        // Bytes, iterations, shortest, longest, typical.
        let row = row(&text, &size, 5).ok_or_else(|| unreadable(tool, &text))?;
        Ok(row[4])
    }

    /// Runs a program on a device, and returns what it prints.
    pub fn on_device(&self, link: &str, program: &Path) -> Result<String, Error> {
        let mut command = self.ferroce_run(link);
        output_of(&program.to_string_lossy(), command.arg(program))
    }

    /// `ferroce run`, without the program yet.
    fn ferroce_run(&self, link: &str) -> Command {
        let mut command = self.enclosure.command(&self.ferroce);
        command.args(["run", "--link", link, "--"]);
        let (name, address) = DEVICE;
        command.env("FERROCE_DEVICES", format!("{name}@{address}"));
        command
    }

    fn run_perftest(&self, link: &str, tool: &str, args: &[&str]) -> Result<String, Error> {
        let port = self.enclosure.port();
        let command = || {
            let mut command = self.ferroce_run(link);
            command.args([tool, "-p", &port.to_string()]).args(args);
            command
        };
        let mut client = command();
        client.arg("127.0.0.1");
        self.pair(tool, command(), client, port)
    }

    /// One TCP stream of iperf3, written in pieces of `bytes`, in 10^9 bits a second.
    pub fn iperf3(&self, bytes: usize, messages: u64) -> Result<f64, Error> {
        let port = self.enclosure.port();
        let command = |args: &[&str]| {
            let mut command = self.enclosure.command("iperf3");
            command.args(args).args(["-p", &port.to_string()]);
            command
        };
        let total = (messages * bytes as u64).to_string();
        let mut client = command(&["-c", "127.0.0.1", "-J", "-n", &total]);
        client.args(["-l", &bytes.to_string()]);
        let text = self.pair("iperf3", command(&["-s", "-1"]), client, port)?;
        let bits = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|report| report["end"]["sum_received"]["bits_per_second"].as_f64())
            // It counts nothing in a time that is too short for it.
            .filter(|bits| *bits > 0.0);
        Ok(bits.ok_or_else(|| unreadable("iperf3", &text))? / 1e9)
    }

    /// UCX over TCP.
    pub fn ucx_tcp(&self, test: &str, bytes: usize, messages: u64) -> Result<Ucx, Error> {
        self.ucx(&[("UCX_TLS", "tcp")], test, bytes, messages)
    }

    /// UCX over shared memory, with memory that it has allocated itself: the target's is shared, and the
    /// source writes to it.
    pub fn ucx_shm(&self, test: &str, bytes: usize, messages: u64) -> Result<Ucx, Error> {
        self.ucx(&[("UCX_TLS", "posix,self")], test, bytes, messages)
    }

    /// The same with memory as programs allocate it, which is not shared.
    pub fn ucx_shm_heap(&self, test: &str, bytes: usize, messages: u64) -> Result<Ucx, Error> {
        let settings = [("UCX_TLS", "posix,self"), ("UCX_ALLOC_PRIO", "heap")];
        self.ucx(&settings, test, bytes, messages)
    }

    fn ucx(
        &self,
        settings: &[(&str, &str)],
        test: &str,
        bytes: usize,
        messages: u64,
    ) -> Result<Ucx, Error> {
        let port = self.enclosure.port();
        let command = || {
            let mut command = self.enclosure.command("ucx_perftest");
            command.args(["-p", &port.to_string()]);
            command.envs(settings.iter().copied());
            command
        };
        let mut client = command();
        client.args(["127.0.0.1", "-f", "-v", "-t", test]);
        client.args(["-s", &bytes.to_string(), "-n", &messages.to_string()]);
        client.args(["-w", &(messages / 10).to_string()]);
        let text = self.pair("ucx_perftest", command(), client, port)?;
        ucx_row(&text).ok_or_else(|| unreadable("ucx_perftest", &text))
    }

    /// Starts the server, then, when it listens on its TCP port, the client; returns what the
    /// client printed.
    fn pair(
        &self,
        name: &str,
        mut server: Command,
        mut client: Command,
        port: u16,
    ) -> Result<String, Error> {
        server
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        client
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut server = Process::start(name, &mut server)?;
        let until = Instant::now() + LISTENS_WITHIN;
        while !self.enclosure.has_listener(port)? {
            if server.0.try_wait()?.is_some() {
                text_of(name, &server.output()?)?;
            }
            if Instant::now() > until {
                return Err(Error::Slow(format!("the server of {name}")));
            }
            thread::sleep(LOOK);
        }
        let until = Instant::now() + ENDS_WITHIN;
        let mut client = Process::start(name, &mut client)?;
        while client.0.try_wait()?.is_none() {
            if Instant::now() > until {
                return Err(Error::Slow(name.to_owned()));
            }
            thread::sleep(LOOK);
        }
        let output = client.output()?;
        drop(server);
        text_of(name, &output)
    }
}

/// A process that does not outlive its owner.
struct Process(Child);

impl Process {
    fn start(name: &str, command: &mut Command) -> Result<Self, Error> {
        let child = command.spawn().map_err(|source| Error::Start {
            program: name.to_owned(),
            source,
        })?;
        Ok(Self(child))
    }

    /// What an ended process has printed, which must fit into a pipe.
    fn output(&mut self) -> io::Result<Output> {
        let mut output = Output {
            status: self.0.wait()?,
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        if let Some(stdout) = &mut self.0.stdout {
            io::Read::read_to_end(stdout, &mut output.stdout)?;
        }
        if let Some(stderr) = &mut self.0.stderr {
            io::Read::read_to_end(stderr, &mut output.stderr)?;
        }
        Ok(output)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A server that ends by itself, as all of these do, gets the time to.
        for _ in 0..100 {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(LOOK);
        }
        // It is gone already, or will be.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end; returns what it has printed.
///
/// # Errors
///
/// It cannot be run, or fails.
pub fn output_of(name: &str, command: &mut Command) -> Result<String, Error> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::Start {
        program: name.to_owned(),
        source,
    })?;
    text_of(name, &output)
}

/// What a program has printed, if all went well.
fn text_of(name: &str, output: &Output) -> Result<String, Error> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(Error::Failed {
        program: name.to_owned(),
        says: (text + &String::from_utf8_lossy(&output.stderr))
            .trim_end()
            .to_owned(),
    })
}

fn unreadable(program: &str, says: &str) -> Error {
    Error::Unreadable {
        program: program.to_owned(),
        says: says.to_owned(),
    }
}

/// The numbers of the line that begins with `first` and has at least `len` of them.
fn row(text: &str, first: &str, len: usize) -> Option<Vec<f64>> {
    text.lines().find_map(|line| {
        let cells = line.split_ascii_whitespace();
        let row: Vec<f64> = cells.map_while(|cell| cell.parse().ok()).collect();
        let begins = line.split_ascii_whitespace().next() == Some(first);
        (begins && row.len() >= len).then_some(row)
    })
}

/// What `ucx_perftest` measures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ucx {
    /// Rates, on average.
    pub rate: Rate,
    /// The median one-way time of a message, in microseconds, of tests that measure it.
    pub latency_us: f64,
}

/// The figures in the last line of `ucx_perftest`: iterations, three times in microseconds (a percentile,
/// the median unless told otherwise; average; overall), two bandwidths in MiB/s, two message rates, average
/// and overall. Short numbers have spaces before them.
fn ucx_row(text: &str) -> Option<Ucx> {
    let cells = text.lines().last()?.split(',');
    let row: Vec<f64> = cells.map_while(|cell| cell.trim().parse().ok()).collect();
    match row.as_slice() {
        [_, median, _, _, _, mebibytes, _, messages] => Some(Ucx {
            rate: Rate {
                gbps: mebibytes * 8.0 * 1048576.0 / 1e9,
                messages: *messages,
            },
            latency_us: *median,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_among_the_words_of_perftest() {
        let text = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n \
                    65536      69830            0.00               12.20              0.023278\n";
        let found = row(text, "65536", 5).unwrap();
        assert_eq!(found, [65536.0, 69830.0, 0.0, 12.2, 0.023278]);
        assert_eq!(row(text, "65536", 6), None);
        assert_eq!(row(text, "8", 5), None);
    }

    #[test]
    fn figures_of_ucx_may_be_short() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n \
                    512,0.027,567.608,567.608,1761.78,1761.78,1762,1762\n";
        let found = ucx_row(text).unwrap();
        assert_eq!((found.rate.messages, found.latency_us), (1762.0, 0.027));
        assert!(ucx_row("iterations,avg\n").is_none());
    }

    #[test]
    fn messages_take_about_as_long_as_asked_for() {
        assert_eq!(messages(8, 0.1), 40_000);
        assert_eq!(messages(1 << 20, 1.0), 1907);
        assert_eq!(messages(1 << 20, 0.001), MESSAGES_MIN);
    }

    #[test]
    fn programs_are_looked_for_in_path() {
        assert!(is_installed("sh"));
        assert!(!is_installed("ferroce-no-such-program"));
    }
}

//! Other projects' programs, each as a server and a client on this machine: perftest through
//! `ferroce run`, and the alternatives without RDMA.

use std::fs;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take until it listens.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may take beyond the time it is told to measure.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// How often to look whether a program has come so far.
const LOOK: Duration = Duration::from_millis(10);

/// Why a program gave no figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not there, or cannot be run.
    #[error("cannot run {program}: {source}; install perftest, iperf3 and ucx-utils")]
    Start {
        /// Its name.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// No free port, or a file of the system that cannot be read.
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

/// A state directory of this run, in memory and private as the device wants it.
#[derive(Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Makes it.
    pub fn make() -> io::Result<Self> {
        let path = PathBuf::from(format!("/dev/shm/ferroce-benches-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        // What is left is useless, and small.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where the programs run.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The program `ferroce`.
    pub ferroce: PathBuf,
    /// Its state directory, which holds what the processes of the device share.
    pub state: PathBuf,
    /// The address of the server's device and of the client's, which may be one device.
    pub addresses: [IpAddr; 2],
    /// How long each program measures, in whole seconds.
    pub seconds: u32,
    /// What carries the packets: `udp`, or `shm` for shared memory.
    pub link: &'static str,
}

impl Bench {
    /// With the program `ferroce`, or the one beside this program.
    ///
    /// # Errors
    ///
    /// This program is nowhere.
    pub fn new(
        ferroce: Option<&Path>,
        state: &StateDir,
        addresses: [IpAddr; 2],
        seconds: u32,
    ) -> io::Result<Self> {
        let ferroce = match ferroce {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()?.with_file_name("ferroce"),
        };
        Ok(Self {
            ferroce,
            state: state.path().to_owned(),
            addresses,
            seconds,
            link: "udp",
        })
    }

    /// Bandwidth by a program of perftest, which posts 128 messages at once, with more arguments.
    pub fn perftest(&self, tool: &str, bytes: usize, more: &[&str]) -> Result<Rate, Error> {
        let (size, seconds) = (bytes.to_string(), self.seconds.to_string());
        let args = ["-F", "--report_gbits", "-D", &seconds, "-s", &size];
        let text = self.run_perftest(tool, &[&args, more].concat())?;
        // Bytes, iterations, peak, average in Gb/s, messages in millions.
        let row = row(&text, &size, 5).ok_or_else(|| unreadable(tool, &text))?;
        Ok(Rate {
            gbps: row[3],
            messages: row[4] * 1e6,
        })
    }

    /// Bandwidth of atomic operations, 8 bytes each.
    pub fn perftest_atomic(&self) -> Result<Rate, Error> {
        let seconds = self.seconds.to_string();
        let args = ["-F", "--report_gbits", "-D", &seconds];
        let text = self.run_perftest("ib_atomic_bw", &args)?;
        let row = row(&text, "8", 5).ok_or_else(|| unreadable("ib_atomic_bw", &text))?;
        Ok(Rate {
            gbps: row[3],
            messages: row[4] * 1e6,
        })
    }

    /// The typical (median) one-way time of messages, in microseconds.
    pub fn perftest_latency(&self, tool: &str, bytes: usize, rounds: u32) -> Result<f64, Error> {
        let (size, rounds) = (bytes.to_string(), rounds.to_string());
        let text = self.run_perftest(tool, &["-F", "-n", &rounds, "-s", &size])?;
        // Bytes, iterations, shortest, longest, typical.
        let row = row(&text, &size, 5).ok_or_else(|| unreadable(tool, &text))?;
        Ok(row[4])
    }

    /// What the program `programs/post.c` measures, in the order in which it does: what was done, and
    /// how many nanoseconds it took.
    pub fn post(&self) -> Result<Vec<(String, f64)>, Error> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/post.c");
        let program = self.state.join("post");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O2", "-Wall", "-o"])
            .args([&program, &source]);
        output_of("cc", compiler.arg("-libverbs"))?;
        let text = output_of("post", self.on_device(self.addresses[0]).arg(&program))?;
        let figure = |line: &str| {
            let (what, figure) = line.split_once('\t')?;
            Some((what.to_owned(), figure.parse().ok()?))
        };
        let figures = text.lines().map(figure).collect::<Option<_>>();
        figures.ok_or_else(|| unreadable("post", &text))
    }

    /// `ferroce run` with a device at this address.
    fn on_device(&self, address: IpAddr) -> Command {
        let mut command = Command::new(&self.ferroce);
        command.args(["run", "--link", self.link, "--"]);
        command.env("FERROCE_DIR", &self.state);
        let name = address.to_string().replace(['.', ':'], "_");
        command.env("FERROCE_DEVICES", format!("bench{name}@{address}"));
        command
    }

    fn run_perftest(&self, tool: &str, args: &[&str]) -> Result<String, Error> {
        let port = free_port()?.to_string();
        let command = |address: IpAddr| {
            let mut command = self.on_device(address);
            command.args([tool, "-p", &port]).args(args);
            command
        };
        let [server, client] = self.addresses;
        let mut client = command(client);
        client.arg("127.0.0.1");
        self.pair(tool, command(server), client, &port)
    }

    /// One TCP stream of iperf3, written in pieces of `bytes`.
    pub fn iperf3(&self, bytes: usize) -> Result<f64, Error> {
        let port = free_port()?.to_string();
        let mut server = Command::new("iperf3");
        server.args(["-s", "-1", "-p", &port]);
        let mut client = Command::new("iperf3");
        client.args(["-c", "127.0.0.1", "-J", "-p", &port, "-t"]);
        client.args([&self.seconds.to_string(), "-l", &bytes.to_string()]);
        let text = self.pair("iperf3", server, client, &port)?;
        let bits = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|json| json["end"]["sum_received"]["bits_per_second"].as_f64());
        Ok(bits.ok_or_else(|| unreadable("iperf3", &text))? / 1e9)
    }

    /// UCX over TCP: `ucx_perftest` with this test, that many messages.
    pub fn ucx_tcp(&self, test: &str, bytes: usize, messages: u64) -> Result<Rate, Error> {
        self.ucx(
            &[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")],
            test,
            bytes,
            messages,
        )
    }

    /// UCX over shared memory of POSIX, with memory that UCX has allocated: the target's is shared, and the
    /// source writes to it.
    pub fn ucx_shm(&self, test: &str, bytes: usize, messages: u64) -> Result<Rate, Error> {
        self.ucx(&[("UCX_TLS", "posix,self")], test, bytes, messages)
    }

    /// The same with memory as programs allocate it, which is not shared.
    pub fn ucx_shm_heap(&self, test: &str, bytes: usize, messages: u64) -> Result<Rate, Error> {
        let settings = [("UCX_TLS", "posix,self"), ("UCX_ALLOC_PRIO", "heap")];
        self.ucx(&settings, test, bytes, messages)
    }

    fn ucx(
        &self,
        settings: &[(&str, &str)],
        test: &str,
        bytes: usize,
        messages: u64,
    ) -> Result<Rate, Error> {
        let port = free_port()?.to_string();
        let command = || {
            let mut command = Command::new("ucx_perftest");
            command.args(["-p", &port]);
            command.envs(settings.iter().copied());
            command
        };
        let mut client = command();
        client.args(["127.0.0.1", "-f", "-v", "-t", test]);
        client.args(["-s", &bytes.to_string(), "-n", &messages.to_string()]);
        client.args(["-w", &(messages / 10).to_string()]);
        let text = self.pair("ucx_perftest", command(), client, &port)?;
        ucx_row(&text).ok_or_else(|| unreadable("ucx_perftest", &text))
    }

    /// Starts the server, then, when it listens on its TCP port, the client; returns what the
    /// client printed.
    fn pair(
        &self,
        name: &str,
        mut server: Command,
        mut client: Command,
        port: &str,
    ) -> Result<String, Error> {
        server
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        client
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let server = Process::start(name, &mut server)?;
        let until = Instant::now() + LISTENS_WITHIN;
        while !listens(port)? {
            if Instant::now() > until {
                return Err(Error::Slow(format!("the server of {name}")));
            }
            thread::sleep(LOOK);
        }
        let until = Instant::now() + ENDS_WITHIN + Duration::from_secs(self.seconds.into());
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
fn output_of(name: &str, command: &mut Command) -> Result<String, Error> {
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
        says: text + &String::from_utf8_lossy(&output.stderr),
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

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Whether a process of this network namespace listens on a TCP port (proc_net_tcp(5)).
fn listens(port: &str) -> io::Result<bool> {
    let port = port.parse().map_err(io::Error::other)?;
    let mut tables = fs::read_to_string("/proc/net/tcp")?;
    tables += &fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    Ok(tables.lines().any(|line| is_listener(line, port)))
}

/// Whether a line of proc(5)'s `net/tcp` is a socket that listens on the port.
fn is_listener(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut cells = line.split_ascii_whitespace().skip(1);
    let local = cells.next().unwrap_or_default();
    local.ends_with(&format!(":{port:04X}")) && cells.nth(1) == Some(LISTEN)
}

/// The average rates in the last line of `ucx_perftest`: iterations, three times, two bandwidths in MiB/s,
/// two message rates, average and overall. Short numbers have spaces before them.
fn ucx_row(text: &str) -> Option<Rate> {
    let cells = text.lines().last()?.split(',');
    let row: Vec<f64> = cells.map_while(|cell| cell.trim().parse().ok()).collect();
    match row.as_slice() {
        [.., mebibytes, _, messages] if row.len() == 8 => Some(Rate {
            gbps: mebibytes * 8.0 * 1048576.0 / 1e9,
            messages: *messages,
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
        assert_eq!(ucx_row(text).unwrap().messages, 1762.0);
        assert!(ucx_row("iterations,avg\n").is_none());
    }

    #[test]
    fn a_port_is_seen_to_listen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(&port.to_string()).unwrap());
        let line = "2: 0100007F:4BF7 0100007F:C350 01 00000000:00000000 00:00000000 00000000";
        assert!(!is_listener(line, 0x4bf7), "it is connected");
        let line = line.replace(" 01 ", " 0A ");
        assert!(is_listener(&line, 0x4bf7) && !is_listener(&line, 0xbf7));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let bench = Bench {
            ferroce: "/nowhere/ferroce".into(),
            state: "/nowhere".into(),
            addresses: ["127.0.0.1".parse().unwrap(); 2],
            seconds: 1,
            link: "udp",
        };
        let error = bench.perftest("ib_write_bw", 8, &[]).unwrap_err();
        assert!(
            error.to_string().contains("cannot run ib_write_bw"),
            "{error}"
        );
    }
}

//! `ferroce demo`: the device on a bad link, under three retransmission policies, or with a
//! bottleneck under congestion control.
//!
//! | module | purpose |
//! |---|---|
//! | `units` | values on the command line |
//! | `plan` | what the demo will do |
//! | `workload` | the messages and their bytes |
//! | `rig` | two devices on two sockets, connected |
//! | `run` | one run: the workload under one policy, and its requesting end |
//! | `server` | the other end |
//! | `figures` | the results of a run |
//! | `progress` | the progress line |
//! | `verdict` | whether the runs can be compared on this machine |
//! | `report` | table, histogram, conclusion, JSON |
//! | `picture` | the same as SVG |
//! | `congestion` | all of that for congestion control |

mod congestion;
mod error;
mod figures;
mod picture;
pub(crate) mod plan;
mod progress;
mod report;
mod rig;
mod run;
mod server;
mod units;
mod verdict;
mod workload;

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_adp::QpTimeouts;
use ferroce_os::{Tap, TapDirection};

use self::figures::Figures;
use self::plan::{Blackout, Kind, Plan};
use self::progress::Progress;
use self::workload::Pattern;
use crate::adp;
use crate::output::Document as _;
use crate::output::{Failure, Output};

const EXIT_CODES: &str = "Exit codes:
  0  the runs were made, and every byte that arrived was right; a QP that gives up with
     IBV_WC_RETRY_EXC_ERR is a result, not an error
  1  a device could not be opened or misbehaved, wrong bytes arrived, or the output
     could not be written
  2  bad input: flags, files or values; standard error says what and what to write instead
  3  the machine was too busy for the figures to be compared; they are printed without a verdict";

/// Show three retransmission policies on the same bad link, on real sockets
///
/// Two devices in this process move WRITE, SEND and READ messages over UDP and check every byte,
/// while the link loses packets at random and goes down once. The same work is done under plain
/// InfiniBand timeouts (ib), under the ladder of a card out of the box (firmware), and under an
/// adaptive retransmission profile written through the ROCE_ACCL register (profile).
///
/// With --congestion it shows how QPs share a bottleneck under DCQCN.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES, allow_negative_numbers = true)]
pub struct Command {
    /// Random loss in each direction: a fraction or a percentage, 0 to 0.5 (0% to 50%)
    #[arg(long, value_name = "P", default_value = "2%", value_parser = units::loss)]
    loss: f64,
    /// How long the link is down, 0 to 1h (0 = none), and when that begins: a time since the start
    /// of the run, or a percentage of the bytes (25% unless given); units ns, us, ms, s, min
    #[arg(long, value_name = "LEN[@AT]", default_value = "300ms", value_parser = units::blackout)]
    blackout: Blackout,
    /// Profile file (TOML) or built-in profile for the third run; - reads standard input
    #[arg(long, value_name = "FILE", default_value = "link-flap")]
    profile: PathBuf,
    /// ACK timeout of the QPs, 1 to 31: 4.096 us doubled T times; less than 16 counts as 16
    #[arg(long, value_name = "T", default_value = "14", value_parser = units::timeout_code)]
    timeout: u8,
    /// Retry count of the QPs, 0 to 7: 7 means seven
    #[arg(long, value_name = "R", default_value = "7", value_parser = adp::retry_count)]
    retry_cnt: u8,
    /// Seed of messages, bytes and losses, 0 to 2^64-1; times differ all the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Payload of each run, 1 byte to 1T: K, M, G, T and KiB, MiB, .. are binary, KB, MB, .. decimal
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = units::bytes)]
    bytes: u64,
    /// Addresses of the two devices, on UDP port 4791
    #[arg(long, value_name = "A,B", default_value = "127.0.0.1,127.0.0.2",
          value_parser = units::addresses)]
    addresses: [IpAddr; 2],
    /// Record the packets of all runs for Wireshark (pcapng); over three times --bytes
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Draw the timeouts and the recovery as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    congestion: congestion::Options,
}

/// What a demo has to say.
struct Shown {
    text: String,
    /// The document, on one line.
    json: String,
    /// If asked for.
    svg: Option<String>,
    /// Wrong bytes have arrived under this; they are shown all the same.
    wrong_under: Option<String>,
    /// The machine was too busy for a verdict, and what is shown says so.
    too_busy: bool,
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        self.congestion.check()?;
        // Before the work, so that a bad path does not cost it.
        let svg = self
            .svg
            .as_deref()
            .map(|path| create(path, |path| File::create(path)));
        let svg = svg.transpose()?;
        let tap = |path: &Path| Tap::create(path, TapDirection::Sent);
        let tap = self.pcap.as_deref().map(|path| create(path, tap));
        let tap = tap.transpose()?;
        let shown = if self.congestion.is_wanted() {
            congestion::show(&self, tap.clone())?
        } else {
            self.show_policies(tap.clone())?
        };
        if let (Some(tap), Some(path)) = (&tap, &self.pcap) {
            tap.finish().map_err(|error| cannot_write(path, &error))?;
        }
        if let (Some(file), Some(path), Some(picture)) = (svg, &self.svg, &shown.svg) {
            write(file, picture).map_err(|error| cannot_write(path, &error))?;
        }
        if self.json {
            to.text(&(shown.json + "\n"))?;
        } else {
            to.text(&shown.text)?;
        }
        match shown.wrong_under {
            Some(under) => Err(Failure::broken(format_args!(
                "wrong bytes arrived under {under}; this is a bug, please report it with seed {}",
                self.seed
            ))),
            None if shown.too_busy => Err(Failure::TooBusy),
            None => Ok(()),
        }
    }

    fn show_policies(&self, tap: Option<Tap>) -> Result<Shown, Failure> {
        let profile = adp::load(&self.profile)?;
        let profile_name = profile_name(&self.profile);
        let plan = Plan {
            seed: self.seed,
            bytes: self.bytes,
            loss: self.loss,
            blackout: (self.blackout.length_ns > 0).then_some(self.blackout),
            qp: QpTimeouts {
                timeout: self.timeout,
                retry_cnt: self.retry_cnt,
            },
            profile,
            addresses: self.addresses,
            tap,
        };
        let runs = make_runs(&plan)?;
        let svg = self
            .svg
            .is_some()
            .then(|| picture::draw(&plan, &profile_name, &runs));
        let wrong = runs.iter().find(|run| !run.verified);
        let document = report::document(&plan, &profile_name, &runs);
        Ok(Shown {
            text: report::text(&plan, &profile_name, &runs),
            json: document.line().map_err(io::Error::from)?,
            svg: svg.transpose().map_err(io::Error::other)?,
            wrong_under: wrong.map(|run| format!("policy {}", run.policy)),
            too_busy: verdict::too_busy(&runs).is_some(),
        })
    }
}

fn make_runs(plan: &Plan) -> Result<Vec<Figures>, Failure> {
    let pattern = Pattern::new(plan.seed);
    let mut runs = Vec::new();
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        let mut progress = Progress::new(index + 1, kind, plan.bytes);
        let run = run::run(plan, kind, &pattern, &mut |figures| progress.show(figures));
        runs.push(run.map_err(Failure::broken)?);
    }
    Ok(runs)
}

fn profile_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    format!("profile {}", name.to_string_lossy())
}

fn create<T>(path: &Path, create: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, Failure> {
    create(path).map_err(|error| cannot_write(path, &error))
}

fn write(mut file: File, text: &str) -> io::Result<()> {
    io::Write::write_all(&mut file, text.as_bytes())
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::input(format_args!(
        "cannot write {}: {error}; name a file in a directory that exists and is yours",
        path.display()
    ))
}

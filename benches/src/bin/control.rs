//! Measures the cost of control and telemetry in one run: counting waits, reading them, registers,
//! a scrape.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};
use ferroce_bench::median;
use ferroce_benches::control::histogram::{self, Waits};
use ferroce_benches::control::scrape::{self, Fleet};
use ferroce_benches::control::{Beside, Error, registers};

/// The histogram beside atomic additions, registers beside a copy and a system call, a scrape of
/// `ferroce serve` beside a server of the same bytes. Quote the ratios.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Length of each measurement, in seconds
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Rounds; each takes every measurement once, and the table shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Scrapes of a round
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    scrapes: u32,
    /// Only one part: histogram, registers or scrape
    #[arg(long)]
    only: Option<String>,
    /// The program ferroce [default: beside this one, where `cargo build --release` leaves it]
    #[arg(long)]
    ferroce: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
    #[command(subcommand)]
    child: Option<Child>,
}

/// What this program starts itself for.
#[derive(Debug, Subcommand)]
enum Child {
    /// One of several processes that count waits
    #[command(hide = true)]
    Record {
        directory: PathBuf,
        device: String,
        seconds: f64,
        waits: String,
    },
    /// A process with queue pairs on a device
    #[command(hide = true)]
    Hold { device: String, queue_pairs: u32 },
}

/// The device whose histogram several processes share.
const DEVICE: &str = "fr0";

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.child {
        Some(child) => child.run(),
        None => measure(&args).and_then(|rows| print(&args, &rows)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("control: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Child {
    fn run(&self) -> Result<(), Error> {
        match self {
            Self::Record {
                directory,
                device,
                seconds,
                waits,
            } => {
                let waits = Waits::parse(waits).ok_or("no such waits")?;
                let cost = histogram::in_process(directory, device, *seconds, waits)?;
                println!("{cost}");
                Ok(())
            }
            Self::Hold {
                device,
                queue_pairs,
            } => scrape::hold(device, *queue_pairs),
        }
    }
}

/// The figures of all rounds.
#[derive(Default)]
struct Figures {
    order: Vec<Key>,
    values: BTreeMap<Key, Vec<Beside>>,
}

/// What was measured, beside what, in which unit.
type Key = (String, String, &'static str);

impl Figures {
    fn note(
        &mut self,
        what: impl Into<String>,
        bare: impl Into<String>,
        unit: &'static str,
        value: Beside,
    ) {
        let key = (what.into(), bare.into(), unit);
        if !self.values.contains_key(&key) {
            self.order.push(key.clone());
        }
        self.values.entry(key).or_default().push(value);
    }
}

/// A line of the table: medians over the rounds.
#[derive(Debug, serde::Serialize)]
struct Row {
    what: String,
    beside: String,
    unit: &'static str,
    bare: f64,
    ferroce: f64,
    /// Of the ratios within each round.
    ratio: f64,
}

fn measure(args: &Args) -> Result<Vec<Row>, Error> {
    let state = State::make()?;
    let wants = |part: &str| args.only.as_deref().is_none_or(|only| only == part);
    let fleet = match wants("scrape") {
        true => Some(fleet(args, &state.0)?),
        false => None,
    };
    let mut figures = Figures::default();
    for _ in 0..args.rounds {
        if wants("histogram") {
            measure_histogram(args, &state.0, &mut figures)?;
        }
        if wants("registers") {
            measure_registers(args, &state.0, &mut figures)?;
        }
        if let Some(fleet) = &fleet {
            measure_scrape(args, fleet, &mut figures)?;
        }
    }
    let row = |key: &Key| {
        let values = &figures.values[key];
        let median = |of: fn(&Beside) -> f64| median(values.iter().map(of));
        let (what, beside, unit) = key.clone();
        Row {
            what,
            beside,
            unit,
            bare: median(|one| one.bare),
            ferroce: median(|one| one.ferroce),
            ratio: median(|one| one.ferroce / one.bare),
        }
    };
    Ok(figures.order.iter().map(row).collect())
}

fn measure_histogram(args: &Args, directory: &Path, figures: &mut Figures) -> Result<(), Error> {
    histogram::prepare(directory, DEVICE)?;
    let child = || {
        let mut child = own("record");
        child
            .arg(directory)
            .arg(DEVICE)
            .arg(args.seconds.to_string());
        child
    };
    for waits in Waits::ALL {
        for writers in [1, 2, 4, 8] {
            let name = waits.name();
            let threads = histogram::by_threads(args.seconds, waits, writers)?;
            let what = format!("count a wait, {name}, {}", many(writers, "thread"));
            figures.note(what, "fetch_add", "ns", threads);
            let ferroce = histogram::by_processes(child, waits, writers)?;
            let processes = Beside { ferroce, ..threads };
            let what = format!("count a wait, {name}, {}", many(writers, "process"));
            figures.note(what, "fetch_add by threads", "ns", processes);
        }
    }
    for writers in [0, 1, 2, 4] {
        let [read, count] = histogram::reading(args.seconds, writers)?;
        let what = format!("read 64 bins, {} counting", many(writers, "thread"));
        figures.note(what, "64 loads", "ns", read);
        if writers > 0 {
            let what = format!(
                "count a wait, 64 bins, {} and a reader",
                many(writers, "thread")
            );
            figures.note(what, "fetch_add", "ns", count);
        }
    }
    Ok(())
}

fn measure_registers(args: &Args, directory: &Path, figures: &mut Figures) -> Result<(), Error> {
    let [copy, pread, pwrite] = registers::bare(args.seconds, directory)?;
    for register in registers::REGISTERS {
        for (whose, shared) in [("own", None), ("shared", Some((directory, DEVICE)))] {
            let costs = registers::access(args.seconds, register, shared)?;
            let calls = [("GET", "pread", pread), ("SET", "pwrite", pwrite)];
            for ((verb, call, cost), ferroce) in calls.into_iter().zip(costs) {
                let what = format!("{verb} {}, {whose} device", register.name());
                figures.note(
                    &what,
                    "copy of 128 bytes",
                    "ns",
                    Beside {
                        bare: copy,
                        ferroce,
                    },
                );
                figures.note(
                    &what,
                    format!("{call} of 128 bytes"),
                    "ns",
                    Beside {
                        bare: cost,
                        ferroce,
                    },
                );
            }
        }
    }
    Ok(())
}

fn fleet(args: &Args, directory: &Path) -> Result<Fleet, Error> {
    let ferroce = match &args.ferroce {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("ferroce"),
    };
    Fleet::start(&ferroce, directory, || own("hold"))
}

fn measure_scrape(args: &Args, fleet: &Fleet, figures: &mut Figures) -> Result<(), Error> {
    let seen = fleet.scrape(args.scrapes)?;
    let what = format!(
        "scrape of {} processes with {} queue pairs on {} devices, {} bytes",
        scrape::DEVICES,
        seen.queue_pairs,
        scrape::DEVICES,
        seen.bytes
    );
    figures.note(&what, "server of the same bytes", "ms", seen.wall_ms);
    let cpu = Beside {
        ferroce: seen.cpu_ms,
        ..seen.wall_ms
    };
    figures.note("processor time of it", "the same", "ms", cpu);
    Ok(())
}

fn many(number: usize, what: &str) -> String {
    match (number, what) {
        (1, what) => format!("1 {what}"),
        (number, "process") => format!("{number} processes"),
        (number, what) => format!("{number} {what}s"),
    }
}

/// This program again, for one of its parts.
fn own(part: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(part);
    command
}

/// A state directory of this run, in memory and private as the device wants it.
struct State(PathBuf);

impl State {
    fn make() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let path = PathBuf::from(format!("/dev/shm/ferroce-control-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // What is left is useless, and small.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn print(args: &Args, rows: &[Row]) -> Result<(), Error> {
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(rows)?),
        false => table(rows),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn table(rows: &[Row]) -> String {
    let row = |row: &Row| {
        vec![
            row.what.clone(),
            row.beside.clone(),
            row.unit.into(),
            format!("{:.2}", row.bare),
            format!("{:.2}", row.ferroce),
            format!("{:.2}", row.ratio),
        ]
    };
    ferroce_benches::table(
        ["what", "beside", "unit", "bare", "ferroce", "ratio"],
        3..6,
        rows.iter().map(row),
    )
}

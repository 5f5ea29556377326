//! `ferroce sim run`: runs a scenario to its end.

use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use clap::Args;
use ferroce_device::VerbsError;
use ferroce_fabric::{Simulation, Standing};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{Results, Summary};
use rayon::ThreadPoolBuilder;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::captures::Captures;
use super::directory::{Directory, Finished};
use super::progress::Progress;
use super::report;
use super::source::{Which, assignment};
use super::tables::Format;
use crate::output::lines::finding;
use crate::output::{Failure, Output};

const EXAMPLES_AND_EXIT_CODES: &str = "Examples:
  ferroce sim run flap-all-reduce            a built-in scenario
  ferroce sim run incast-pfc --set job.timeout=14 --seed 7
  ferroce sim run scenario.toml -o results   summary, tables and an HTML report
  ferroce sim run flap-all-reduce --pcap h3=h3.pcapng

Exit codes:
  0  the run was made; a job that aborts is a result, not an error
  1  operation failed or output could not be written
  2  bad input: flags, files or values; the message says what to write instead
  130  interrupted; what is shown is valid up to then";

/// Events between two looks at progress and signals.
const SLICE: u64 = 100_000;
/// Events of a window of time that several threads share: they take about as long as waking a thread.
const WORTH: u64 = 1_000;

/// Run a scenario, and show how its jobs ended
///
/// Progress is shown on standard error if that is a terminal, and not in logs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES_AND_EXIT_CODES)]
pub(super) struct Run {
    #[command(flatten)]
    which: Which,
    /// Write summary, tables, and an HTML report to a new directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Formats of the tables; fct.txt is always written
    #[arg(
        long,
        value_name = "FORMAT",
        value_delimiter = ',',
        default_value = "csv,parquet",
        requires = "output"
    )]
    tables: Vec<Format>,
    /// Replace a directory of results that exists
    #[arg(long, requires = "output")]
    force: bool,
    /// Record what passes a port as pcapng: h3 is that of a host, leaf0-spine1 that of leaf0 towards
    /// spine1. May be repeated
    #[arg(long, value_name = "PORT=FILE", value_parser = assignment)]
    pcap: Vec<(String, String)>,
    /// Threads that work on it; the results are the same for any number [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Run {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let (source, values) = (self.which.source()?, self.which.values());
        let scenario = source.scenario(&values)?;
        let directory = self.output.map(|path| Directory::check(path, self.force));
        let directory = directory.transpose()?;
        let mut formats = self.tables;
        formats.dedup();
        let captures = Captures::create(&scenario, &self.pcap)?;
        let interrupt = Interrupt::new().map_err(Failure::broken)?;
        for found in scenario.check() {
            to.remark(finding(&source.name, found.line, "warning", &found.text))?;
        }
        let (mut simulation, remark) = in_parts(&scenario, self.threads)?;
        if let Some(text) = remark {
            to.remark(finding(&source.name, None, "warning", &text))?;
        }
        captures.begin(&mut simulation.fabric)?;
        let standing = simulate(&mut simulation, &scenario, &interrupt)?;
        captures.finish(&mut simulation.fabric)?;
        let summary = match &directory {
            None => Summary::new(&scenario, &simulation, standing),
            Some(directory) => {
                let results = Results::new(&scenario, &simulation, standing);
                directory.write(&Finished {
                    text: &source.text_with(&values)?,
                    scenario: &scenario,
                    simulation: &simulation,
                    results: &results,
                    formats: &formats,
                })?;
                results.summary
            }
        };
        match self.json {
            true => to.document(&summary)?,
            false => {
                to.text(&report::text(&scenario, &summary))?;
                let written = directory.as_ref().map(Directory::written);
                to.text(&written.unwrap_or_default())?;
            }
        }
        match (standing, &summary.deadlock) {
            (Standing::Running, _) => Err(Failure::Program(130, "interrupted\n".into())),
            (_, Some(ports)) => Err(Failure::broken(format_args!(
                "deadlock: {} pause each other in a circle (PFC); use paths that make no circle, a priority that is \
                 not in switch.pfc.priorities, or switch.pfc.watchdog",
                ports.join(", ")
            ))),
            (_, None) => Ok(()),
        }
    }
}

/// Whether SIGINT or SIGTERM has come, which end a run and not the process, as long as this is there.
struct Interrupt {
    has_come: Arc<AtomicBool>,
    signals: Vec<SigId>,
}

impl Interrupt {
    fn new() -> io::Result<Self> {
        let has_come = Arc::new(AtomicBool::new(false));
        let heed = |signal| signal_hook::flag::register(signal, Arc::clone(&has_come));
        let signals = [SIGINT, SIGTERM].into_iter().map(heed);
        let signals = signals.collect::<io::Result<_>>()?;
        Ok(Self { has_come, signals })
    }

    fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            signal_hook::low_level::unregister(signal);
        }
    }
}

/// The simulation in as many parts as threads are wanted and useful, with these threads, and a remark if these are
/// fewer.
fn in_parts(
    scenario: &Scenario,
    threads: Option<u16>,
) -> Result<(Simulation, Option<String>), Failure> {
    let all = || available_parallelism().map_or(1, NonZero::get);
    let wanted = threads.map_or_else(all, usize::from);
    let mut simulation = scenario.simulation_in_parts(wanted).map_err(no_room)?;
    let parts = simulation.fabric.parts();
    if parts > 1 {
        let pool = ThreadPoolBuilder::new().num_threads(parts).build();
        let refused = |error| Failure::broken(format_args!("{parts} threads: {error}"));
        simulation.use_threads(pool.map_err(refused)?, WORTH);
    }
    let remark = (threads.is_some() && wanted > parts).then(|| {
        format!(
            "--threads {wanted}, but no more than {parts} can work on this fabric: its leaves or pods of 16 \
             hosts and more are simulated beside each other"
        )
    });
    Ok((simulation, remark))
}

/// Runs a simulation until it is over or interrupted.
fn simulate(
    simulation: &mut Simulation,
    scenario: &Scenario,
    interrupt: &Interrupt,
) -> Result<Standing, Failure> {
    let mut progress = Progress::new(scenario.duration);
    loop {
        match simulation.run(SLICE).map_err(no_room)? {
            Standing::Running if !interrupt.has_come() => progress.show(simulation),
            standing => return Ok(standing),
        }
    }
}

fn no_room(error: VerbsError) -> Failure {
    Failure::broken(format_args!("the devices have no room: {error}"))
}

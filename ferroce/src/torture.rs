//! `ferroce torture`: random programs on whole devices in virtual time, until something does not hold.

use std::io::IsTerminal as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, io, panic, thread};

use clap::{Args, ValueEnum};
use ferroce_torture::{Coverage, Finding, Script, generate, play, shrink};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::exit_codes;
use crate::output::{Failure, Output};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce torture                                a thousand seeds
  ferroce torture --minutes 60 --findings found  an hour; findings go to found/
  ferroce torture --replay found/17.txt          play a script again"
);

/// Scripts that are played to shorten one.
const SHRINK_PLAYS: usize = 20_000;

/// Torture devices with random programs in virtual time, and check everything they do
///
/// Each seed becomes a script: hosts, memory, connections, requests legal and not, and faults of every kind. It is
/// played on real devices and compared with a model. A script that breaks a rule is shortened and printed. A seed
/// always does the same.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Command {
    /// Number of seeds [default: 1000, or without end with --minutes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    from: u64,
    /// Stop after M minutes
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: Option<u64>,
    /// Where devices run
    #[arg(long, value_name = "WORLD", value_enum, default_value_t = World::Fabric)]
    world: World,
    /// Seeds at the same time [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Write the shortened script of each finding to DIR/SEED.txt
    #[arg(long, value_name = "DIR")]
    findings: Option<PathBuf>,
    /// Play this script instead of seeds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "from", "minutes", "threads", "findings"])]
    replay: Option<PathBuf>,
}

/// Where devices run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum World {
    /// In a simulated network, in virtual time
    Fabric,
}

/// What a thread has to tell.
enum News {
    Played(Coverage),
    Found(u64, Script, Finding),
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let World::Fabric = self.world;
        match &self.replay {
            Some(file) => replay(file, to),
            None => self.play_seeds(to),
        }
    }

    fn play_seeds(&self, to: &mut Output<'_>) -> Result<(), Failure> {
        if let Some(directory) = &self.findings {
            fs::create_dir_all(directory).map_err(|error| {
                Failure::input(format_args!("cannot make {}: {error}", directory.display()))
            })?;
        }
        let start = Instant::now();
        let (coverage, found) = quietly(|| self.work(start));
        let seconds = start.elapsed().as_secs_f64();
        let mut found = found;
        found.sort_by_key(|(seed, ..)| *seed);
        for (seed, script, finding) in &found {
            self.print(*seed, script, finding, to)?;
        }
        let operations = coverage.operations();
        to.text(&format!(
            "{} seeds, {operations} operations, {} packets, {} findings\n{coverage}",
            coverage.runs,
            coverage.packets,
            found.len(),
        ))?;
        if io::stderr().is_terminal() || self.minutes.is_some() {
            let rate = operations as f64 / seconds.max(1e-3);
            to.remark(format_args!("{seconds:.1} s, {rate:.0} operations/s"))?;
        }
        match found.len() {
            0 => Ok(()),
            count => Err(Failure::broken(format_args!("{count} findings"))),
        }
    }

    /// Plays seeds with several threads until all are played or the time is over.
    fn work(&self, start: Instant) -> (Coverage, Vec<(u64, Script, Finding)>) {
        let seeds = match (self.seeds, self.minutes) {
            (Some(seeds), _) => seeds,
            (None, Some(_)) => u64::MAX - self.from,
            (None, None) => 1_000,
        };
        let limit = self
            .minutes
            .map(|minutes| Duration::from_secs(60 * minutes));
        let threads = self.threads.map_or_else(
            || thread::available_parallelism().map_or(1, NonZero::get),
            usize::from,
        );
        let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let bar = match self.seeds {
            None if limit.is_some() => ProgressBar::no_length(),
            _ => ProgressBar::new(seeds),
        };
        bar.set_style(
            ProgressStyle::with_template("{pos} seeds  {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let (mut coverage, mut found) = (Coverage::default(), Vec::new());
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            for _ in 0..threads {
                let (tell, next, over) = (tell.clone(), &next, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let nth = next.fetch_add(1, Ordering::Relaxed);
                        if nth >= seeds {
                            break;
                        }
                        let seed = self.from.wrapping_add(nth);
                        let script = generate(seed);
                        let report = play(&script);
                        if report.finding.is_some()
                            && let Some((script, finding)) = shrink(&script, SHRINK_PLAYS)
                        {
                            let _ = tell.send(News::Found(seed, script, finding));
                        }
                        let _ = tell.send(News::Played(report.coverage));
                    }
                });
            }
            drop(tell);
            for news in told {
                match news {
                    News::Played(reached) => coverage.add(&reached),
                    News::Found(seed, script, finding) => found.push((seed, script, finding)),
                }
                bar.set_position(coverage.runs);
                bar.set_message(format!(
                    "{} operations, {} findings",
                    coverage.operations(),
                    found.len()
                ));
                over.fetch_or(
                    limit.is_some_and(|limit| start.elapsed() >= limit),
                    Ordering::Relaxed,
                );
            }
        });
        bar.finish_and_clear();
        (coverage, found)
    }

    fn print(
        &self,
        seed: u64,
        script: &Script,
        finding: &Finding,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let text = commented(script, finding);
        let Some(directory) = &self.findings else {
            return to.text(&format!("# seed {seed}\n{text}\n"));
        };
        let file = directory.join(format!("{seed}.txt"));
        fs::write(&file, text).map_err(|error| {
            Failure::broken(format_args!("cannot write {}: {error}", file.display()))
        })?;
        to.text(&format!(
            "seed {seed}: {}: {}: {}\n",
            finding.rule,
            finding.what,
            file.display()
        ))
    }
}

/// A script behind its finding.
fn commented(script: &Script, finding: &Finding) -> String {
    let what = finding.what.replace('\n', " ");
    format!("# {}: {what}\n{script}", finding.rule)
}

fn replay(file: &Path, to: &mut Output<'_>) -> Result<(), Failure> {
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", file.display())))?;
    let script: Script = text
        .parse()
        .map_err(|error| Failure::input(format_args!("{}: {error}", file.display())))?;
    let report = quietly(|| play(&script));
    let (operations, packets) = (report.coverage.operations(), report.coverage.packets);
    to.text(&format!("{operations} operations, {packets} packets\n"))?;
    match report.finding {
        None => to.text("every rule holds\n"),
        Some(finding) => Err(Failure::broken(format_args!(
            "{}: {}",
            finding.rule, finding.what
        ))),
    }
}

/// Does something in which panics are findings, and not printed.
fn quietly<R>(work: impl FnOnce() -> R) -> R {
    let before = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = work();
    panic::set_hook(before);
    outcome
}

//! Rounds on this host, one after another or some at a time.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_bench::programs::is_installed;
use ferroce_torture::Finding;

use super::Command;
use super::round::{Counts, Outcome, SET_UP, play};
use crate::json::torture as json;
use crate::output::{Failure, Output};

const SEEDS: u64 = 10;

/// What rounds have come to.
#[derive(Default)]
struct Rounds {
    seeds: u64,
    counts: Counts,
    found: Vec<Found>,
}

struct Found {
    seed: u64,
    finding: Finding,
    log: Vec<String>,
    file: Option<PathBuf>,
}

impl Command {
    pub(super) fn play_rounds(&self, to: &mut Output<'_>) -> Result<(), Failure> {
        self.make_directory()?;
        if !is_installed("gdb") {
            to.remark("note: no program is debugged, as gdb is not installed")?;
        }
        let start = Instant::now();
        let mut rounds = self.rounds(start)?;
        rounds.found.sort_by_key(|it| it.seed);
        for found in &mut rounds.found {
            if let Some(directory) = &self.findings {
                let file = directory.join(format!("{}.txt", found.seed));
                fs::write(&file, found.text()).map_err(|error| {
                    Failure::broken(format_args!("cannot write {}: {error}", file.display()))
                })?;
                found.file = Some(file);
            }
        }
        match self.json {
            true => to.document(&rounds.document())?,
            false => to.text(&rounds.text())?,
        }
        if io::stderr().is_terminal() || self.minutes.is_some() {
            to.remark(format_args!("{:.1} s", start.elapsed().as_secs_f64()))?;
        }
        match rounds.found.len() {
            0 => Ok(()),
            count => Err(Failure::broken(format_args!("{count} findings"))),
        }
    }

    fn rounds(&self, start: Instant) -> Result<Rounds, Failure> {
        let seeds = match (self.seeds, self.minutes) {
            (Some(seeds), _) => seeds,
            (None, Some(_)) => u64::MAX - self.from,
            (None, None) => SEEDS,
        };
        let limit = self
            .minutes
            .map(|minutes| Duration::from_secs(60 * minutes));
        let is_late = || limit.is_some_and(|limit| start.elapsed() >= limit);
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (rounds, refused) = (Mutex::new(Rounds::default()), Mutex::new(None));
        thread::scope(|scope| {
            for _ in 0..self.threads.unwrap_or(1) {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) && !is_late() {
                        let nth = next.fetch_add(1, Ordering::Relaxed);
                        if nth >= seeds {
                            break;
                        }
                        let seed = self.from.wrapping_add(nth);
                        let outcome = play(seed);
                        if let Some(finding) =
                            outcome.finding.as_ref().filter(|it| it.rule == SET_UP)
                        {
                            is_over.store(true, Ordering::Relaxed);
                            *lock(&refused) = Some(finding.what.clone());
                        } else {
                            lock(&rounds).add(seed, outcome);
                        }
                    }
                });
            }
        });
        match refused.into_inner() {
            Ok(Some(what)) => Err(Failure::broken(what)),
            _ => Ok(rounds.into_inner().unwrap_or_default()),
        }
    }
}

/// Nothing that holds it panics.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Found {
    /// What was found, and what was done before.
    fn text(&self) -> String {
        let Finding { rule, what } = &self.finding;
        let mut text = format!("seed {}: {rule}: {what}\n", self.seed);
        for line in &self.log {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl Rounds {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        for (what, count) in outcome.counts.0 {
            self.counts.add(what, count);
        }
        if let Some(finding) = outcome.finding {
            self.found.push(Found {
                seed,
                finding,
                log: outcome.log,
                file: None,
            });
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for found in &self.found {
            match &found.file {
                None => text.push_str(&found.text()),
                Some(file) => {
                    let (Finding { rule, what }, file) = (&found.finding, file.display());
                    let _ = writeln!(text, "seed {}: {rule}: {what}: {file}", found.seed);
                }
            }
        }
        let _ = writeln!(text, "{} seeds, {} findings", self.seeds, self.found.len());
        for (what, count) in &self.counts.0 {
            let _ = writeln!(text, "{what}: {count}");
        }
        text
    }

    fn document(&self) -> json::Rounds {
        let found = |it: &Found| json::RoundFinding {
            seed: it.seed,
            rule: it.finding.rule.clone(),
            what: it.finding.what.clone(),
            log: it.log.clone(),
        };
        let happened = self.counts.0.iter();
        json::Rounds {
            seeds: self.seeds,
            findings: self.found.iter().map(found).collect(),
            happened: happened
                .map(|(outcome, count)| json::Outcome {
                    outcome,
                    count: *count,
                })
                .collect(),
        }
    }
}

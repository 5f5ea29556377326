//! Random programs on whole devices in virtual time, until something does not hold.

use std::io::IsTerminal as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, io, panic, thread};

use ferroce_torture::{
    Coverage, Finding, Progress, Script, Step, Watch, generate, play_watched, shrink,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::Command;
use crate::json::torture as json;
use crate::output::{Failure, Output};

/// Scripts that are played to shorten one.
const SHRINK_PLAYS: usize = 20_000;
/// How long a device may take for one call.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often threads are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a thread has to tell.
enum News {
    Played(Coverage),
    Found(Found),
}

/// A script that has broken a rule.
struct Found {
    script: Script,
    finding: Finding,
    file: Option<PathBuf>,
}

/// What the scripts did that were played.
#[derive(Default)]
struct Outcome {
    coverage: Coverage,
    found: Vec<Found>,
}

impl Command {
    pub(super) fn play_seeds(&self, to: &mut Output<'_>) -> Result<(), Failure> {
        self.make_directory()?;
        let start = Instant::now();
        let mut outcome = quietly(|| self.work(start));
        let seconds = start.elapsed().as_secs_f64();
        outcome.found.sort_by_key(|it| it.script.seed);
        for found in &mut outcome.found {
            self.write(found)?;
        }
        match self.json {
            true => to.document(&outcome.document())?,
            false => outcome.print(to)?,
        }
        if io::stderr().is_terminal() || self.minutes.is_some() {
            let rate = outcome.coverage.operations() as f64 / seconds.max(1e-3);
            to.remark(format_args!("{seconds:.1} s, {rate:.0} operations/s"))?;
        }
        match outcome.found.len() {
            0 => Ok(()),
            count => Err(Failure::broken(format_args!("{count} findings"))),
        }
    }

    /// Plays seeds with several threads until all are played, the time is over, or a device does not return.
    fn work(&self, start: Instant) -> Outcome {
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
        let bar = match self.seeds {
            None if limit.is_some() => ProgressBar::no_length(),
            _ => ProgressBar::new(seeds),
        };
        bar.set_style(
            ProgressStyle::with_template("{pos} seeds  {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let work = Arc::new(Work {
            from: self.from,
            seeds,
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let (tell, told) = mpsc::channel();
        let mut watches: Vec<Watch> = (0..threads).map(|_| Watch::new(start)).collect();
        for watch in &watches {
            let (work, tell, progress) = (Arc::clone(&work), tell.clone(), watch.progress());
            // Not one that is waited for: it may never end.
            thread::spawn(move || work.play(&tell, &progress));
        }
        drop(tell);
        let mut outcome = Outcome::default();
        loop {
            match told.recv_timeout(LOOK_EVERY) {
                Ok(News::Played(reached)) => outcome.coverage.add(&reached),
                Ok(News::Found(found)) => outcome.found.push(found),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = Instant::now();
            let mut stuck = watches.iter_mut().filter_map(|it| it.look(now, PATIENCE));
            if let Some(script) = stuck.next() {
                outcome.found.push(Found::hang(script));
                break;
            }
            bar.set_position(outcome.coverage.runs);
            bar.set_message(format!(
                "{} operations, {} findings",
                outcome.coverage.operations(),
                outcome.found.len()
            ));
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                work.is_over.store(true, Ordering::Relaxed);
            }
        }
        work.is_over.store(true, Ordering::Relaxed);
        bar.finish_and_clear();
        outcome
    }

    /// Writes a script to its file, if there is to be one.
    fn write(&self, found: &mut Found) -> Result<(), Failure> {
        let Some(directory) = &self.findings else {
            return Ok(());
        };
        let file = directory.join(format!("{}.txt", found.script.seed));
        fs::write(&file, found.commented()).map_err(|error| {
            Failure::broken(format_args!("cannot write {}: {error}", file.display()))
        })?;
        found.file = Some(file);
        Ok(())
    }

    pub(super) fn replay(&self, file: &Path, to: &mut Output<'_>) -> Result<(), Failure> {
        let text = fs::read_to_string(file).map_err(|error| {
            Failure::input(format_args!("cannot read {}: {error}", file.display()))
        })?;
        let script: Script = text
            .parse()
            .map_err(|error| Failure::input(format_args!("{}: {error}", file.display())))?;
        let mut outcome = quietly(|| play_alone(script));
        for found in &mut outcome.found {
            found.file = Some(file.to_owned());
        }
        let (operations, packets) = (outcome.coverage.operations(), outcome.coverage.packets);
        match self.json {
            true => to.document(&outcome.document())?,
            false => to.text(&format!("{operations} operations, {packets} packets\n"))?,
        }
        match outcome.found.first() {
            Some(Found { finding, .. }) => Err(Failure::broken(format_args!(
                "{}: {}",
                finding.rule, finding.what
            ))),
            None if self.json => Ok(()),
            None => to.text("every rule holds\n"),
        }
    }
}

/// Seeds that threads share out.
struct Work {
    from: u64,
    seeds: u64,
    next: AtomicU64,
    is_over: AtomicBool,
}

impl Work {
    fn play(&self, tell: &mpsc::Sender<News>, progress: &Arc<Progress>) {
        while !self.is_over.load(Ordering::Relaxed) {
            let nth = self.next.fetch_add(1, Ordering::Relaxed);
            if nth >= self.seeds {
                break;
            }
            let script = generate(self.from.wrapping_add(nth));
            let report = play_watched(&script, progress);
            if report.finding.is_some()
                && let Some((script, finding)) = shrink(&script, SHRINK_PLAYS, progress)
            {
                let _ = tell.send(News::Found(Found::of(script, finding)));
            }
            let _ = tell.send(News::Played(report.coverage));
        }
    }
}

/// Plays a script while another thread looks whether it goes on.
fn play_alone(script: Script) -> Outcome {
    let mut watch = Watch::new(Instant::now());
    let (progress, (tell, told)) = (watch.progress(), mpsc::channel());
    thread::spawn(move || {
        let report = play_watched(&script, &progress);
        let _ = tell.send((report, script));
    });
    loop {
        match told.recv_timeout(LOOK_EVERY) {
            Ok((report, script)) => {
                let found = report.finding.map(|finding| Found::of(script, finding));
                return Outcome {
                    coverage: report.coverage,
                    found: Vec::from_iter(found),
                };
            }
            Err(_) => {
                if let Some(script) = watch.look(Instant::now(), PATIENCE) {
                    return Outcome {
                        found: vec![Found::hang(script)],
                        ..Outcome::default()
                    };
                }
            }
        }
    }
}

impl Found {
    fn of(script: Script, finding: Finding) -> Self {
        Self {
            script,
            finding,
            file: None,
        }
    }

    /// A script during which a device has not returned from a call.
    fn hang(script: Script) -> Self {
        let finding = Finding {
            rule: "hang".to_owned(),
            what: format!("a call has not returned for {} s", PATIENCE.as_secs()),
        };
        Self::of(script, finding)
    }

    /// The script behind what was found.
    fn commented(&self) -> String {
        let Finding { rule, what } = &self.finding;
        format!("# {rule}: {}\n{}", what.replace('\n', " "), self.script)
    }
}

impl Outcome {
    fn print(&self, to: &mut Output<'_>) -> Result<(), Failure> {
        for it in &self.found {
            let (seed, finding) = (it.script.seed, &it.finding);
            to.text(&match &it.file {
                None => format!("# seed {seed}\n{}\n", it.commented()),
                Some(file) => format!(
                    "seed {seed}: {}: {}: {}\n",
                    finding.rule,
                    finding.what,
                    file.display()
                ),
            })?;
        }
        let Coverage { runs, packets, .. } = self.coverage;
        to.text(&format!(
            "{runs} seeds, {} operations, {packets} packets, {} findings\n{}",
            self.coverage.operations(),
            self.found.len(),
            self.coverage
        ))
    }

    fn document(&self) -> json::Tortured {
        let coverage = &self.coverage;
        let found = |it: &Found| json::Finding {
            seed: it.script.seed,
            rule: it.finding.rule.clone(),
            what: it.finding.what.clone(),
            file: it.file.as_ref().map(|file| file.display().to_string()),
            script: it.script.to_string(),
        };
        let verbs = Step::VERBS.iter().zip(&coverage.steps);
        let outcomes = |counts: &[(&'static str, u64)]| {
            let mut counts = counts.to_vec();
            counts.sort_unstable();
            let outcome = |(outcome, count)| json::Outcome { outcome, count };
            counts.into_iter().map(outcome).collect()
        };
        let (reached, all) = coverage.pairs();
        json::Tortured {
            seeds: coverage.runs,
            operations: coverage.operations(),
            packets: coverage.packets,
            findings: self.found.iter().map(found).collect(),
            verbs: verbs
                .map(|(verb, count)| json::Verb {
                    verb,
                    count: *count,
                })
                .collect(),
            work_requests: outcomes(&coverage.outcomes),
            connections: outcomes(&coverage.dials),
            faults_injected: coverage.injected,
            states_x_events: json::Pairs {
                reached,
                all,
                never: coverage
                    .unreached()
                    .into_iter()
                    .map(|(state, events)| json::Never { state, events })
                    .collect(),
            },
        }
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

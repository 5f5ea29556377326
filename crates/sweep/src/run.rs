//! Processes a shard.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferroce_fabric::{Simulation, Standing};
use ferroce_scenario::Scenario;
use rayon::prelude::*;
use thiserror::Error;

use crate::outcome::{self, Outcome};
use crate::parts::{self, Parts, Row, StoreError};
use crate::plan::{Plan, Point};
use crate::shard::Shard;

/// A part is written when the one before is so old; what a killed worker had finished since is lost.
const PART_EVERY: Duration = Duration::from_secs(5);
/// Or when it has this number of rows.
const ROWS_MAX: usize = 4096;

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Halt {
    /// Yes.
    No,
    /// Finish the points that are begun.
    Soon,
    /// Leave them.
    Now,
}

/// The parameters of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whose points.
    pub shard: Shard,
    /// Number of threads; 0 means one per processor.
    pub threads: usize,
    /// Maximum number of points to run.
    pub points_max: usize,
    /// Whether to run points that already have a result; collecting compares both.
    pub again: bool,
}

/// A run at its end.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// The point that it is of.
    pub point: &'a Point,
    /// The point's scenario, as the text of a file.
    pub text: &'a str,
    /// The same, parsed.
    pub scenario: &'a Scenario,
    /// Its simulation.
    pub simulation: &'a Simulation,
    /// How it ended.
    pub standing: Standing,
}

/// Keeps more of a run than its outcome, or says why it cannot.
pub type Keep<'a> = dyn Fn(&Finished<'_>) -> Result<(), String> + Sync + 'a;

/// The progress of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Number of points it has run.
    pub done: usize,
    /// Number of points it has to run.
    pub total: usize,
    /// Time since it started.
    pub elapsed: Duration,
}

impl Progress {
    /// Returns the estimated remaining time.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let left = self.total.checked_sub(self.done)?;
        let share = left as f64 / (self.done > 0).then_some(self.done)? as f64;
        Some(self.elapsed.mul_f64(share))
    }
}

/// The result of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Points whose results it has added.
    pub done: usize,
    /// Points of its shard that had results.
    pub skipped: usize,
    /// Points of its shard without a result, because it was told to stop.
    pub left: usize,
    /// How long it took.
    pub elapsed: Duration,
}

/// The reason why a worker cannot continue; the results that it has added stay.
#[derive(Error, Debug)]
pub enum RunError {
    /// A file could not be read or written.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A point cannot be made from the plan.
    #[error("point {0}: {1}")]
    Point(crate::Id, String),
    /// The caller cannot keep a run.
    #[error("the results of point {0} cannot be kept: {1}")]
    Kept(crate::Id, String),
    /// No threads.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// Runs the points of a shard that have no results, and adds their results to the sweep's
/// directory. `keep`, if there is one, is called with each run before its result is added.
///
/// # Errors
/// Returns an error if a file cannot be read or written, or a point is not what the plan says.
pub fn run(
    plan: &Plan,
    directory: &Path,
    options: Options,
    halt: &(dyn Fn() -> Halt + Sync),
    keep: Option<&Keep<'_>>,
    on_progress: &(dyn Fn(Progress) + Sync),
) -> Result<Ran, RunError> {
    let begun = Instant::now();
    let known = match options.again {
        true => Default::default(),
        false => Parts::read(directory)?.ids(),
    };
    let own = plan.points.iter().filter(|it| options.shard.has(it.id));
    let (mut todo, known): (Vec<&Point>, Vec<_>) = own.partition(|it| !known.contains(&it.id));
    todo.truncate(options.points_max);
    let worker = Worker {
        plan,
        directory,
        halt,
        keep,
        batch: Mutex::new(Batch {
            rows: Vec::new(),
            since: begun,
            done: 0,
        }),
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()?;
    let progress = |done| {
        on_progress(Progress {
            done,
            total: todo.len(),
            elapsed: begun.elapsed(),
        });
    };
    progress(0);
    let work = |point: &&Point| -> Result<(), RunError> {
        if let Some(done) = worker.run(point)? {
            progress(done);
        }
        Ok(())
    };
    let ran = pool.install(|| todo.par_iter().with_max_len(1).try_for_each(work));
    // What is finished is kept, whatever happened to others.
    let kept = worker.flush();
    ran?;
    let done = kept?;
    Ok(Ran {
        done,
        skipped: known.len(),
        left: todo.len() - done,
        elapsed: begun.elapsed(),
    })
}

struct Worker<'a> {
    plan: &'a Plan,
    directory: &'a Path,
    halt: &'a (dyn Fn() -> Halt + Sync),
    keep: Option<&'a Keep<'a>>,
    batch: Mutex<Batch>,
}

/// Rows that are not yet on disk.
struct Batch {
    rows: Vec<Row>,
    since: Instant,
    /// Points run, those on disk included.
    done: usize,
}

impl Worker<'_> {
    /// Runs a point; returns how many are done, or nothing if it was told to stop.
    fn run(&self, point: &Point) -> Result<Option<usize>, RunError> {
        if (self.halt)() != Halt::No {
            return Ok(None);
        }
        let begun = Instant::now();
        let scenario = self.plan.scenario(point);
        let scenario = scenario.map_err(|error| RunError::Point(point.id, error))?;
        let keep = |scenario: &Scenario, simulation: &Simulation, standing| {
            let Some(keep) = self.keep else {
                return Ok(());
            };
            keep(&Finished {
                point,
                text: &self.plan.scenario_text(point)?,
                scenario,
                simulation,
                standing,
            })
        };
        let keep: Option<outcome::Keep<'_>> = self.keep.is_some().then_some(&keep);
        let outcome = Outcome::of(scenario, &|| (self.halt)() != Halt::Now, keep);
        let outcome = outcome.map_err(|why| RunError::Kept(point.id, why))?;
        let Some(outcome) = outcome else {
            return Ok(None);
        };
        let took_ms = begun.elapsed().as_millis() as u64;
        let id = point.id;
        let row = Row {
            id,
            outcome,
            took_ms,
        };
        let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        batch.rows.push(row);
        batch.done += 1;
        if batch.since.elapsed() >= PART_EVERY || batch.rows.len() >= ROWS_MAX {
            self.write(&mut batch)?;
        }
        Ok(Some(batch.done))
    }

    fn flush(&self) -> Result<usize, RunError> {
        let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&mut batch)?;
        Ok(batch.done)
    }

    fn write(&self, batch: &mut Batch) -> Result<(), RunError> {
        if !batch.rows.is_empty() {
            parts::add(self.directory, &batch.rows)?;
            batch.rows.clear();
        }
        batch.since = Instant::now();
        Ok(())
    }
}

//! `ferroce sweep run`.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;
use std::{env, fs, thread};

use clap::Args;
use ferroce_scenario::results::Results;
use ferroce_sweep::{Finished, Keep, Options, Ran, RunError, Shard};
use indicatif::HumanDuration;

use super::progress::Progress;
use super::signals::Stop;
use super::source::{Planned, Which, cannot_write};
use crate::json::sim as json;
use crate::output::exit_codes;
use crate::output::{Failure, Output};
use crate::sim;

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce sweep run sweep.toml               all of it, on this machine
  ferroce sweep run results --shard 0/8      one of eight parts of a plan
  ferroce sweep collect results"
);

/// Run the points of a sweep, or of one shard of it, that have no results yet
///
/// Without --shard, SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX (Kubernetes), HQ_TASK_ID,
/// OMPI_COMM_WORLD_RANK or PMI_RANK says which shard this is, if one of them is set, and --shards of how
/// many. Ctrl-C or SIGTERM finishes the points in progress and stops; the same command
/// resumes. Progress is shown on standard error: all the time on a terminal; elsewhere with a line
/// after 2, 4, 8 seconds and so on, and then every ten minutes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Run {
    #[command(flatten)]
    which: Which,
    /// Only one shard of several equal ones: 0/8 is the first of eight
    #[arg(long, value_name = "I/S")]
    shard: Option<Shard>,
    /// How many shards there are, where the environment says which one this is
    #[arg(long, value_name = "S", conflicts_with = "shard",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    shards: Option<u64>,
    /// Points at the same time [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Run at most N points
    #[arg(long, value_name = "N")]
    points: Option<usize>,
    /// Write report, tables and summary of each run to DIR/POINT, as `ferroce sim run -o` does;
    /// `collect --points` lists which point is which
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Repeat points that have results: `collect` compares them
    #[arg(long)]
    again: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Run {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let shard = self.which_shard()?;
        let planned = self.which.written(to)?;
        let options = Options {
            shard,
            threads: self.threads.unwrap_or(0).into(),
            points_max: self.points.unwrap_or(usize::MAX),
            again: self.again,
        };
        let ran = work(&planned, options, self.keep.as_deref())?;
        report(&planned, shard, ran, self.json, to)
    }

    fn which_shard(&self) -> Result<Shard, Failure> {
        if let Some(shard) = self.shard {
            return Ok(shard);
        }
        let found = Shard::of_environment(|name| env::var(name).ok(), self.shards);
        match found.map_err(Failure::input)? {
            Some(shard) => Ok(shard),
            None if self.shards.is_some() => Err(Failure::input(
                "the environment does not say which shard this is; write --shard 0/8 instead of --shards 8",
            )),
            None => Ok(Shard::WHOLE),
        }
    }
}

/// Runs points until all are done or a signal comes.
pub(super) fn work(
    planned: &Planned,
    options: Options,
    keep: Option<&Path>,
) -> Result<Ran, Failure> {
    if let Some(directory) = keep {
        fs::create_dir_all(directory).map_err(|error| {
            Failure::input(format_args!("cannot make {}: {error}", directory.display()))
        })?;
    }
    let failed = OnceLock::new();
    let keep = keep.map(|directory| {
        |run: &Finished<'_>| {
            write(directory, run).map_err(|failure| {
                let why = failure.to_string();
                let _ = failed.set(failure);
                why
            })
        }
    });
    let keep = keep.as_ref().map(|keep| -> &Keep<'_> { keep });
    let stop = Stop::new().map_err(Failure::broken)?;
    let mut progress = Progress::new();
    let Planned { plan, directory } = planned;
    let ran = thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let worker = scope.spawn(|| {
            ferroce_sweep::run(
                plan,
                directory,
                options,
                &|| stop.halt(),
                keep,
                &move |it| {
                    // The receiver listens to the end.
                    let _ = tell.send(it);
                },
            )
        });
        told.into_iter().for_each(|it| progress.show(it));
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    drop(progress);
    ran.map_err(|error| match error {
        RunError::Store(error) => cannot_write(&error),
        RunError::Kept(point, why) => {
            let first = failed.into_inner();
            first.unwrap_or_else(|| Failure::broken(format_args!("point {point}: {why}")))
        }
        error => Failure::broken(format_args!("{error}; the results so far are kept")),
    })
}

/// Writes the results of a run to a directory of its own.
fn write(directory: &Path, run: &Finished<'_>) -> Result<(), Failure> {
    let Finished {
        point,
        text,
        scenario,
        simulation,
        standing,
    } = *run;
    let path = directory.join(point.id.to_string());
    let results = Results::new(scenario, simulation, standing);
    sim::write(path, text, scenario, simulation, &results)
}

/// Says what was done; points that are left are a failure.
pub(super) fn report(
    planned: &Planned,
    shard: Shard,
    ran: Ran,
    json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    if json {
        to.document(&json::Ran {
            shard: shard.to_string(),
            done: ran.done,
            skipped: ran.skipped,
            left: ran.left,
            elapsed_s: ran.elapsed.as_secs_f64(),
        })?;
    }
    let directory = planned.directory.display();
    let of_shard = match shard == Shard::WHOLE {
        true => String::new(),
        false => format!("shard {shard}: "),
    };
    let seconds = HumanDuration(Duration::from_secs(ran.elapsed.as_secs()));
    let skipped = match ran.skipped {
        0 => String::new(),
        count => format!(", {count} had results"),
    };
    to.remark(format_args!(
        "{of_shard}{} points in {seconds}{skipped}",
        ran.done
    ))?;
    match ran.left {
        0 => to.remark(format_args!("next: ferroce sweep collect {directory}")),
        left => Err(Failure::broken(format_args!(
            "stopped: {left} points are left; the same command resumes"
        ))),
    }
}

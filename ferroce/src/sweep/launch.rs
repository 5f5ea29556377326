//! `ferroce sweep launch`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use clap::{Args, ValueEnum};
use ferroce_base::units::TIME;
use ferroce_sweep::parts::Parts;
use ferroce_sweep::{Options, Shard};

use super::batch::{Batch, kubernetes, slurm};
use super::run;
use super::source::{Planned, Which};
use crate::output::{Failure, Output};

/// What Slurm takes unless it is configured otherwise.
const ARRAY_MAX: u64 = 1001;
/// The script's name in the sweep's directory.
const SCRIPT: &str = "launch.sbatch";

/// Have a scheduler run the shards of a sweep
///
/// One point is run here first, unless there are results: shards are sized to take a minute each at
/// least. Arguments after -- are options of sbatch.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(super) struct Launch {
    #[command(flatten)]
    which: Which,
    /// The scheduler
    #[arg(long, value_enum)]
    on: On,
    /// How many shards [default: as many as take --shard-time each]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    shards: Option<u64>,
    /// Shards at the same time [default: all]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    at_once: Option<u64>,
    /// Processors of each shard
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: u16,
    /// Minimum duration of a shard
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    shard_time: Duration,
    /// Print what would be submitted
    #[arg(long)]
    dry_run: bool,
    /// Options of sbatch, for example -- --partition=long --mem=4G
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum On {
    /// This process, with --threads threads
    Local,
    /// Slurm: a job array
    Slurm,
    /// Kubernetes: an indexed job; --dry-run prints its manifest
    K8s,
}

fn time(text: &str) -> Result<Duration, ferroce_base::units::Invalid> {
    TIME.read(text).map(Duration::from_nanos)
}

impl Launch {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        if self.on == On::K8s && !self.dry_run {
            return Err(Failure::input(
                "add --dry-run, and hand what it prints to kubectl apply -f - after looking at its image \
                 and volume",
            ));
        }
        if self.on != On::Slurm && !self.options.is_empty() {
            return Err(Failure::input("options behind -- go with --on slurm only"));
        }
        let mut planned = self.which.written(to)?;
        planned.directory = absolute(&planned.directory)?;
        if self.on == On::Local {
            return self.run_here(&planned, to);
        }
        let shards = self.size(&planned, to)?;
        let program = env::current_exe().map_err(Failure::broken)?;
        let batch = Batch {
            program: &program,
            directory: &planned.directory,
            shards,
            at_once: self.at_once,
            threads: self.threads,
        };
        match self.on {
            On::K8s => to.text(&kubernetes(&batch)),
            _ => self.submit(&batch, to),
        }
    }

    fn run_here(&self, planned: &Planned, to: &mut Output<'_>) -> Result<(), Failure> {
        let options = Options {
            shard: Shard::WHOLE,
            threads: self.threads.into(),
            points_max: usize::MAX,
            again: false,
        };
        let ran = run::work(planned, options, None)?;
        run::report(planned, Shard::WHOLE, ran, false, to)
    }

    /// How many shards there shall be.
    fn size(&self, planned: &Planned, to: &mut Output<'_>) -> Result<u64, Failure> {
        let array_max = match self.on {
            On::Slurm => self.array_max(to)?,
            _ => u64::MAX,
        };
        if let Some(shards) = self.shards.filter(|shards| *shards > array_max) {
            return Err(Failure::input(format_args!(
                "--shards {shards}: Slurm takes arrays of {array_max} tasks at most here (MaxArraySize of \
                 scontrol show config); write --shards {array_max} or less, with more --threads each if they \
                 take too long"
            )));
        }
        let Work { points, point } = self.look(planned, to)?;
        let all = point.mul_f64(points as f64 / f64::from(self.threads));
        let least = self.shard_time.as_secs_f64().max(1e-9);
        let most = (all.as_secs_f64() / least).floor().max(1.0) as u64;
        let Some(shards) = self.shards else {
            let shards = most.min(array_max).min(points as u64);
            to.remark(format_args!(
                "{points} points of {:.3} s: {shards} shards of {:.0} s",
                point.as_secs_f64(),
                all.as_secs_f64() / shards as f64
            ))?;
            return Ok(shards);
        };
        if shards > 1 && shards > most {
            return Err(Failure::input(format_args!(
                "--shards {shards}: each would take {:.1} s, and starting one takes the scheduler a second or \
                 more; write --shards {most} or less, or a smaller --shard-time than {}",
                all.as_secs_f64() / shards as f64,
                TIME.write(self.shard_time.as_nanos() as u64)
            )));
        }
        Ok(shards)
    }

    /// What is left to do, and how long a point takes: that of the results, or of a first point.
    fn look(&self, planned: &Planned, to: &mut Output<'_>) -> Result<Work, Failure> {
        let Planned { plan, directory } = planned;
        let read = || {
            let parts = Parts::read(directory);
            parts.map_err(|error| Failure::broken(format_args!("cannot read {error}")))
        };
        let mut parts = read()?;
        if parts.rows.is_empty() {
            to.remark("running one point to see how long it takes")?;
            let options = Options {
                shard: Shard::WHOLE,
                threads: 1,
                points_max: 1,
                again: false,
            };
            run::work(planned, options, None)?;
            parts = read()?;
        }
        let known = parts.ids();
        let points = plan.points.iter().filter(|it| !known.contains(&it.id));
        let points = points.count();
        if points == 0 {
            return Err(Failure::input(format_args!(
                "all points have results; next: ferroce sweep collect {}",
                directory.display()
            )));
        }
        let took: u64 = parts.rows.iter().map(|row| row.took_ms).sum();
        let count = parts.rows.len().max(1) as f64;
        // What takes less than a millisecond takes some time all the same.
        let point = Duration::from_micros(100).max(Duration::from_millis(took).div_f64(count));
        Ok(Work { points, point })
    }

    fn array_max(&self, to: &mut Output<'_>) -> Result<u64, Failure> {
        let output = Command::new("scontrol").args(["show", "config"]).output();
        let text = match output {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
            _ if self.dry_run => {
                to.remark(format_args!(
                    "scontrol show config says nothing here; MaxArraySize is taken as {ARRAY_MAX}"
                ))?;
                return Ok(ARRAY_MAX);
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(Failure::broken(format_args!(
                    "scontrol show config: {}",
                    said.trim()
                )));
            }
            Err(error) => {
                return Err(Failure::input(format_args!(
                    "cannot run scontrol: {error}; launch from a host with Slurm's programs, add --dry-run, or \
                     write --on local"
                )));
            }
        };
        let value = text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == "MaxArraySize").then(|| value.trim().parse().ok())?
        });
        Ok(value.unwrap_or(ARRAY_MAX).max(1))
    }

    fn submit(&self, batch: &Batch<'_>, to: &mut Output<'_>) -> Result<(), Failure> {
        let script = slurm(batch).map_err(Failure::input)?;
        if self.dry_run {
            return to.text(&script);
        }
        let path = batch.directory.join(SCRIPT);
        fs::write(&path, script).map_err(|error| {
            Failure::broken(format_args!("cannot write {}: {error}", path.display()))
        })?;
        let output = Command::new("sbatch")
            .arg("--parsable")
            .args(&self.options)
            .arg(&path)
            .output();
        let output =
            output.map_err(|error| Failure::broken(format_args!("cannot run sbatch: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::broken(format_args!(
                "sbatch refused {}: {}",
                path.display(),
                said.trim()
            )));
        }
        let job = String::from_utf8_lossy(&output.stdout);
        to.text(&format!(
            "job {}: {} shards; when they are done: ferroce sweep collect {}\n",
            job.trim(),
            batch.shards,
            batch.directory.display()
        ))
    }
}

struct Work {
    /// Points without a result.
    points: usize,
    /// How long one takes.
    point: Duration,
}

fn absolute(directory: &Path) -> Result<PathBuf, Failure> {
    directory
        .canonicalize()
        .map_err(|error| Failure::input(format_args!("{}: {error}", directory.display())))
}

//! `ferroce sweep plan`.

use std::fmt::Write as _;

use clap::Args;
use ferroce_sweep::Shard;

use super::source::{Planned, Which};
use crate::json::sim as json;
use crate::output::exit_codes;
use crate::output::lines::lines;
use crate::output::{Failure, Output, Table};

/// Combinations that are listed.
const LISTED: usize = 20;

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce sweep plan survival                a built-in sweep
  ferroce sweep plan sweep.toml -o results --shards 8"
);

/// List the points of a sweep, after checking every one of them
///
/// With -o it also writes the plan, which is all that workers need.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Plan {
    #[command(flatten)]
    which: Which,
    /// Show how many points each of S shards has
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    shards: Option<u64>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Plan {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let is_written = self.which.names_directory();
        let planned = match is_written {
            true => self.which.written(to)?,
            false => self.which.plan()?,
        };
        if self.json {
            return self.print_json(&planned, to);
        }
        let Planned { plan, directory } = &planned;
        let mut text = String::new();
        if !plan.title.is_empty() {
            text += &lines(&plan.title);
        }
        let (groups, seeds, points) = (plan.groups.len(), plan.seeds, plan.points.len());
        let others = points.saturating_sub(groups * seeds as usize);
        let mut count = format!("{points} points: {groups} combinations, {seeds} seeds of each");
        if others > 0 {
            let _ = write!(count, ", and {others} without faults to compare with");
        }
        text += &lines(&count);
        let names: Vec<_> = plan.axes.iter().map(String::as_str).collect();
        let mut table = Table::new(&names);
        for group in plan.groups.iter().take(LISTED) {
            table.row(group.labels.clone());
        }
        if !names.is_empty() {
            let _ = write!(text, "\n{table}");
        }
        if groups > LISTED {
            let _ = writeln!(text, "and {} more; -j lists all", groups - LISTED);
        }
        if let Some(shards) = self.shards {
            let counts = counts(plan, shards);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            let _ = writeln!(
                text,
                "\n{shards} shards of {} to {} points",
                least.unwrap_or(&0),
                most.unwrap_or(&0)
            );
        }
        if is_written {
            let _ = writeln!(
                text,
                "\nwritten to {0}; next: ferroce sweep run {0}",
                directory.display()
            );
        }
        to.text(&text)
    }

    fn print_json(&self, planned: &Planned, to: &mut Output<'_>) -> Result<(), Failure> {
        let plan = &planned.plan;
        let combinations = plan.groups.iter().map(|group| {
            let values = plan.axes.iter().cloned();
            json::Combination {
                values: values.zip(group.labels.iter().cloned()).collect(),
                points: group.runs.iter().map(|run| run.id.to_string()).collect(),
            }
        });
        to.document(&json::Plan {
            title: plan.title.clone(),
            ferroce_version: plan.version.clone(),
            points: plan.points.len(),
            seeds: plan.seeds.into(),
            combinations: combinations.collect(),
            shards: self.shards.map(|shards| counts(plan, shards)),
        })
    }
}

/// How many points each shard has.
fn counts(plan: &ferroce_sweep::Plan, shards: u64) -> Vec<usize> {
    let of = |index| {
        let shard = Shard::new(index, shards);
        let points = plan.points.iter();
        points
            .filter(|it| shard.is_some_and(|shard| shard.has(it.id)))
            .count()
    };
    (0..shards).map(of).collect()
}

//! `ferroce sim compare`: two runs side by side.
//!
//! | module | purpose |
//! |---|---|
//! | `side` | the results of a run, read from its directory |
//! | `figures` | what is compared |
//! | `page` | the comparison as HTML |

mod figures;
mod page;
mod side;

use std::fs;
use std::path::PathBuf;

use clap::Args;

use self::figures::Figure;
use self::side::Side;
use super::report;
use crate::json::sim as json;
use crate::output::exit_codes;
use crate::output::lines::{grouped, lines};
use crate::output::{Failure, Output, Table};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce sim run flap-all-reduce -o a
  ferroce sim run flap-all-reduce --set device.profile=patient -o b
  ferroce sim compare a b
  ferroce sim compare a b -o page.html       plots of both in one picture"
);

/// Compare two runs: what differs between their scenarios and between their results
///
/// Figures that are equal are left out; -j has all of them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Compare {
    /// Directory that `ferroce sim run -o` wrote, or a summary.json
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The same of the run to compare with
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Write a page with both, and with plots from their Parquet tables
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Compare {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let sides = [Side::open(&self.a)?, Side::open(&self.b)?];
        let keys = side::different_keys(&sides);
        let figures = figures::of(&sides);
        if let Some(path) = &self.output {
            let page = page::page(&sides, &keys, &figures)?;
            fs::write(path, page).map_err(|error| {
                Failure::broken(format_args!(
                    "cannot write {}: {error}; name a file in a directory that exists and is yours",
                    path.display()
                ))
            })?;
        }
        match self.json {
            true => to.document(&document(&sides, keys, &figures)),
            false => to.text(&text(&sides, &keys, &figures)),
        }
    }
}

/// A key of scenario files, and its value in each.
type Key = (String, [Option<String>; 2]);

fn text(sides: &[Side; 2], keys: &[Key], figures: &[Figure]) -> String {
    let mut text = String::new();
    for (name, side) in ["A", "B"].iter().zip(sides) {
        text += &lines(&format!("{name}: {}", side.described()));
    }
    if !keys.is_empty() {
        let mut table = Table::new(&["key", "A", "B"]);
        for (path, values) in keys {
            let values = values.iter().map(|it| it.as_deref().unwrap_or("-"));
            table.row(
                [path.as_str()]
                    .into_iter()
                    .chain(values)
                    .map(str::to_owned)
                    .collect(),
            );
        }
        text += &format!("\n{table}");
    }
    let mut table = Table::new(&["figure", ">A", ">B", ">B / A"]);
    for (job, outcomes) in outcomes(sides) {
        if outcomes[0] != outcomes[1] {
            let [a, b] = outcomes.map(|it| it.unwrap_or_else(|| "-".into()));
            table.row(vec![format!("{job}: outcome"), a, b, String::new()]);
        }
    }
    let mut equal = 0;
    for figure in figures {
        if figure.values[0] == figure.values[1] {
            equal += 1;
            continue;
        }
        let [a, b] = figure.values.map(|it| figure.shown(it));
        table.row(vec![figure.label(), a, b, figure.ratio()]);
    }
    let end = match equal {
        0 => String::new(),
        1 => "1 figure is equal\n".into(),
        count => format!("{} figures are equal\n", grouped(count)),
    };
    format!("{text}\n{table}\n{end}")
}

/// The jobs of both, and how they ended.
fn outcomes(sides: &[Side; 2]) -> Vec<(String, [Option<String>; 2])> {
    let names = figures::union(sides.each_ref().map(|side| {
        side.summary
            .jobs
            .iter()
            .map(|job| job.name.clone())
            .collect()
    }));
    let of = |name: String| {
        let outcome = |side: &Side| {
            let job = side.summary.jobs.iter().find(|job| job.name == name);
            job.map(report::outcome)
        };
        let both = sides.each_ref().map(outcome);
        (name, both)
    };
    names.into_iter().map(of).collect()
}

fn document(sides: &[Side; 2], keys: Vec<Key>, figures: &[Figure]) -> json::Compared {
    let side = |it: &Side| json::Compare {
        path: it.path.display().to_string(),
        title: it.summary.title.clone(),
        ferroce_version: it.summary.ferroce_version.clone(),
        scenario_hash: it.summary.scenario_hash.clone(),
        seed: it.summary.seed,
        outcomes: it
            .summary
            .jobs
            .iter()
            .map(|job| (job.name.clone(), report::outcome(job)))
            .collect(),
    };
    let [a, b] = sides.each_ref().map(side);
    let key = |(name, [a, b]): Key| json::Difference { name, a, b };
    let figure = |it: &Figure| json::Difference {
        name: it.name(),
        a: it.values[0],
        b: it.values[1],
    };
    json::Compared {
        a,
        b,
        keys: keys.into_iter().map(key).collect(),
        figures: figures.iter().map(figure).collect(),
    }
}

//! `ferroce sweep collect`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use ferroce_sweep::curves::Curves;
use ferroce_sweep::parts::Parts;
use ferroce_sweep::stats::Estimate;
use ferroce_sweep::{Collected, METRICS, Plan};

use super::curves::{self, Layout, METRIC, SURVIVAL};
use super::source::read_plan;
use crate::json::sim as json;
use crate::output::exit_codes;
use crate::output::lines::lines;
use crate::output::{Failure, Output, Table};

/// Missing points that are listed.
const LISTED: usize = 10;
/// Of `METRICS`, those in the table on the terminal.
const SHOWN: &[(&str, &str)] = &[
    ("ended_ms", ">ended, ms"),
    ("time_lost_ms", ">time lost, ms"),
    ("slowdown_p99", ">slowdown p99"),
    ("timeouts", ">timeouts"),
    ("spurious", ">spurious"),
];

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce sweep collect survival.sweep --csv table.csv
  ferroce sweep collect survival.sweep --survival survival.svg
  ferroce sweep collect routing.sweep --plot goodput.svg --of goodput_gbps"
);

/// Unite the results of a sweep: means and shares with 95 % confidence intervals
///
/// Repeated results must be equal. Exits with 1 if some differ, or points are missing.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("picture").args(["survival", "plot"]).multiple(true))]
pub(super) struct Collect {
    /// Directory of the sweep
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Write the table as CSV, with all figures and the ends of their intervals
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a CSV line for each point
    #[arg(long, value_name = "FILE")]
    points: Option<PathBuf>,
    /// Write the survival curves, as SVG or as an HTML page, by the file's name
    #[arg(long, value_name = "FILE", value_parser = picture_file)]
    survival: Option<PathBuf>,
    /// Write curves of one metric, as SVG or as an HTML page, by the file's name
    #[arg(long, value_name = "FILE", value_parser = picture_file)]
    plot: Option<PathBuf>,
    /// The metric of --plot, and the one that --survival shows beside survival: a column of --csv
    #[arg(
        long,
        value_name = "METRIC",
        requires = "picture",
        default_value = "time_lost_ms"
    )]
    of: String,
    /// The axis that curves run along; those of --plot are one for each value of the others [default: the
    /// length of faults; the first axis for --plot]
    #[arg(long, value_name = "FIELD", requires = "picture")]
    along: Option<String>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

fn picture_file(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    match path.extension().and_then(|it| it.to_str()) {
        Some("svg" | "html") => Ok(path),
        _ => Err("the name must end in .svg or .html".into()),
    }
}

impl Collect {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let plan = read_plan(&self.directory)?;
        let parts = Parts::read(&self.directory);
        let parts = parts.map_err(|error| Failure::broken(format_args!("cannot read {error}")))?;
        let collected = Collected::new(&plan, parts);
        if let Some(path) = &self.csv {
            write(path, &collected.table())?;
        }
        if let Some(path) = &self.points {
            write(path, &collected.points())?;
        }
        let (of, along) = (self.of.as_str(), self.along.as_deref());
        if let Some(path) = &self.survival {
            let curves = Curves::of_survival(&collected, of, along);
            draw(path, &curves.map_err(Failure::input)?, &plan, SURVIVAL)?;
        }
        if let Some(path) = &self.plot {
            let curves = Curves::new(&collected, of, along);
            draw(path, &curves.map_err(Failure::input)?, &plan, METRIC)?;
        }
        match self.json {
            true => to.document(&summary(&collected))?,
            false => to.text(&text(&collected))?,
        }
        self.judge(&collected, to)
    }

    /// Says what is wrong, and fails if anything is.
    fn judge(&self, collected: &Collected<'_>, to: &mut Output<'_>) -> Result<(), Failure> {
        let directory = self.directory.display();
        for (path, what) in &collected.damaged {
            to.remark(format_args!(
                "warning: {} {what}; it is ignored, and may be deleted",
                path.display()
            ))?;
        }
        let mut problems = String::new();
        for (id, error) in collected.failed().take(LISTED) {
            let _ = writeln!(problems, "error: point {id} cannot be run: {error}");
        }
        for id in collected.unequal.iter().take(LISTED) {
            let _ = writeln!(
                problems,
                "error: point {id} has results that differ: workers were not the same program, or the \
                 simulator is at fault; please report it with {directory}"
            );
        }
        let missing: Vec<_> = collected.missing().collect();
        if !missing.is_empty() {
            let plan = collected.plan();
            for point in missing.iter().take(LISTED) {
                let labels = plan.groups[point.group].labels.join(", ");
                let faultless = if point.faultless {
                    ", without faults"
                } else {
                    ""
                };
                let _ = writeln!(
                    problems,
                    "missing: {} ({labels}, seed {}{faultless})",
                    point.id, point.seed
                );
            }
            if missing.len() > LISTED {
                let _ = writeln!(problems, "and {} more", missing.len() - LISTED);
            }
            let _ = writeln!(
                problems,
                "error: {} of {} points are missing; this runs them: ferroce sweep run {directory}",
                missing.len(),
                plan.points.len()
            );
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Failure::Broken(problems)),
        }
    }
}

fn draw(path: &Path, curves: &Curves, plan: &Plan, layout: Layout) -> Result<(), Failure> {
    let is_page = path.extension().is_some_and(|it| it == "html");
    let drawn = match is_page {
        true => curves::page(curves, plan, layout),
        false => curves::picture(curves, plan, layout),
    };
    write(path, &drawn.map_err(Failure::input)?)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::broken(format_args!("cannot write {}: {error}", path.display())))
}

fn text(collected: &Collected<'_>) -> String {
    let plan = collected.plan();
    let mut text = String::new();
    if !plan.title.is_empty() {
        text += &lines(&plan.title);
    }
    let (points, missing) = (plan.points.len(), collected.missing().count());
    let mut results = format!("{} of {points} points have results", points - missing);
    if collected.duplicates > 0 {
        let equal = match collected.unequal.len() {
            0 => "all of them equal".to_owned(),
            count => format!("{count} points differ"),
        };
        let _ = write!(
            results,
            "; {} were run more than once, {equal}",
            collected.duplicates
        );
    }
    if collected.foreign > 0 {
        let _ = write!(
            results,
            "; {} are of other plans and left out",
            collected.foreign
        );
    }
    text += &lines(&results);
    text += "\n";
    let shown = SHOWN.iter().filter_map(|(name, header)| {
        let at = METRICS.iter().position(|it| it.name == *name)?;
        let is_there = collected
            .groups
            .iter()
            .any(|group| group.means[at].is_some());
        is_there.then_some((at, *header))
    });
    let shown: Vec<_> = shown.collect();
    let mut header: Vec<&str> = plan.axes.iter().map(String::as_str).collect();
    header.extend([">runs", ">survived"]);
    header.extend(shown.iter().map(|(_, header)| *header));
    let mut table = Table::new(&header).in_parts(plan.axes.len());
    for group in &collected.groups {
        let mut cells = group.labels.clone();
        cells.push(group.runs.to_string());
        cells.push(group.survival.map_or_else(String::new, percent));
        let means = shown.iter().map(|(at, _)| group.means[*at]);
        cells.extend(means.map(|it| it.map_or_else(String::new, figure)));
        table.row(cells);
    }
    let _ = write!(text, "{table}");
    text
}

/// `90 % (70 to 97)`.
pub(super) fn percent(it: Estimate) -> String {
    let [value, low, high] = [it.value, it.low, it.high].map(|share| share * 100.0);
    format!("{value:.0} % ({low:.0} to {high:.0})")
}

/// `12.3 ± 0.4`.
pub(super) fn figure(it: Estimate) -> String {
    let half = it.high - it.value;
    match half.is_finite() {
        true => format!("{} ± {}", digits(it.value), digits(half)),
        false => digits(it.value),
    }
}

/// Three digits, or the whole number.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        0.0 => 0,
        it => (2 - it.log10().floor() as i32).clamp(0, 6),
    };
    format!("{value:.*}", places.unsigned_abs() as usize)
}

fn summary(collected: &Collected<'_>) -> json::Collected {
    let plan = collected.plan();
    let interval = |it: Estimate| {
        let end = |end: f64| end.is_finite().then_some(end);
        json::Interval {
            value: it.value,
            low: end(it.low),
            high: end(it.high),
            samples: it.samples,
        }
    };
    let groups = collected.groups.iter().map(|group| {
        let values = plan.axes.iter().cloned();
        let names = METRICS.iter().map(|it| it.name);
        let means = group.means.iter().map(|it| it.map(interval));
        json::Group {
            values: values.zip(group.labels.iter().cloned()).collect(),
            runs: group.runs,
            missing: group.missing,
            survived: group.survived,
            survival: group.survival.map(interval),
            means: names.zip(means).collect(),
        }
    });
    json::Collected {
        title: plan.title.clone(),
        assumption: plan.assumption.clone(),
        ferroce_version: plan.version.clone(),
        points: plan.points.len(),
        missing: collected.missing().map(|it| it.id.to_string()).collect(),
        duplicates: collected.duplicates,
        unequal: collected.unequal.iter().map(ToString::to_string).collect(),
        foreign: collected.foreign,
        damaged: collected.damaged.len(),
        combinations: groups.collect(),
    }
}

//! The tables, and the same as JSON.

use ferroce_bench::load::Reason;
use ferroce_bench::median;
use ferroce_bench::ratio::{Goal, Verdict};

use super::Command;
use super::measure::Bench;
use super::plan::{Column, Plan, Row, Unit};
use super::rounds::Figures;
use super::verdict::Judged;
use crate::json::bench as json;
use crate::output::Table;
use crate::output::lines::lines;

/// Everything.
pub(super) fn document(
    command: &Command,
    plan: &Plan,
    bench: &Bench,
    figures: &Figures,
    judged: &[Judged],
) -> json::Bench {
    let absent = bench.absent().map(|(program, reason)| json::Absent {
        program,
        reason: reason.to_owned(),
    });
    json::Bench {
        ferroce_version: env!("CARGO_PKG_VERSION"),
        rounds: command.rounds,
        measurement_s: command.seconds,
        driver: if command.perftest {
            "perftest"
        } else {
            "threads"
        },
        workloads: plan.rows().map(|row| workload(row, figures)).collect(),
        goals: judged.iter().map(goal).collect(),
        noise: json::Noise {
            idle_processors: figures.noise.idle,
            waited: figures.noise.waited,
            spread: figures.noise.spread,
            reasons: figures
                .noise
                .reasons()
                .iter()
                .map(Reason::to_string)
                .collect(),
        },
        absent: absent.collect(),
    }
}

fn workload(row: Row, figures: &Figures) -> json::Workload {
    let figure = |column: Column| {
        let values: Vec<f64> = figures.of((row, column)).collect();
        (!values.is_empty()).then(|| json::Figure {
            of: column.key(),
            median: median(values.iter().copied()),
            values,
        })
    };
    json::Workload {
        workload: row.to_string(),
        message_bytes: row.bytes,
        unit: match row.unit() {
            Unit::Gbps => "Gb/s",
            Unit::MillionPerSecond => "M/s",
            Unit::Us => "us",
        },
        figures: Column::ALL.into_iter().filter_map(figure).collect(),
    }
}

fn goal(judged: &Judged) -> json::Goal {
    let target = &judged.target;
    let (at_least, at_most) = match target.goal {
        Goal::AtLeast(least) => (Some(least), None),
        Goal::AtMost(most) => (None, Some(most)),
    };
    json::Goal {
        workload: target.of.0.to_string(),
        of: target.of.1.key(),
        beside_workload: target.beside.0.to_string(),
        beside: target.beside.1.key(),
        at_least,
        at_most,
        ratio: judged.ratio.median,
        low: judged.ratio.low,
        high: judged.ratio.high,
        verdict: match judged.verdict {
            Verdict::Met => json::Verdict::Met,
            Verdict::Missed => json::Verdict::Missed,
            Verdict::CannotTell => json::Verdict::CannotTell,
        },
    }
}

/// The tables, and what is missing in them.
pub(super) fn text(document: &json::Bench) -> String {
    let settings = match document.rounds {
        1 => "One round".to_owned(),
        rounds => format!("Medians of {rounds} rounds"),
    };
    let driver = match document.driver {
        "perftest" => "driven by perftest",
        _ => "driven by two threads",
    };
    let mut text = lines(&format!(
        "{settings} of {} s a figure. UDP and shm (shared memory) are Ferroce {}, {driver}.",
        document.measurement_s, document.ferroce_version
    ));
    text += &format!("\n{}", figures(document));
    for absent in &document.absent {
        text += &lines(&format!("{}: {}", title(absent.program), absent.reason));
    }
    if !document.goals.is_empty() {
        text += &format!("\n{}", goals(document));
    }
    text
}

fn figures(document: &json::Bench) -> Table {
    let figure_of = |workload: &json::Workload, column: Column| {
        let found = workload.figures.iter().find(|it| it.of == column.key());
        found.map(|it| it.median)
    };
    let is_there = |column: &Column| {
        let mut workloads = document.workloads.iter();
        workloads.any(|workload| figure_of(workload, *column).is_some())
    };
    let columns: Vec<_> = Column::ALL.into_iter().filter(is_there).collect();
    let titles: Vec<_> = columns
        .iter()
        .map(|it| format!(">{}", it.title()))
        .collect();
    let header: Vec<_> = ["workload", "unit"]
        .into_iter()
        .chain(titles.iter().map(String::as_str))
        .collect();
    let mut table = Table::new(&header);
    for workload in &document.workloads {
        let cell = |column: &Column| match figure_of(workload, *column) {
            Some(value) => digits(value),
            None => String::new(),
        };
        let names = [workload.workload.clone(), workload.unit.to_owned()];
        table.row(names.into_iter().chain(columns.iter().map(cell)).collect());
    }
    table
}

fn goals(document: &json::Bench) -> Table {
    let mut table = Table::new(&["workload", "of", "goal", ">ratio", ">interval", "verdict"]);
    for goal in &document.goals {
        let beside = title(goal.beside);
        let beside = match goal.beside_workload == goal.workload {
            true => beside.to_owned(),
            false => format!("{beside} {}", goal.beside_workload),
        };
        let wanted = match (goal.at_least, goal.at_most) {
            (Some(least), _) => format!(">= {least} of {beside}"),
            (None, most) => format!("<= {} x {beside}", most.unwrap_or_default()),
        };
        table.row(vec![
            goal.workload.clone(),
            title(goal.of).to_owned(),
            wanted,
            digits(goal.ratio),
            format!("{}-{}", digits(goal.low), digits(goal.high)),
            match goal.verdict {
                json::Verdict::Met => "met",
                json::Verdict::Missed => "missed",
                json::Verdict::CannotTell => "cannot tell",
            }
            .to_owned(),
        ]);
    }
    table
}

/// Goals without a verdict.
fn open(document: &json::Bench) -> usize {
    let is_open = |goal: &&json::Goal| goal.verdict == json::Verdict::CannotTell;
    document.goals.iter().filter(is_open).count()
}

/// Whether other programs may have turned a verdict.
pub(super) fn is_too_noisy(document: &json::Bench) -> bool {
    !document.noise.reasons.is_empty() && open(document) > 0
}

/// What the verdicts are worth, and how to have more of them.
pub(super) fn remark(document: &json::Bench) -> Option<String> {
    let (goals, open) = (document.goals.len(), open(document));
    let reasons = document.noise.reasons.join("; ");
    if is_too_noisy(document) {
        return Some(format!(
            "warning: this machine is too noisy to tell: {reasons}. Verdicts that this may turn are \
             \"cannot tell\". End other programs, or move them to other processors, and run again; \
             quote no figure of this run."
        ));
    }
    if !reasons.is_empty() {
        return Some(format!(
            "warning: this machine is noisy: {reasons}. This turns no verdict, but quote no figure of \
             this run."
        ));
    }
    match (open, document.rounds) {
        (0, _) => None,
        (_, ..5) => {
            Some("note: verdicts need 5 rounds or more; run again with --rounds 5".to_owned())
        }
        (_, rounds) => Some(format!(
            "note: {open} of {goals} intervals contain their goals; more rounds make them narrower, as \
             with --rounds {}",
            4 * rounds
        )),
    }
}

/// What a program is called in tables.
fn title(key: &'static str) -> &'static str {
    let column = Column::ALL.into_iter().find(|it| it.key() == key);
    column.map_or(key, Column::title)
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value {
        ..0.1 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

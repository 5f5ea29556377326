//! All results: the union of all parts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::outcome::{METRICS, Outcome, Standing};
use crate::parts::{Parts, Row};
use crate::plan::{Group, Id, Plan, Point};
use crate::stats::{Estimate, mean, share};

/// The results of a sweep.
#[derive(Debug)]
pub struct Collected<'a> {
    plan: &'a Plan,
    rows: BTreeMap<Id, Row>,
    /// Number of results that existed more than once.
    pub duplicates: u64,
    /// Points with results that differ.
    pub unequal: Vec<Id>,
    /// Number of results of points that are not in the plan.
    pub foreign: u64,
    /// Truncated or damaged files, and what is wrong with them.
    pub damaged: Vec<(PathBuf, String)>,
    /// The results of each combination, in the plan's order.
    pub groups: Vec<Summary>,
}

/// The results of a combination.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The value of each axis.
    pub labels: Vec<String>,
    /// Points that have results.
    pub runs: u64,
    /// Points in which all jobs survived.
    pub survived: u64,
    /// Points without results.
    pub missing: u64,
    /// The share that survived.
    pub survival: Option<Estimate>,
    /// The mean of each of [`METRICS`].
    pub means: Vec<Option<Estimate>>,
}

impl<'a> Collected<'a> {
    /// Selects the results of a plan from all results.
    #[must_use]
    pub fn new(plan: &'a Plan, parts: Parts) -> Self {
        let planned: BTreeSet<Id> = plan.points.iter().map(|it| it.id).collect();
        let mut rows: BTreeMap<Id, Row> = BTreeMap::new();
        let (mut duplicates, mut foreign, mut unequal) = (0, 0, Vec::new());
        for row in parts.rows {
            if !planned.contains(&row.id) {
                foreign += 1;
                continue;
            }
            match rows.get(&row.id) {
                None => {
                    rows.insert(row.id, row);
                }
                Some(first) => {
                    duplicates += 1;
                    if first.outcome != row.outcome && !unequal.contains(&row.id) {
                        unequal.push(row.id);
                    }
                }
            }
        }
        let groups = plan.groups.iter().map(|group| summary(group, &rows));
        Self {
            plan,
            groups: groups.collect(),
            rows,
            duplicates,
            unequal,
            foreign,
            damaged: parts.damaged,
        }
    }

    /// Returns the plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.plan
    }

    /// Returns the result of a point.
    #[must_use]
    pub fn outcome(&self, id: Id) -> Option<&Outcome> {
        self.rows.get(&id).map(|row| &row.outcome)
    }

    /// Returns the points without a result.
    pub fn missing(&self) -> impl Iterator<Item = &Point> {
        let points = self.plan.points.iter();
        points.filter(|point| !self.rows.contains_key(&point.id))
    }

    /// Returns the points that could not be run, with the reason.
    pub fn failed(&self) -> impl Iterator<Item = (Id, &str)> {
        let rows = self.rows.values();
        let failed = rows.filter(|row| row.outcome.standing == Standing::Failed);
        failed.map(|row| (row.id, row.outcome.error.as_deref().unwrap_or_default()))
    }

    /// Returns one line of CSV for each combination: means and shares with the bounds of their
    /// intervals.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut header: Vec<String> = self.plan.axes.clone();
        header.extend(["runs", "missing", "survived"].map(str::to_owned));
        for name in ["survival"]
            .into_iter()
            .chain(METRICS.iter().map(|it| it.name))
        {
            header.extend([
                name.to_owned(),
                format!("{name}_low"),
                format!("{name}_high"),
            ]);
        }
        line(&mut text, header);
        for group in &self.groups {
            let mut cells = group.labels.clone();
            let counts = [group.runs, group.missing, group.survived];
            cells.extend(counts.map(|it| it.to_string()));
            for estimate in [group.survival]
                .into_iter()
                .chain(group.means.iter().copied())
            {
                cells.extend(estimate_cells(estimate));
            }
            line(&mut text, cells);
        }
        text
    }

    /// Returns one line of CSV for each point of each combination.
    #[must_use]
    pub fn points(&self) -> String {
        let mut text = String::new();
        let mut header: Vec<String> = self.plan.axes.clone();
        header.extend(self.plan.drawn.iter().cloned());
        header.extend(["id", "seed", "standing", "survived"].map(str::to_owned));
        header.extend(METRICS.iter().map(|it| it.name.to_owned()));
        line(&mut text, header);
        let points: HashMap<Id, &Point> = self.plan.points.iter().map(|it| (it.id, it)).collect();
        for group in &self.plan.groups {
            for run in &group.runs {
                let (Some(outcome), Some(point)) = (self.outcome(run.id), points.get(&run.id))
                else {
                    continue;
                };
                let baseline = run.baseline.and_then(|id| self.outcome(id));
                let mut cells = group.labels.clone();
                cells.extend(point.drawn());
                cells.push(run.id.to_string());
                cells.push(point.seed.to_string());
                cells.push(standing(outcome.standing).to_owned());
                cells.push(outcome.survived.to_string());
                let metrics = METRICS.iter().map(|it| (it.of)(outcome, baseline));
                cells.extend(metrics.map(|it| it.map_or_else(String::new, digits)));
                line(&mut text, cells);
            }
        }
        text
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Over => "over",
        Standing::TimeUp => "time-up",
        Standing::Stuck => "stuck",
        Standing::Failed => "failed",
    }
}

fn summary(group: &Group, rows: &BTreeMap<Id, Row>) -> Summary {
    let outcome = |id: Id| rows.get(&id).map(|row| &row.outcome);
    let pairs = group.runs.iter().filter_map(|run| {
        let it = outcome(run.id)?;
        Some((it, run.baseline.and_then(outcome)))
    });
    let pairs: Vec<_> = pairs.collect();
    let sound = pairs
        .iter()
        .filter(|(it, _)| it.standing != Standing::Failed);
    let sound: Vec<_> = sound.collect();
    let survived = sound.iter().filter(|(it, _)| it.survived).count() as u64;
    let runs = sound.len() as u64;
    let means = METRICS.iter().map(|metric| {
        let samples = sound
            .iter()
            .filter_map(|(it, baseline)| (metric.of)(it, *baseline));
        Some(mean(&samples.collect::<Vec<_>>())?.at_least(metric.least))
    });
    Summary {
        labels: group.labels.clone(),
        runs,
        survived,
        missing: (group.runs.len() - pairs.len()) as u64,
        survival: share(survived, runs),
        means: means.collect(),
    }
}

/// An estimate in three cells: unknown ends are empty.
fn estimate_cells(estimate: Option<Estimate>) -> [String; 3] {
    let cell = |value: f64| match value.is_finite() {
        true => digits(value),
        false => String::new(),
    };
    match estimate {
        Some(it) => [it.value, it.low, it.high].map(cell),
        None => Default::default(),
    }
}

/// Six digits after the point at most.
fn digits(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text {
        "-0" | "" => "0".into(),
        text => text.into(),
    }
}

fn line(text: &mut String, cells: Vec<String>) {
    for (at, cell) in cells.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = match cell.contains([',', '"', '\n']) {
            true => write!(text, "{comma}\"{}\"", cell.replace('"', "\"\"")),
            false => write!(text, "{comma}{cell}"),
        };
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut text = String::new();
        line(
            &mut text,
            ["a", "b,c", "say \"x\""].map(str::to_owned).to_vec(),
        );
        assert_eq!(text, "a,\"b,c\",\"say \"\"x\"\"\"\n");
        for (value, expected) in [
            (0.0, "0"),
            (100.0, "100"),
            (-0.000_000_1, "0"),
            (0.5, "0.5"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(digits(value), expected);
        }
    }
}

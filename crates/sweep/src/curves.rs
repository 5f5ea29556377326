//! The share of jobs that survive, and another metric, along one axis, curve by curve.

use thiserror::Error;

use crate::collect::{Collected, Summary};
use crate::outcome::{METRICS, Metric};
use crate::range::number;
use crate::stats::Estimate;

/// The share of runs that survive, as a metric like others.
const SURVIVAL: Metric = Metric {
    name: "survival",
    doc: "share of runs in which all jobs survive, 0 to 1",
    least: 0.0,
    of: |it, _| Some(f64::from(u8::from(it.survived))),
};

/// Survival and a metric along one axis.
#[derive(Clone, Debug)]
pub struct Curves {
    /// The metric.
    pub metric: Metric,
    /// The axis that the curves run along.
    pub along: String,
    /// Whether its values are numbers, times, sizes or rates. Others are at 0, 1, 2 and so on.
    pub is_measured: bool,
    /// One for each combination of the other axes.
    pub curves: Vec<Curve>,
    /// The minimum and maximum number of runs per point.
    pub runs: (u64, u64),
}

/// One combination of the other axes.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its values.
    pub label: String,
    /// In the axis' order.
    pub points: Vec<CurvePoint>,
}

/// One value of the axis.
#[derive(Clone, Debug)]
pub struct CurvePoint {
    /// The value of the axis, as written.
    pub label: String,
    /// The value as a number, times in seconds; or its place among all values.
    pub x: f64,
    /// The share of runs that survived.
    pub survival: Option<Estimate>,
    /// The mean of the metric.
    pub mean: Option<Estimate>,
}

/// The reason why a sweep has no such curves.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum CurvesError {
    /// No axis is the length of an outage.
    #[error(
        "no axis of the sweep is the length of a fault (fault[0].for); add one, or name the axis that \
         curves run along: --along {first}"
    )]
    NoAxis {
        /// An axis that it has.
        first: String,
    },
    /// The sweep has no axis.
    #[error("the sweep has no axis that curves could run along")]
    Alone,
    /// The sweep has no such axis.
    #[error("the sweep has no axis {name}; it has {}", axes.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Those that it has.
        axes: Vec<String>,
    },
    /// There is no such metric.
    #[error("no metric is called {name}; there are {}", names.join(", "))]
    NoMetric {
        /// The name.
        name: String,
        /// Those that there are.
        names: Vec<&'static str>,
    },
    /// The values of the axis are not numbers.
    #[error("the values of {0} are not numbers, times, sizes or rates: {1}")]
    Words(String, String),
    /// The file does not state its assumption about outages.
    #[error(
        "the sweep says nothing about its outages; add assumption = \"...\" to the sweep file: where they \
         are, when they begin, how many there are and what switches do meanwhile"
    )]
    NoAssumption,
}

impl Curves {
    /// Computes the survival curves of a sweep and the metric `of`, along the axis with this name, or along the
    /// length of its faults.
    ///
    /// # Errors
    /// Returns an error if there is no such axis or metric, its values are not numbers, or nothing is said about
    /// the outages.
    pub fn of_survival(
        collected: &Collected<'_>,
        of: &str,
        along: Option<&str>,
    ) -> Result<Self, CurvesError> {
        let plan = collected.plan();
        if plan.assumption.is_empty() {
            return Err(CurvesError::NoAssumption);
        }
        let is_length = |name: &&String| name.starts_with("fault") && name.ends_with(".for");
        let length = || plan.axes.iter().find(is_length).map(String::as_str);
        let along = along.or_else(length).ok_or_else(|| CurvesError::NoAxis {
            first: plan.axes.first().cloned().unwrap_or_else(|| "FIELD".into()),
        })?;
        let curves = Self::new(collected, of, Some(along))?;
        let labels = curves.curves.iter().flat_map(|it| &it.points);
        match labels.map(|it| &it.label).find(|it| number(it).is_none()) {
            Some(label) => Err(CurvesError::Words(curves.along.clone(), label.clone())),
            None => Ok(curves),
        }
    }

    /// Computes the curves of the metric `of`, or of `survival`, along the axis with this name, or along the
    /// first.
    ///
    /// # Errors
    /// Returns an error if there is no such axis or metric.
    pub fn new(
        collected: &Collected<'_>,
        of: &str,
        along: Option<&str>,
    ) -> Result<Self, CurvesError> {
        let axes = &collected.plan().axes;
        let axis = match along {
            Some(name) => axes.iter().position(|axis| axis == name),
            None => (!axes.is_empty()).then_some(0),
        };
        let axis = axis.ok_or_else(|| match along {
            Some(name) => CurvesError::Unknown {
                name: name.to_owned(),
                axes: axes.clone(),
            },
            None => CurvesError::Alone,
        })?;
        let metric = METRICS.iter().position(|it| it.name == of);
        if metric.is_none() && of != SURVIVAL.name {
            let survival = [SURVIVAL.name].into_iter();
            return Err(CurvesError::NoMetric {
                name: of.to_owned(),
                names: survival.chain(METRICS.iter().map(|it| it.name)).collect(),
            });
        }
        let mean = |group: &Summary| match metric {
            Some(metric) => group.means[metric],
            None => group.survival,
        };
        let mut values: Vec<&String> = Vec::new();
        for group in &collected.groups {
            let label = &group.labels[axis];
            if !values.contains(&label) {
                values.push(label);
            }
        }
        let is_measured = values.iter().all(|it| number(it).is_some());
        let place = |label: &String| match number(label).filter(|_| is_measured) {
            Some(number) => number,
            None => values
                .iter()
                .position(|it| *it == label)
                .unwrap_or_default() as f64,
        };
        let mut curves: Vec<Curve> = Vec::new();
        let mut runs = (u64::MAX, 0);
        for group in &collected.groups {
            let label = &group.labels[axis];
            runs = (runs.0.min(group.runs), runs.1.max(group.runs));
            let point = CurvePoint {
                label: label.clone(),
                x: place(label),
                survival: group.survival,
                mean: mean(group),
            };
            let others = group
                .labels
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != axis);
            let others: Vec<_> = others.map(|(_, label)| label.as_str()).collect();
            let name = others.join(", ");
            match curves.iter_mut().find(|curve| curve.label == name) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve {
                    label: name,
                    points: vec![point],
                }),
            }
        }
        for curve in &mut curves {
            curve.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        Ok(Self {
            metric: metric.map_or(SURVIVAL, |metric| METRICS[metric]),
            along: axes[axis].clone(),
            is_measured,
            curves,
            runs,
        })
    }
}

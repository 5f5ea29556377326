//! The share of jobs that survive, and another metric, against the length of an outage, curve by curve.

use thiserror::Error;

use crate::collect::Collected;
use crate::outcome::{METRICS, Metric};
use crate::range::number;
use crate::stats::Estimate;

/// Survival and a metric along one axis.
#[derive(Clone, Debug)]
pub struct Survival {
    /// The metric.
    pub metric: &'static Metric,
    /// The axis that the curves run along.
    pub along: String,
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

/// One length of outage.
#[derive(Clone, Debug)]
pub struct CurvePoint {
    /// The value of the axis, as written.
    pub label: String,
    /// The value as a number; times are in seconds.
    pub x: f64,
    /// The share of runs that survived.
    pub survival: Option<Estimate>,
    /// The mean of the metric.
    pub mean: Option<Estimate>,
}

/// The reason why a sweep has no survival curves.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum SurvivalError {
    /// No axis is the length of an outage.
    #[error(
        "no axis of the sweep is the length of a fault (fault[0].for); add one, or name the axis that \
         curves run along: --along {first}"
    )]
    NoAxis {
        /// An axis that it has.
        first: String,
    },
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

impl Survival {
    /// Computes the curves of a sweep and the metric `of`, along the axis with this name, or along the length
    /// of its faults.
    ///
    /// # Errors
    /// Returns an error if there is no such axis or metric, or nothing is said about the outages.
    pub fn new(
        collected: &Collected<'_>,
        of: &str,
        along: Option<&str>,
    ) -> Result<Self, SurvivalError> {
        let plan = collected.plan();
        if plan.assumption.is_empty() {
            return Err(SurvivalError::NoAssumption);
        }
        let axes = &plan.axes;
        let is_length = |name: &String| name.starts_with("fault") && name.ends_with(".for");
        let axis = match along {
            Some(name) => {
                let found = axes.iter().position(|axis| axis == name);
                found.ok_or_else(|| SurvivalError::Unknown {
                    name: name.to_owned(),
                    axes: axes.clone(),
                })?
            }
            None => {
                let found = axes.iter().position(is_length);
                found.ok_or_else(|| SurvivalError::NoAxis {
                    first: axes.first().cloned().unwrap_or_else(|| "FIELD".into()),
                })?
            }
        };
        let metric = METRICS.iter().position(|it| it.name == of);
        let metric = metric.ok_or_else(|| SurvivalError::NoMetric {
            name: of.to_owned(),
            names: METRICS.iter().map(|it| it.name).collect(),
        })?;
        let mut curves: Vec<Curve> = Vec::new();
        let mut runs = (u64::MAX, 0);
        for group in &collected.groups {
            let label = &group.labels[axis];
            let x = number(label)
                .ok_or_else(|| SurvivalError::Words(axes[axis].clone(), label.clone()))?;
            runs = (runs.0.min(group.runs), runs.1.max(group.runs));
            let point = CurvePoint {
                label: label.clone(),
                x,
                survival: group.survival,
                mean: group.means[metric],
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
            metric: &METRICS[metric],
            along: axes[axis].clone(),
            curves,
            runs,
        })
    }
}

//! The figures of two runs.

use ferroce_scenario::results::{Job, Summary};

use super::Side;
use crate::output::lines::grouped;

/// Links that are compared: the busiest of each.
const LINKS: usize = 5;

/// A figure, and what both runs have of it.
pub(super) struct Figure {
    /// The job or link that it is of; empty for the whole fabric.
    of: String,
    /// Its name with its unit, in snake case.
    name: &'static str,
    /// The same for people.
    label: &'static str,
    /// Digits after the point.
    digits: usize,
    pub(super) values: [Option<f64>; 2],
}

impl Figure {
    pub(super) fn name(&self) -> String {
        self.behind(self.name)
    }

    pub(super) fn label(&self) -> String {
        self.behind(self.label)
    }

    fn behind(&self, name: &str) -> String {
        match self.of.as_str() {
            "" => name.to_owned(),
            of => format!("{of}: {name}"),
        }
    }

    pub(super) fn shown(&self, value: Option<f64>) -> String {
        match value {
            None => "-".into(),
            Some(it) if self.digits == 0 => grouped(it as u64),
            Some(it) => format!("{it:.*}", self.digits),
        }
    }

    /// How many times the first the second is.
    pub(super) fn ratio(&self) -> String {
        match self.values {
            [Some(a), Some(b)] if a > 0.0 => format!("{:.2}", b / a),
            _ => String::new(),
        }
    }
}

/// The name of a figure, its label, digits, and where it stands.
type Kind<T> = (&'static str, &'static str, usize, fn(&T) -> Option<f64>);

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

const OF_JOB: &[Kind<Job>] = &[
    ("time_ms", "time, ms", 3, |it| it.time_ns.map(ms)),
    ("ideal_ms", "ideal, ms", 3, |it| Some(ms(it.ideal_ns))),
    ("lost_ms", "lost, ms", 3, |it| it.lost_ns.map(ms)),
    ("timeouts", "timeouts", 0, |it| Some(it.timeouts as f64)),
    ("failures", "failed QPs", 0, |it| Some(it.failures.into())),
    ("colliding", "colliding connections", 0, |it| {
        it.spread.as_ref().map(|it| it.colliding.into())
    }),
    ("busy_ms", "busiest link, ms", 3, |it| {
        it.spread.as_ref().map(|it| ms(it.busy_ns))
    }),
];

/// A total, by its name.
macro_rules! total {
    ($name:ident, $label:literal) => {
        (stringify!($name), $label, 0, |it| {
            Some(it.totals.$name as f64)
        })
    };
}

const OF_RUN: &[Kind<Summary>] = &[
    ("simulated_ms", "simulated, ms", 3, |it| {
        Some(ms(it.simulated_ns))
    }),
    ("slowdown_p50", "slowdown p50", 2, |it| {
        Some(it.slowdown?.p50)
    }),
    ("slowdown_p95", "slowdown p95", 2, |it| {
        Some(it.slowdown?.p95)
    }),
    ("slowdown_p99", "slowdown p99", 2, |it| {
        Some(it.slowdown?.p99)
    }),
    ("slowdown_max", "slowdown max", 2, |it| {
        Some(it.slowdown?.max)
    }),
    total!(timeouts, "timeouts"),
    total!(adaptive_timeouts, "adaptive timeouts"),
    total!(fatal_timeouts, "fatal timeouts"),
    total!(packets, "packets"),
    total!(retransmitted, "retransmitted"),
    total!(spurious, "spurious"),
    total!(sequence_naks, "sequence NAKs"),
    total!(dropped_full, "dropped by full queues"),
    total!(dropped_lossless, "dropped for want of headroom"),
    total!(lost, "lost at random"),
    total!(lost_down, "lost on links that were down"),
    total!(corrupted, "corrupted"),
    total!(unreachable, "without a path"),
    total!(marked, "marks"),
    total!(cnps, "CNPs"),
    total!(pauses, "pauses"),
    ("worst_queue_bytes", "longest queue, bytes", 0, |it| {
        it.worst_queue.as_ref().map(|it| it.bytes as f64)
    }),
];

/// All figures of both: of jobs, of the whole fabric, of links.
pub(super) fn of(sides: &[Side; 2]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let jobs = sides
        .each_ref()
        .map(|it| it.summary.jobs.iter().map(|it| it.name.clone()).collect());
    for name in union(jobs) {
        let both = sides
            .each_ref()
            .map(|it| it.summary.jobs.iter().find(|it| it.name == name));
        for (figure, label, digits, of) in OF_JOB {
            figures.push(Figure {
                of: name.clone(),
                name: figure,
                label,
                digits: *digits,
                values: both.map(|job| job.and_then(of)),
            });
        }
    }
    for (name, label, digits, of) in OF_RUN {
        figures.push(Figure {
            of: String::new(),
            name,
            label,
            digits: *digits,
            values: sides.each_ref().map(|side| of(&side.summary)),
        });
    }
    let busiest = sides.each_ref().map(|side| {
        let links = side.summary.busiest_links.iter().take(LINKS);
        links.map(|it| it.link.clone()).collect()
    });
    for link in union(busiest) {
        let values = sides.each_ref().map(|side| {
            let share = side.links.get(&link)?;
            Some(share * 100.0)
        });
        figures.push(Figure {
            of: link,
            name: "utilisation_percent",
            label: "used, %",
            digits: 1,
            values,
        });
    }
    figures
}

/// The names of the first, then those that only the second has.
pub(super) fn union([mut all, others]: [Vec<String>; 2]) -> Vec<String> {
    let new: Vec<_> = others.into_iter().filter(|it| !all.contains(it)).collect();
    all.extend(new);
    all
}

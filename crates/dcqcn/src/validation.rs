//! Predicted against observed: the paper's algorithm on the bottleneck, held against the fluid
//! model.
//!
//! The bands are how far packet simulators of others sit from the fluid model, which knows neither
//! packets nor phases. Of CNPs there are 13 to 16 % more than the model says, for every N and seed:
//! there each mark restarts timer and byte counter, here only one that leads to a CNP does, and the
//! increases between two CNPs must be cut away.

use core::fmt;
use core::ops::RangeInclusive;
use std::vec::Vec;

use crate::bottleneck::{Observed, Scenario, run};
use crate::fluid::Fluid;
use crate::np::NotificationPoint;
use crate::param::Param;
use crate::params::Params;
use crate::presets::PAPER_RED;
use crate::rate::Rate;
use crate::rp::{PaperConfig, PaperParams, PaperRp};

/// One quantity, predicted and observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// How many flows.
    pub flows: u32,
    /// What was measured, with its unit.
    pub quantity: &'static str,
    /// What the fluid model says.
    pub predicted: f64,
    /// What the bottleneck did.
    pub observed: f64,
    /// Where the observed value may lie.
    pub band: RangeInclusive<f64>,
}

impl Check {
    /// Whether the observed value lies in the band.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.band.contains(&self.observed)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "N={:<3} {:<16} predicted {:>10.4}  observed {:>10.4}  band {:.4}..{:.4}  {}",
            self.flows,
            self.quantity,
            self.predicted,
            self.observed,
            self.band.start(),
            self.band.end(),
            if self.holds() { "ok" } else { "OUTSIDE" }
        )
    }
}

/// The experiment of the published model: `flows` on 40 Gb/s, feedback after 4 us, 0.12 s.
#[must_use]
pub fn paper_scenario(flows: u32) -> Scenario {
    let np = Params::default()
        .with(Param::CnpModeration, 2)
        .with(Param::MinTimeBetweenCnps, 50);
    Scenario {
        flows: flows as usize,
        line: Rate::from_mbps(40_000),
        packet_bytes: 1_000,
        feedback_ns: 4_000,
        red: PAPER_RED,
        np: NotificationPoint::new(&np),
        duration_ns: 120_000_000,
        late_ns: 0,
        seed: 1,
    }
}

/// Plays the paper's algorithm in `scenario`.
#[must_use]
pub fn run_paper(scenario: &Scenario, params: &PaperParams) -> Observed {
    let config = PaperConfig::new(params, scenario.line);
    let config = config.expect("the caller passes parameters in range");
    run::<PaperRp>(scenario, &config)
}

/// Runs `flows` (2 to 10) of them and compares queue, alpha, CNPs, use and fairness.
#[must_use]
pub fn against_fluid_model(flows: u32) -> Vec<Check> {
    let scenario = paper_scenario(flows);
    let seen = run_paper(&scenario, &PaperParams::default());
    let model = Fluid::paper(flows, scenario.red).fixed_point();
    let kilobytes = model.queue.unwrap_or_else(|| scenario.red.kmax().into()) / 1e3;
    let check = |quantity, predicted: f64, observed, low: f64, high: f64| Check {
        flows,
        quantity,
        predicted,
        observed,
        band: predicted * low..=predicted * high,
    };
    Vec::from([
        check("queue KB", kilobytes, seen.queue / 1e3, 1.0, 1.4),
        check("alpha", model.alpha, seen.alpha, 0.95, 1.2),
        check("CNP/s per flow", model.cnps, seen.cnps, 0.85, 1.2),
        check("utilisation", 1.0, seen.utilisation, 0.99, 1.0),
        check("Jain's index", 1.0, seen.jain(), 0.99, 1.0),
    ])
}

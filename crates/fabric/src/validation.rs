//! Compares predictions with observations: reaction points on the network and the fluid model's
//! equations with the model's fixed point and with published results.
//!
//! The bands around the fixed point are how far other packet simulators deviate from the fluid
//! model, which has no packets and no phases. There are 13 to 17 % more CNPs than the model
//! predicts; the band allows for that.

pub mod flows;

use std::fmt;
use std::ops::RangeInclusive;

use ferroce_dcqcn::fluid::Fluid;
use ferroce_dcqcn::np::NotificationPoint;
use ferroce_dcqcn::presets::{HPCC, PAPER_RED, PAPER_RED_EXTENDED, hpcc_red};
use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, PaperConfig, PaperParams, PaperRp};
use ferroce_dcqcn::{AlphaPrecision, HyperIncrease, Param, Params, RangeError, Rate, Switches};

use self::flows::{Observed, Scenario, converges_after, run};

/// One quantity, predicted and observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// How many flows.
    pub flows: u32,
    /// What was measured, with its unit.
    pub quantity: &'static str,
    /// What the model or the publication says.
    pub predicted: f64,
    /// What was seen here.
    pub observed: f64,
    /// Where the observed value may lie.
    pub band: RangeInclusive<f64>,
}

impl Check {
    fn new(flows: u32, quantity: &'static str, predicted: f64, observed: f64) -> Self {
        Self {
            flows,
            quantity,
            predicted,
            observed,
            band: predicted..=predicted,
        }
    }

    /// The same with a band from `low` to `high` times the predicted value.
    fn within(mut self, low: f64, high: f64) -> Self {
        self.band = self.predicted * low..=self.predicted * high;
        self
    }

    fn between(mut self, low: f64, high: f64) -> Self {
        self.band = low..=high;
        self
    }

    /// Whether the observed value is in the band.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.band.contains(&self.observed)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "N={:<3} {:<28} predicted {:>10.4}  observed {:>10.4}  band {:.4}..{:.4}  {}",
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

/// The experiment of the published model: `flows` on a star of 40 Gb/s and 1 us, 0.12 s. A sender that a
/// packet's mark slows down is heard of at the port 4 us after that packet left it.
#[must_use]
pub fn paper_scenario(flows: u32) -> Scenario {
    let np = Params::default()
        .with(Param::CnpModeration, 2)
        .with(Param::MinTimeBetweenCnps, 50);
    Scenario {
        flows,
        line: Rate::from_mbps(40_000),
        packet_bytes: 1_000,
        delay_ns: 1_000,
        red: PAPER_RED,
        np: NotificationPoint::new(&np),
        duration_ns: 120_000_000,
        late_ns: 0,
        seed: 1,
    }
}

/// Plays the paper's algorithm in `scenario`.
pub fn run_paper(scenario: &Scenario, params: &PaperParams) -> Result<Observed, RangeError> {
    run::<PaperRp>(scenario, &PaperConfig::new(params, scenario.line)?)
}

/// The paper's algorithm against its fluid model: queue, alpha, CNPs, use and fairness of `flows`
/// (2 to 10; above, marking cannot reach its fixed point).
pub fn against_fluid_model(flows: u32) -> Result<Vec<Check>, RangeError> {
    let scenario = paper_scenario(flows);
    let seen = run_paper(&scenario, &PaperParams::default())?;
    let model = Fluid::paper(flows, scenario.red).fixed_point();
    let queue = model.queue.unwrap_or_else(|| scenario.red.kmax().into());
    let check = |quantity, predicted, observed| Check::new(flows, quantity, predicted, observed);
    Ok(Vec::from([
        check("queue KB", queue / 1e3, seen.queue / 1e3).within(1.0, 1.4),
        check("alpha", model.alpha, seen.alpha).within(0.95, 1.2),
        check("CNP/s per flow", model.cnps, seen.cnps).within(0.85, 1.2),
        // More than all of it is a packet that is leaving at the end.
        check("utilisation", 1.0, seen.utilisation).within(0.99, 1.001),
        check("Jain's index", 1.0, seen.jain()).within(0.99, 1.0),
    ]))
}

/// How long two halves of the flows take to within a tenth of each other, ms, against the bound that
/// the authors derive (CoNEXT 2016), for those N for which it is published: 2, 4, 8 and 10.
///
/// The bound is of means, and where two noisy curves first meet differs much from run to run: the median
/// of three is compared with it.
pub fn against_convergence_bound() -> Result<Vec<Check>, RangeError> {
    let bounds_ms = [(2, 96.9), (4, 63.6), (8, 41.2), (10, 35.9)];
    let check = |(flows, bound_ms)| {
        let mut runs_ms = [0.0; 3];
        for (run, seed) in runs_ms.iter_mut().zip(1..) {
            *run = converged_ms(flows, bound_ms, seed)?;
        }
        runs_ms.sort_by(f64::total_cmp);
        Ok(Check::new(flows, "convergence ms, below", bound_ms, runs_ms[1]).within(0.0, 1.0))
    };
    bounds_ms.into_iter().map(check).collect()
}

/// When they are, if it is no later than the bound.
fn converged_ms(flows: u32, bound_ms: f64, seed: u64) -> Result<f64, RangeError> {
    let late_ns = 20_000_000;
    let scenario = Scenario {
        late_ns,
        duration_ns: late_ns + (bound_ms * 1e6) as u64,
        seed,
        ..paper_scenario(flows)
    };
    let config = PaperConfig::new(&PaperParams::default(), scenario.line)?;
    let converged = converges_after::<PaperRp>(&scenario, &config)?;
    Ok(converged.map_or(f64::INFINITY, |span| span.as_picos() as f64 / 1e9))
}

/// Deviation of the queue, KB, where the fluid model's equations settle and where they swing.
///
/// Published claim (CoNEXT 2016): with feedback after 4 us all settle; after 85 us two flows and 64
/// do, ten do not.
#[must_use]
pub fn against_published_stability() -> Vec<Check> {
    let deviation = |flows, delay_us: f64, seconds| {
        let model = Fluid::paper(flows, PAPER_RED_EXTENDED);
        model.run(delay_us / 1e6, seconds).deviation / 1e3
    };
    let fresh = |flows| {
        let seen = deviation(flows, 4.0, 0.2);
        Check::new(flows, "deviation KB after 4 us", 0.0, seen).between(0.0, 0.1)
    };
    let settles = |flows| {
        let seen = deviation(flows, 85.0, 1.0);
        Check::new(flows, "deviation KB after 85 us", 0.0, seen).between(0.0, 0.5)
    };
    let swings = deviation(10, 85.0, 0.4);
    Vec::from([
        fresh(2),
        fresh(10),
        fresh(64),
        settles(2),
        Check::new(10, "deviation KB after 85 us", 100.7, swings).within(0.9, 1.1),
        settles(64),
    ])
}

/// NVIDIA's algorithm at 100 Gb/s against HPCC's simulator, for 2 and 4 flows: it keeps alpha in
/// floating point, has no byte counter, and a hyper increase of its own.
pub fn against_reference_simulator() -> Result<Vec<Check>, RangeError> {
    let line = Rate::from_mbps(100_000);
    let params = HPCC.params();
    let switches = Switches {
        alpha_precision: AlphaPrecision::Bits26,
        hyper_increase: HyperIncrease::AfterOneStep,
        ..Switches::default()
    };
    let config = NvidiaConfig::new(&params, &switches, line);
    let mut checks = Vec::new();
    for (flows, queue, deviation, alpha) in [(2, 192.0, 164.0, 0.0093), (4, 214.0, 183.0, 0.0095)] {
        let scenario = Scenario {
            line,
            red: hpcc_red(line),
            np: NotificationPoint::new(&params),
            ..paper_scenario(flows)
        };
        let seen = run::<NvidiaRp>(&scenario, &config)?;
        let check =
            |quantity, predicted, observed| Check::new(flows, quantity, predicted, observed);
        checks.extend([
            check("queue KB", queue, seen.queue / 1e3).within(0.9, 1.1),
            check("deviation KB", deviation, seen.queue_deviation / 1e3).within(0.85, 1.15),
            check("alpha", alpha, seen.alpha).within(0.85, 1.15),
            check("utilisation", 0.993, seen.utilisation).between(0.985, 1.0),
            check("Jain's index", 0.998, seen.jain()).between(0.99, 1.0),
        ]);
    }
    Ok(checks)
}

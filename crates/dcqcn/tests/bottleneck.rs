//! The fluid model against published numbers, and the bottleneck against the fluid model.

use ferroce_dcqcn::bottleneck::run;
use ferroce_dcqcn::fluid::Fluid;
use ferroce_dcqcn::np::NotificationPoint;
use ferroce_dcqcn::presets::{HPCC, PAPER_RED, PAPER_RED_EXTENDED, hpcc_red};
use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, PaperParams};
use ferroce_dcqcn::validation::{against_fluid_model, paper_scenario, run_paper};
use ferroce_dcqcn::{AlphaPrecision, HyperIncrease, Rate, Switches};

/// N, Rt in Gb/s, marked in %, closed form in %, alpha, queue in KB, the same with the extended
/// slope, CNPs.
type Row = (u32, f64, f64, f64, f64, Option<f64>, f64, f64);

/// From a solver of its own, which reproduces the authors' phase margins and time series.
const FIXED_POINTS: [Row; 7] = [
    (
        2,
        20.218,
        0.0777,
        0.0925,
        0.10136,
        Some(20.15),
        20.50,
        1852.0,
    ),
    (
        4,
        10.160,
        0.1888,
        0.2320,
        0.12182,
        Some(41.81),
        42.66,
        2228.0,
    ),
    (
        8,
        5.115,
        0.4552,
        0.5832,
        0.14516,
        Some(93.77),
        95.81,
        2658.0,
    ),
    (
        10,
        4.103,
        0.6032,
        0.7849,
        0.15328,
        Some(122.62),
        125.34,
        2807.0,
    ),
    (16, 2.582, 1.087, 1.468, 0.17130, None, 221.91, 3141.0),
    (32, 1.307, 2.562, 3.696, 0.19990, None, 516.08, 3670.0),
    (64, 0.664, 5.905, 9.312, 0.23014, None, 1183.1, 4232.0),
];

#[test]
fn the_fluid_model_rests_where_the_published_one_does() {
    let close = |a: f64, b: f64| (a - b).abs() <= b * 1e-3;
    for (n, target, marked, approximate, alpha, queue, extended, cnps) in FIXED_POINTS {
        let model = Fluid::paper(n, PAPER_RED);
        let point = model.fixed_point();
        assert!(close(point.rate_bps, 40e9 / f64::from(n)));
        assert!(close(point.target_bps, target * 1e9), "{n}: {point:?}");
        assert!(close(point.marked, marked / 100.0), "{n}: {point:?}");
        assert!(close(model.approximate_marked(), approximate / 100.0));
        assert!(close(point.alpha, alpha), "{n}: {point:?}");
        assert!(close(point.cnps, cnps), "{n}: {point:?}");
        match (point.queue, queue) {
            (Some(bytes), Some(expected)) => assert!(close(bytes, expected * 1e3), "{n}"),
            (None, None) => {}
            other => panic!("{n}: {other:?}"),
        }
        let extended_queue = Fluid::paper(n, PAPER_RED_EXTENDED).fixed_point().queue;
        assert!(close(extended_queue.unwrap(), extended * 1e3), "{n}");
    }
}

/// Zhu et al., CoNEXT 2016: few and many flows bear a delay of 85 us, ten do not.
#[test]
fn ten_flows_swing_with_old_feedback_and_few_or_many_do_not() {
    let run = |n, delay_us: f64| Fluid::paper(n, PAPER_RED_EXTENDED).run(delay_us / 1e6, 0.2);
    for n in [2, 10, 64] {
        let fresh = run(n, 4.0);
        let rest = Fluid::paper(n, PAPER_RED_EXTENDED).fixed_point().queue;
        assert!(fresh.deviation < 100.0, "{n}: {fresh:?}");
        assert!((fresh.mean - rest.unwrap()).abs() < 100.0, "{n}: {fresh:?}");
    }
    let swinging = run(10, 85.0);
    assert!(swinging.deviation > 80e3, "{swinging:?}");
    assert!(swinging.min < 1.0, "{swinging:?}");
    // These settle, slowly.
    for n in [2, 64] {
        let settled = Fluid::paper(n, PAPER_RED_EXTENDED).run(85e-6, 1.0);
        assert!(settled.deviation < 500.0, "{n}: {settled:?}");
    }
}

#[test]
fn two_flows_are_within_the_bands() {
    holds(2);
}

#[test]
fn four_flows_are_within_the_bands() {
    holds(4);
}

#[test]
fn eight_flows_are_within_the_bands() {
    holds(8);
}

#[test]
fn ten_flows_are_within_the_bands() {
    holds(10);
}

fn holds(flows: u32) {
    for check in against_fluid_model(flows) {
        assert!(check.holds(), "{check}");
    }
}

/// Where the fluid model has no rest below kmax the queue stays just below it.
#[test]
fn sixteen_flows_fill_the_queue_to_kmax() {
    let seen = run_paper(&paper_scenario(16), &PaperParams::default());
    assert!((180e3..200e3).contains(&seen.queue), "{seen:?}");
    assert!(seen.jain() > 0.99, "{seen:?}");
}

/// The published bounds, which are conservative: a simulation has to be faster.
#[test]
fn two_halves_get_to_the_same_rate_within_the_bound() {
    for (flows, bound_ms) in [(2, 96.9), (4, 63.6), (8, 41.2), (10, 35.9)] {
        let mut scenario = paper_scenario(flows);
        scenario.late_ns = 20_000_000;
        let seen = run_paper(&scenario, &PaperParams::default());
        let converged_ns = seen.converged_ns.expect("it converges");
        assert!(converged_ns as f64 / 1e6 < bound_ms, "{flows}: {seen:?}");
    }
}

/// HPCC's simulator at 100 Gb/s, two flows: a queue of 192 KB (deviation 164), alpha 0.0093.
/// It keeps alpha in floating point.
#[test]
fn nvidias_algorithm_does_what_the_reference_simulator_does() {
    let line = Rate::from_mbps(100_000);
    let params = HPCC.params();
    let switches = Switches {
        alpha_precision: AlphaPrecision::Bits26,
        hyper_increase: HyperIncrease::AfterOneStep,
        ..Switches::default()
    };
    let mut scenario = paper_scenario(2);
    scenario.line = line;
    scenario.red = hpcc_red(line);
    scenario.np = NotificationPoint::new(&params);
    let config = NvidiaConfig::new(&params, &switches, line);
    let seen = run::<NvidiaRp>(&scenario, &config);
    assert!((173e3..211e3).contains(&seen.queue), "{seen:?}");
    assert!((139e3..189e3).contains(&seen.queue_deviation), "{seen:?}");
    assert!((0.0079..0.0107).contains(&seen.alpha), "{seen:?}");
    assert!(seen.utilisation > 0.985, "{seen:?}");
    assert!(seen.jain() > 0.99, "{seen:?}");
}

#[test]
fn a_seed_repeats_a_run() {
    let mut scenario = paper_scenario(2);
    scenario.duration_ns = 5_000_000;
    let run = |seed| {
        let mut scenario = scenario.clone();
        scenario.seed = seed;
        run_paper(&scenario, &PaperParams::default())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

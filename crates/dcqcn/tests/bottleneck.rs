//! The fluid model against published numbers, and the bottleneck against the fluid model.

use ferroce_dcqcn::bottleneck::Scenario;
use ferroce_dcqcn::fluid::Fluid;
use ferroce_dcqcn::presets::{PAPER_RED, PAPER_RED_EXTENDED};
use ferroce_dcqcn::rp::PaperParams;
use ferroce_dcqcn::validation::{
    Check, against_convergence_bound, against_fluid_model, against_published_stability,
    against_reference_simulator, paper_scenario, run_paper,
};
use ferroce_dcqcn::{Rate, StageComparison};

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

#[test]
fn ten_flows_swing_with_old_feedback_and_few_or_many_do_not() {
    all_hold(&against_published_stability());
    let swinging = Fluid::paper(10, PAPER_RED_EXTENDED).run(85e-6, 0.2);
    assert!(swinging.min < 1.0, "the queue runs empty: {swinging:?}");
}

/// Not only do the equations come to rest, they do so at the fixed point.
#[test]
fn the_equations_lead_to_the_fixed_point() {
    for flows in [2, 4, 8, 10] {
        let model = Fluid::paper(flows, PAPER_RED);
        let queue = model.fixed_point().queue.unwrap();
        let settled = model.run(4e-6, 0.4);
        assert!((settled.mean - queue).abs() < 10.0, "{flows}: {settled:?}");
    }
}

#[test]
fn two_flows_are_within_the_bands() {
    all_hold(&against_fluid_model(2).unwrap());
}

#[test]
fn four_flows_are_within_the_bands() {
    all_hold(&against_fluid_model(4).unwrap());
}

#[test]
fn eight_flows_are_within_the_bands() {
    all_hold(&against_fluid_model(8).unwrap());
}

#[test]
fn ten_flows_are_within_the_bands() {
    all_hold(&against_fluid_model(10).unwrap());
}

#[test]
fn two_halves_get_to_the_same_rate_within_the_bound() {
    all_hold(&against_convergence_bound().unwrap());
}

#[test]
fn nvidias_algorithm_does_what_the_reference_simulator_does() {
    all_hold(&against_reference_simulator().unwrap());
}

fn all_hold(checks: &[Check]) {
    for check in checks {
        assert!(check.holds(), "{check}");
    }
}

/// Where the fluid model has no rest below kmax the queue stays just below it.
#[test]
fn sixteen_flows_fill_the_queue_to_kmax() {
    let seen = run_paper(&paper_scenario(16), &PaperParams::default()).unwrap();
    assert!((180e3..200e3).contains(&seen.queue), "{seen:?}");
    assert!(seen.jain() > 0.99, "{seen:?}");
}

/// Fewer steps of recovery, more increases, a longer queue: by about a twentieth.
#[test]
fn the_reading_of_the_threshold_moves_the_queue() {
    let queue = |stage_comparison| {
        let params = PaperParams {
            stage_comparison,
            ..PaperParams::default()
        };
        let queue = |seed| {
            let mut scenario = paper_scenario(8);
            scenario.seed = seed;
            run_paper(&scenario, &params).unwrap().queue
        };
        (1..=3).map(queue).sum::<f64>() / 3.0
    };
    let five_steps = queue(StageComparison::BeforeEvent);
    let four_steps = queue(StageComparison::AfterEventBelow);
    let ratio = four_steps / five_steps;
    assert!((1.01..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn a_seed_repeats_a_run() {
    let run = |seed| {
        let mut scenario = paper_scenario(2);
        scenario.duration_ns = 5_000_000;
        scenario.seed = seed;
        run_paper(&scenario, &PaperParams::default()).unwrap()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn scenarios_that_cannot_be_are_refused() {
    type Change = fn(&mut Scenario);
    let changes: [(&str, Change); 8] = [
        ("flows", |s| s.flows = 0),
        ("flows", |s| s.flows = usize::MAX),
        ("line", |s| s.line = Rate::default()),
        ("packet_bytes", |s| s.packet_bytes = 0),
        ("feedback_ns", |s| s.feedback_ns = u64::MAX),
        ("duration_ns", |s| s.duration_ns = 0),
        ("duration_ns", |s| s.duration_ns = u64::MAX),
        ("late_ns", |s| s.late_ns = s.duration_ns + 1),
    ];
    for (field, change) in changes {
        let mut scenario = paper_scenario(2);
        change(&mut scenario);
        let refused = run_paper(&scenario, &PaperParams::default());
        assert_eq!(refused.unwrap_err().field, field);
    }
}

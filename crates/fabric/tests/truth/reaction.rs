//! Reaction points on the network compared with the fluid model, and both with published results.

use ferroce_dcqcn::rp::PaperParams;
use ferroce_dcqcn::{Rate, StageComparison};
use ferroce_fabric::validation::flows::Scenario;
use ferroce_fabric::validation::{
    Check, against_convergence_bound, against_fluid_model, against_published_stability,
    against_reference_simulator, paper_scenario, run_paper,
};

#[test]
fn ten_flows_swing_with_old_feedback_and_few_or_many_do_not() {
    all_hold(&against_published_stability());
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
    assert!(!checks.is_empty());
    for check in checks {
        assert!(check.holds(), "{check}");
    }
}

/// If the fluid model has no fixed point below kmax, the queue stays just below it.
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
fn impossible_scenarios_are_refused() {
    type Change = fn(&mut Scenario);
    let changes: [(&str, Change); 8] = [
        ("flows", |s| s.flows = 0),
        ("flows", |s| s.flows = u32::MAX),
        ("line", |s| s.line = Rate::default()),
        ("packet_bytes", |s| s.packet_bytes = 0),
        ("delay_ns", |s| s.delay_ns = u64::MAX),
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

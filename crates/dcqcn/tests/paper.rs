//! The rules of the published algorithm.

use ferroce_base::time::Time;
use ferroce_dcqcn::rp::{PaperConfig, PaperParams, PaperRp, ReactionPoint};
use ferroce_dcqcn::{HyperIncrease, RangeError, Rate, StageComparison};

const LINE: Rate = Rate::from_mbps(40_000);
const G: f64 = 1.0 / 256.0;

fn config(params: &PaperParams) -> PaperConfig {
    PaperConfig::new(params, LINE).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn a_cnp_cuts_at_once_by_half_of_alpha_and_then_raises_alpha() {
    let config = config(&PaperParams::default());
    let mut flow = PaperRp::new(&config);
    assert_eq!(flow.rate(&config, at(0)), LINE);
    assert_eq!(flow.next_event(), None);
    // A first CNP finds alpha at 1, however late it comes.
    flow.on_cnp(&config, at(1_000_000_000));
    assert_eq!(flow.rate(&config, at(1_000_000_000)).bps(), 20_000_000_000);
    assert_eq!(flow.target(&config), LINE);
    assert!(close(flow.alpha(&config, at(1_000_000_000)), 1.0));
    flow.on_cnp(&config, at(1_000_050_000));
    assert_eq!(flow.rate(&config, at(1_000_050_000)).bps(), 10_000_000_000);
    assert_eq!(flow.target(&config).bps(), 20_000_000_000, "always clamped");
}

#[test]
fn alpha_falls_once_in_each_period_without_a_cnp() {
    let config = config(&PaperParams::default());
    let mut flow = PaperRp::new(&config);
    flow.on_cnp(&config, at(0));
    assert!(close(flow.alpha(&config, at(54_999)), 1.0));
    assert!(close(flow.alpha(&config, at(55_000)), 1.0 - G));
    assert!(close(flow.alpha(&config, at(110_000)), (1.0 - G).powi(2)));
    // A CNP restarts the period, and counts as one.
    flow.on_cnp(&config, at(120_000));
    let raised = (1.0 - G).powi(3) + G;
    assert!(close(flow.alpha(&config, at(174_999)), raised));
    assert!(close(flow.alpha(&config, at(175_000)), raised * (1.0 - G)));
    assert!(close(flow.alpha(&config, at(3_600_000_000_000)), 0.0));
}

#[test]
fn five_steps_halve_the_distance_and_then_the_target_rises() {
    let params = PaperParams {
        additive: Rate::from_mbps(40),
        hyper: Rate::from_mbps(400),
        bytes: 1_000,
        ..PaperParams::default()
    };
    let config = config(&params);
    let mut flow = PaperRp::new(&config);
    flow.on_cnp(&config, at(0));
    flow.on_cnp(&config, at(0));
    let target = flow.target(&config).bps();
    let mut distance = 10_000_000_000;
    for step in 1..=5 {
        distance /= 2;
        let rate = flow.rate(&config, at(step * 55_000));
        assert_eq!(rate.bps(), target - distance, "step {step}");
        assert_eq!(flow.target(&config).bps(), target);
    }
    flow.rate(&config, at(6 * 55_000));
    assert_eq!(flow.target(&config).bps(), target + 40_000_000);
    // With the byte counter beyond five, too, the steps are the large ones.
    flow.on_bytes_sent(&config, at(6 * 55_000), 5_000);
    assert_eq!(flow.target(&config).bps(), target + 6 * 40_000_000);
    flow.on_bytes_sent(&config, at(6 * 55_000), 1_000);
    assert_eq!(flow.target(&config).bps(), target + 640_000_000);
}

#[test]
fn a_flow_at_line_rate_keeps_its_alpha_and_has_no_deadline() {
    let config = config(&PaperParams::default());
    let mut flow = PaperRp::new(&config);
    flow.on_cnp(&config, at(0));
    assert_eq!(flow.rate(&config, at(100 * 55_000)), LINE);
    assert_eq!(flow.next_event(), None);
    let alpha = flow.alpha(&config, at(100 * 55_000));
    assert!(close(alpha, (1.0 - G).powi(100)), "{alpha}");
    flow.on_cnp(&config, at(100 * 55_000));
    let rate = flow.rate(&config, at(100 * 55_000)).bps() as f64;
    assert!((rate - 40e9 * (1.0 - alpha / 2.0)).abs() < 100.0, "{rate}");
}

#[test]
fn no_flow_is_cut_below_the_minimum() {
    let params = PaperParams {
        min_rate: Rate::from_mbps(100),
        ..PaperParams::default()
    };
    let config = config(&params);
    let mut flow = PaperRp::new(&config);
    for ns in 0..100 {
        flow.on_cnp(&config, at(ns));
    }
    assert_eq!(flow.rate(&config, at(100)), params.min_rate);
}

#[test]
fn threshold_and_hyper_increase_readings_are_selectable() {
    let target_after_three_timers = |stage_comparison, hyper_increase| {
        let params = PaperParams {
            threshold: 2,
            hyper: Rate::from_mbps(1_000),
            stage_comparison,
            hyper_increase,
            ..PaperParams::default()
        };
        let config = config(&params);
        let mut flow = PaperRp::new(&config);
        flow.on_cnp(&config, at(0));
        flow.on_cnp(&config, at(0));
        flow.rate(&config, at(4 * 55_000));
        flow.target(&config).bps() / 1_000_000 - 20_000
    };
    use HyperIncrease::{AfterOneStep, BothCounters};
    use StageComparison::{AfterEventAtMost, AfterEventBelow, BeforeEvent};
    assert_eq!(target_after_three_timers(BeforeEvent, BothCounters), 80);
    assert_eq!(
        target_after_three_timers(AfterEventAtMost, BothCounters),
        80
    );
    assert_eq!(
        target_after_three_timers(AfterEventBelow, BothCounters),
        120
    );
    assert_eq!(target_after_three_timers(BeforeEvent, AfterOneStep), 1_040);
}

#[test]
fn impossible_parameters_are_refused() {
    let base = PaperParams::default();
    let zero = Rate::default();
    for (params, field) in [
        (
            PaperParams {
                inverse_gain: 0,
                ..base
            },
            "inverse_gain",
        ),
        (
            PaperParams {
                inverse_gain: 1_025,
                ..base
            },
            "inverse_gain",
        ),
        (
            PaperParams {
                alpha_timer_ns: 0,
                ..base
            },
            "alpha_timer_ns",
        ),
        (
            PaperParams {
                timer_ns: u64::MAX,
                ..base
            },
            "timer_ns",
        ),
        (
            PaperParams {
                threshold: 32,
                ..base
            },
            "threshold",
        ),
        (
            PaperParams {
                additive: zero,
                ..base
            },
            "additive",
        ),
        (
            PaperParams {
                hyper: zero,
                ..base
            },
            "hyper",
        ),
    ] {
        let refused: Result<_, RangeError> = PaperConfig::new(&params, LINE);
        assert_eq!(refused.unwrap_err().field, field);
    }
    let error = PaperConfig::new(
        &PaperParams {
            threshold: 0,
            ..base
        },
        LINE,
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "invalid threshold 0: must be 1 to 31");
}

/// The most work that one call can be asked for: a nanosecond timer over an hour, a byte counter of
/// one byte, the smallest steps.
#[test]
fn no_call_takes_long() {
    let params = PaperParams {
        timer_ns: 1,
        bytes: 1,
        additive: Rate::from_mbps(1),
        hyper: Rate::from_mbps(1),
        ..PaperParams::default()
    };
    let config = config(&params);
    for by_bytes in [false, true] {
        let mut flow = PaperRp::new(&config);
        for _ in 0..20 {
            flow.on_cnp(&config, at(0));
        }
        if by_bytes {
            flow.on_bytes_sent(&config, at(0), u32::MAX);
        }
        assert_eq!(flow.rate(&config, at(3_600_000_000_000)), LINE);
    }
}

/// A point in time, from nanoseconds.
fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

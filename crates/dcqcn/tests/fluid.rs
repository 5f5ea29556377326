//! The fluid model against published numbers.

use ferroce_dcqcn::fluid::Fluid;
use ferroce_dcqcn::presets::{PAPER_RED, PAPER_RED_EXTENDED};

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
fn ten_flows_swing_with_old_feedback() {
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

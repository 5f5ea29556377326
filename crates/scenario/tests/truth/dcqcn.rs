//! Long flows through one port under congestion control, compared with the fluid model of the algorithm
//! and with another packet simulator.

use ferroce_dcqcn::Rate;
use ferroce_dcqcn::fluid::Fluid;
use ferroce_dcqcn::presets::PAPER_RED;

use crate::long::observe;
use ferroce_testing::wire::packets;

const RATE: Rate = Rate::from_mbps(40_000);

/// The paper's model for packets of this length. At its fixed point, the queue above Kmin is proportionally
/// longer than with packets of 1,000 bytes.
fn model(flows: u32) -> Fluid {
    let wire = packets(1 << 20, 1_024)[1] as f64;
    Fluid {
        capacity: RATE.bps() as f64 / 8.0 / wire,
        packet_bytes: wire,
        additive: 40e6 / 8.0 / wire,
        ..Fluid::paper(flows, PAPER_RED)
    }
}

/// Compares long flows with the model, and with the alpha and the mean queue in KB of HPCC's simulator.
fn check(flows: u32, their_alpha: f64, their_queue: f64) {
    let hosts = format!("0-{flows}");
    let seen = observe("paper-long", &[("job.hosts", &hosts)], 60);
    let model = model(flows).fixed_point();
    let queue = model.queue.unwrap();
    println!(
        "{flows} flows: queue {:.1} KB ({:.2} x fluid), alpha {:.3} ({:.2} x fluid, {:.2} x theirs), \
         {:.0} CNP/s ({:.2}), {:.4} in use, Jain {:.4}",
        seen.queue / 1e3,
        seen.queue / queue,
        seen.alpha,
        seen.alpha / model.alpha,
        seen.alpha / their_alpha,
        seen.cnps,
        seen.cnps / model.cnps,
        seen.utilisation,
        seen.jain
    );
    let within = |what: &str, it: f64, low: f64, high: f64| {
        assert!((low..=high).contains(&it), "{what}: {it}: {seen:?}");
    };
    within("queue", seen.queue / queue, 1.0, 1.4);
    within(
        "queue beside theirs",
        seen.queue / 1e3 / their_queue,
        0.95,
        1.25,
    );
    within("alpha", seen.alpha / model.alpha, 0.95, 1.2);
    within("alpha beside theirs", seen.alpha / their_alpha, 0.8, 1.2);
    within("CNPs", seen.cnps / model.cnps, 0.85, 1.15);
    // More than all of it is what still waits in the queue at the end.
    within("utilisation", seen.utilisation, 0.99, 1.01);
    within("Jain's index", seen.jain, 0.99, 1.0);
}

#[test]
fn two_long_flows() {
    check(2, 0.123, 25.5);
}

#[test]
fn four_long_flows() {
    check(4, 0.151, 54.8);
}

#[test]
fn eight_long_flows() {
    check(8, 0.183, 115.1);
}

#[test]
fn ten_long_flows() {
    check(10, 0.203, 134.5);
}

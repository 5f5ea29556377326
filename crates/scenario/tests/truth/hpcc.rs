//! An incast and long flows that HPCC's simulator has run: docs/validation.md says how, how it differs, and what
//! follows from that for the bands.

use ferroce_testing::publish;
use ferroce_testing::wire::packets;

use crate::files::{run, scenario};
use crate::long::observe;

const MTU: u64 = 1_024;

/// Mean queues of HPCC's simulator by the number of flows, KB: the second half of 50 ms, means of four runs.
const LONG: [(u32, f64); 5] = [(2, 185.3), (4, 218.6), (8, 257.1), (16, 328.8), (32, 500.8)];

#[test]
fn queues_of_long_flows_match() {
    let rows = LONG.map(|(flows, theirs)| {
        let hosts = format!("0-{flows}");
        let seen = observe("hpcc-long", &[("job.hosts", &hosts)], 25);
        let queue = seen.queue / 1e3;
        println!("{flows} flows: {seen:?}, theirs {theirs}");
        let off = queue / theirs;
        assert!(
            (1.0..1.25).contains(&off),
            "{flows} flows: {queue} KB, theirs {theirs}"
        );
        assert!(seen.utilisation > 0.98 && seen.jain > 0.97, "{seen:?}");
        format!(
            "| {flows} | {theirs:.0} | {queue:.0} ({off:.2}) | {:.3} | {:.3} |\n",
            seen.utilisation, seen.jain
        )
    });
    publish("| flows | HPCC, KB |", &rows);
}

/// Everything passes one port, so times are proportional to bytes on the wire, except for those of
/// the round trip.
#[test]
fn an_incast_takes_as_long_as_the_published_one() {
    let (simulation, results) = run(&scenario("hpcc-incast", &[]));
    let took = results
        .flows
        .iter()
        .map(|it| it.fct_ns.unwrap() as f64 / 1e3);
    let took: Vec<f64> = took.collect();
    let of = |pick: fn(f64, f64) -> f64| took.iter().copied().reduce(pick).unwrap();
    let (least, most) = (of(f64::min), of(f64::max));
    let mean = took.iter().sum::<f64>() / 16.0;
    let wire = packets(64_000, MTU);
    let scale = wire.iter().sum::<u64>() as f64 / (64.0 * 1_038.0);
    println!("incast: {least:.2} {mean:.2} {most:.2} us, scale {scale:.4}");
    for (ours, theirs) in [(least, 87.8), (mean, 88.5), (most, 89.1)] {
        let expected = 4.0 + (theirs - 4.0) * scale;
        let off = ours / expected - 1.0;
        assert!(off.abs() < 0.02, "{ours} us, not {expected} us");
    }
    assert_eq!(results.summary.totals.pauses, 0);
    // A buffer counts no preambles and gaps, 24 bytes for each packet.
    let frames = wire.iter().sum::<u64>() - 24 * wire.len() as u64;
    let expected = 986_000.0 * frames as f64 / (64.0 * 1_038.0);
    let (_, longest) = simulation.fabric.queue(0, 1);
    let off = longest as f64 / expected - 1.0;
    assert!(
        off.abs() < 0.05,
        "a queue of {longest} bytes, not {expected}"
    );
}

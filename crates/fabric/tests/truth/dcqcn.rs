//! Long flows through one port under congestion control, compared with the fluid model of the algorithm
//! and against another packet simulator.

use ferroce_dcqcn::fluid::Fluid;
use ferroce_dcqcn::presets::{PAPER, PAPER_RED};
use ferroce_dcqcn::{AlphaPrecision, Param, Rate};
use ferroce_device::Mtu;
use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{Recording, Simulation, Span, Standing, Time, Workload};

use crate::net::*;

const RATE: Rate = Rate::from_mbps(40_000);
const BEGIN: Time = Time::from_nanos(60_000_000);
const END: Time = Time::from_nanos(120_000_000);

/// Measurements between [`BEGIN`] and [`END`].
#[derive(Debug)]
struct Seen {
    /// Mean length of the queue, bytes.
    queue: f64,
    /// Mean of the flows' alpha.
    alpha: f64,
    /// CNPs per second and flow.
    cnps: f64,
    utilisation: f64,
    jain: f64,
}

/// The paper's parameters on cards of 40 Gb/s with cables of 1 us.
fn net(flows: u32) -> Net {
    let mut net = Net::new(star(flows + 1, CableSpec::new(RATE, Span::from_micros(1))));
    // The paper's byte counter counts 10 MB, and a card's at most 2 MB; a flow here sends less than
    // that between two cuts, so no counter is closest to the paper.
    let params = PAPER.params().with(Param::ByteReset, 0);
    net.congestion = Some(params.with(Param::HaiRate, 40));
    // Alpha is a tenth here: in steps of 1/1024 it would fall by a whole step each time, faster
    // than the exponential of the paper and of simulators.
    net.switches.alpha_precision = AlphaPrecision::Bits26;
    net.switch.ecn = Some(PAPER_RED);
    net.until = END;
    net
}

/// Bytes that each sender's line has carried, and CNPs that it has handled.
fn carried(simulation: &Simulation, flows: u32) -> Vec<(u64, u32)> {
    let fabric = &simulation.fabric;
    let of = |host: u32| {
        let mut heeded = fabric.host(host).hca.look_at_flows(fabric.now());
        let cnps = heeded.next().map_or(0, |it| it.cnps);
        (fabric.line(host as usize, 0).bytes, cnps)
    };
    (1..=flows).map(of).collect()
}

/// The mean of three runs: in a single run, the queue deviates by a fifteenth (docs/validation.md).
fn observe(flows: u32) -> Seen {
    let runs = [1, 2, 3].map(|seed| observe_once(flows, seed));
    let mean = |of: fn(&Seen) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    Seen {
        queue: mean(|it| it.queue),
        alpha: mean(|it| it.alpha),
        cnps: mean(|it| it.cnps),
        utilisation: mean(|it| it.utilisation),
        jain: mean(|it| it.jain),
    }
}

fn observe_once(flows: u32, seed: u64) -> Seen {
    let mut long = job();
    long.attr.path_mtu = Mtu::Mtu1024;
    let workload = Workload {
        transfers: (1..=flows).map(|src| transfer(src, 0, 1 << 30)).collect(),
        edges: Vec::new(),
        jobs: vec!["long".into()],
    };
    let recording = Recording {
        every: Span::from_micros(2),
        samples_max: 1 << 20,
        queues: true,
        links: false,
        rates: false,
        goodput: false,
    };
    let mut net = net(flows);
    net.seed = seed;
    let mut simulation = net.recorded(workload, vec![long], Some(recording));
    let mut before = None;
    let (mut alphas, mut samples) = (0.0, 0);
    // These are a few microseconds.
    while simulation.run(100).unwrap() != Standing::TimeUp {
        let now = simulation.fabric.now();
        if now >= BEGIN {
            before.get_or_insert_with(|| carried(&simulation, flows));
            for host in 1..=flows {
                let looks = simulation.fabric.host(host).hca.look_at_flows(now);
                alphas += looks
                    .filter_map(|it| it.limit)
                    .map(|it| it.alpha)
                    .sum::<f64>();
                samples += 1;
            }
        }
    }
    simulation.fabric.audit();
    assert_eq!(simulation.player.timeouts.len(), 0);
    let (before, after) = (before.unwrap(), carried(&simulation, flows));
    let each = |it: usize| (after[it].0 - before[it].0) as f64;
    let bytes: Vec<f64> = (0..flows as usize).map(each).collect();
    let cnps = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after.1 - before.1);
    let seconds = END.since(BEGIN).as_picos() as f64 / 1e12;
    let sum: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|it| it * it).sum();
    let waited = simulation.samples.queues.iter();
    let waited = waited.filter(|it| it.of == 1 && it.at >= BEGIN);
    let looks = seconds / 2e-6;
    Seen {
        queue: waited.map(|it| it.value as f64).sum::<f64>() / looks,
        alpha: alphas / f64::from(samples),
        cnps: f64::from(cnps.sum::<u32>()) / seconds / f64::from(flows),
        utilisation: sum * 8.0 / seconds / RATE.bps() as f64,
        jain: sum * sum / (squares * f64::from(flows)),
    }
}

/// The paper's model for packets of this length, of which more bytes pass a line than a card's
/// limiter counts. At its fixed point, the queue above Kmin is proportionally longer than with
/// packets of 1,000 bytes.
fn model(flows: u32) -> Fluid {
    let wire = packets(1 << 20, 1_024)[1] as f64;
    Fluid {
        capacity: RATE.bps() as f64 / 8.0 / wire,
        packet_bytes: wire,
        additive: 40e6 / 8.0 / (1_024.0 + 12.0 + 4.0),
        ..Fluid::paper(flows, PAPER_RED)
    }
}

fn check(flows: u32, their_alpha: f64) {
    let seen = observe(flows);
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
    within("alpha", seen.alpha / model.alpha, 0.95, 1.2);
    within("alpha beside theirs", seen.alpha / their_alpha, 0.8, 1.2);
    within("CNPs", seen.cnps / model.cnps, 0.85, 1.15);
    // More than all of it is what still waits in the queue at the end.
    within("utilisation", seen.utilisation, 0.99, 1.01);
    within("Jain's index", seen.jain, 0.99, 1.0);
}

#[test]
fn two_long_flows() {
    check(2, 0.123);
}

#[test]
fn four_long_flows() {
    check(4, 0.151);
}

#[test]
fn eight_long_flows() {
    check(8, 0.183);
}

#[test]
fn ten_long_flows() {
    check(10, 0.203);
}

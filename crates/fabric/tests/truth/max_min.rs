//! Long flows over several bottlenecks, each with a queue of its own at every port, against max-min fair
//! shares.
//!
//! Ports that serve flows in turn, and pauses that make each flow wait where its share is smallest, lead
//! to max-min fair rates (Hahne, Round-robin scheduling for max-min fairness in data networks, 1991).
//! Here each flow has a priority to itself, all of equal weight and lossless.

use ferroce_fabric::ideal::{Path, fair_shares};
use ferroce_fabric::topology::{CableSpec, Ports};
use ferroce_fabric::{
    Cable, NodeId, PRIORITIES, Routes, Schedule, Span, Standing, Time, Topology, Workload,
};
use ferroce_testing::Dice;

use crate::net::*;

const FLOWS: u32 = PRIORITIES as u32;
const BEGIN: Time = Time::from_nanos(3_000_000);
const END: Time = Time::from_nanos(9_000_000);

/// Flow n goes from host n to host n + 8; the switches form a row.
struct Row {
    topology: Topology,
}

impl Row {
    /// The rates between switches, and at each flow's ends: the switch, and the rate in Gb/s.
    fn new(between: &[u32], ends: [[(u32, u32); FLOWS as usize]; 2]) -> Self {
        let spec = |rate: u32| CableSpec::new(gbps(rate), Span::from_micros(1));
        let switch = |number: u32| NodeId(2 * FLOWS + number);
        let hosts = (0..).zip(ends.as_flattened());
        let hosts =
            hosts.map(|(host, (at, rate))| Cable::new(NodeId(host), switch(*at), spec(*rate)));
        let row = (0..).zip(between);
        let row = row.map(|(at, rate)| Cable::new(switch(at), switch(at + 1), spec(*rate)));
        let nodes = 2 * FLOWS + between.len() as u32 + 1;
        let topology = Topology {
            hosts: 2 * FLOWS,
            names: (0..nodes).map(|node| format!("n{node}")).collect(),
            cables: hosts.chain(row).collect(),
            ..Topology::default()
        };
        topology.check().unwrap();
        Self { topology }
    }

    /// The theoretical rates, in bit/s.
    fn expected(&self) -> Vec<f64> {
        let (ports, routes) = (
            Ports::of(&self.topology),
            Routes::new(&self.topology, |_| true),
        );
        let path = |flow: u32| {
            let ends = [flow, flow + FLOWS];
            Path::new(&self.topology, &ports, &routes, ends, |_, ports| ports[0]).unwrap()
        };
        let paths: Vec<_> = (0..FLOWS).map(path).collect();
        fair_shares(&self.topology, &paths)
    }

    /// The measured rates between [`BEGIN`] and [`END`].
    fn seen(&self) -> Vec<f64> {
        let mut net = Net::new(self.topology.clone());
        net.switch.lossless = 0xff;
        net.switch.schedule = Schedule::Weighted([9; PRIORITIES]);
        // Little waits at each port, so that senders are soon paused by their bottlenecks.
        net.switch.buffer_bytes = 32 << 20;
        net.switch.pause_alpha_log2 = -7;
        net.until = END;
        let transfers = (0..FLOWS).map(|flow| {
            let mut it = transfer(flow, flow + FLOWS, 1 << 30);
            it.job = flow as u16;
            it
        });
        let workload = Workload {
            transfers: transfers.collect(),
            edges: Vec::new(),
            jobs: (0..FLOWS).map(|flow| format!("flow{flow}")).collect(),
        };
        let jobs = (0..PRIORITIES).map(|priority| job_of(priority as u8));
        let mut simulation = net.simulation(workload, jobs.collect());
        let mut before = None;
        while simulation.run(1_000).unwrap() != Standing::TimeUp {
            if simulation.fabric.now() >= BEGIN && before.is_none() {
                before = Some((simulation.fabric.now(), self.carried(&simulation)));
            }
        }
        let (from, before) = before.unwrap();
        let seconds = END.since(from).as_picos() as f64 / 1e12;
        simulation.fabric.audit();
        assert_eq!(simulation.player.timeouts.len(), 0);
        let after = self.carried(&simulation);
        let bits = before
            .iter()
            .zip(after)
            .map(|(before, after)| (after - before) as f64 * 8.0);
        bits.map(|bits| bits / seconds).collect()
    }

    /// Bytes on the line of each sender.
    fn carried(&self, simulation: &ferroce_fabric::Simulation) -> Vec<u64> {
        let line = |flow| simulation.fabric.line(flow as usize, 0).bytes;
        (0..FLOWS).map(line).collect()
    }

    /// Compares the two; returns the number of different shares.
    fn check(&self, what: &str) -> usize {
        let (expected, seen) = (self.expected(), self.seen());
        for (flow, (expected, seen)) in expected.iter().zip(&seen).enumerate() {
            let ratio = seen / expected;
            assert!(
                (0.97..1.02).contains(&ratio),
                "{what}: flow {flow} gets {ratio:.3} of its share\n{expected:?}\n{seen:?}"
            );
        }
        let mut shares: Vec<_> = expected.iter().map(|share| *share as u64).collect();
        shares.sort_unstable();
        shares.dedup();
        shares.len()
    }
}

/// One flow passes all cables, others a part of them; the first cable limits most of its flows, the
/// last one those that the first lets through, and two flows are limited by their own hosts.
#[test]
fn flows_in_a_row_of_bottlenecks() {
    let at = |switch| (switch, 100);
    let senders = [at(0), at(0), at(0), at(1), at(1), (1, 10), at(2), at(2)];
    let receivers = [at(3), at(1), at(1), at(2), at(3), at(2), at(3), (3, 5)];
    let row = Row::new(&[40, 100, 60], [senders, receivers]);
    assert!(row.check("in a row") >= 4);
}

#[test]
fn flows_between_random_switches() {
    let mut shares = 0;
    for seed in 1..=6 {
        let mut dice = Dice::new(seed);
        let between: Vec<u32> = (0..3).map(|_| dice.pick(&[25, 40, 50, 100])).collect();
        let mut end = || {
            let switch = dice.below(4) as u32;
            (switch, dice.pick(&[10, 25, 100, 100]))
        };
        let mut ends = || std::array::from_fn(|_| end());
        let row = Row::new(&between, [ends(), ends()]);
        shares += row.check(&format!("seed {seed}"));
    }
    assert!(shares >= 18, "{shares}: hardly any bottleneck differs");
}

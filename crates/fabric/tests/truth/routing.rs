//! Adaptive routing: switches choose the path of each packet, and devices take packets in any order.

use ferroce_device::Counter;
use ferroce_fabric::topology::FatTree;
use ferroce_fabric::workload::permutation;
use ferroce_fabric::{Fault, Routing, Time, TransferId};

use crate::net::*;

/// How devices and switches spread packets over paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// A flow stays on its path; devices go back.
    Hash,
    /// Switches spread packets over devices that go back.
    Random,
    /// The same over devices that take packets in any order.
    RandomInAnyOrder,
    /// Switches know nothing of it; the source port of each packet is another.
    Entropy,
    /// Switches choose among the least loaded ports.
    Adaptive,
}

fn routed(mut net: Net, mode: Mode) -> Net {
    net.routed = !matches!(mode, Mode::Hash | Mode::Random);
    net.switch.routing = match mode {
        Mode::Hash | Mode::Entropy => Routing::Hash,
        Mode::Random | Mode::RandomInAnyOrder => Routing::Random,
        Mode::Adaptive => Routing::Adaptive,
    };
    net
}

fn sum(played: &Played, counter: Counter) -> u64 {
    let hosts = 0..played.0.fabric.topology().hosts;
    let of = |host| played.0.fabric.host(host).hca.counter(counter);
    hosts.map(of).sum()
}

/// A ring over hosts whose neighbours are at other leaves: how its time compares with the ideal one, and
/// how many packets were sent again.
fn ring(leaves: u32, spines: u32, hosts_each: u32, chunk: u32, mode: Mode) -> (f64, u64) {
    let ranks = leaves * hosts_each;
    let host = |rank: u32| rank % leaves * hosts_each + rank / leaves;
    let steps = 2 * (ranks - 1);
    let all = (0..steps).flat_map(|_| 0..ranks);
    let transfers = all.map(|rank| transfer(host(rank), host((rank + 1) % ranks), chunk));
    let id = |step: u32, rank: u32| TransferId(step * ranks + rank % ranks);
    let after = |step| (0..ranks).map(move |rank| (step, rank));
    let edges = (1..steps).flat_map(after);
    let edges = edges.map(|(step, rank)| (id(step - 1, rank + ranks - 1), id(step, rank)));
    let mut job = job();
    job.qp_per_transfer = false;
    let net = routed(Net::new(leaf_spine(leaves, spines, hosts_each, LINK)), mode);
    let played = net.play_all(transfers.collect(), edges.collect(), vec![job]);
    let step = pipeline(&packets(chunk.into(), 4_096), 4, LINK.rate, LINK.delay);
    let took = played.end().since(Time::ZERO);
    let ideal = step.times(steps.into());
    (
        ratio(ideal, took),
        sum(&played, Counter::RetransmittedPackets),
    )
}

/// Of 64 hosts behind 16 leaves with four uplinks, flows of a ring collide on the way up, and wait for each
/// other at each step.
#[test]
fn collisions_of_a_ring_vanish() {
    let ring = |mode| ring(16, 4, 4, 1 << 20, mode);
    let (hashed, again) = ring(Mode::Hash);
    assert!(hashed < 0.5 && again == 0, "{hashed} {again}");
    let (adaptive, again) = ring(Mode::Adaptive);
    assert!(adaptive > 0.98 && again == 0, "{adaptive} {again}");
    for mode in [Mode::RandomInAnyOrder, Mode::Entropy] {
        let (spread, again) = ring(mode);
        assert!(spread > 0.9 && again == 0, "{mode:?}: {spread} {again}");
    }
}

/// Devices that take each gap for a loss send most packets again.
#[test]
fn devices_that_go_back_cannot_be_spread() {
    let (spread, again) = ring(4, 4, 4, 64 << 10, Mode::Random);
    assert!(spread < 0.3 && again > 10_000, "{spread} {again}");
}

/// Two senders of a leaf that both send at full rate would stay in step if the switch took the very shortest
/// queue: each would keep an uplink of its own, and its packets collide with others' on their way down.
#[test]
fn senders_of_equal_rate_do_not_stay_in_step() {
    let hosts: Vec<u32> = (0..16).collect();
    let bytes = 4 << 20;
    let ideal = pipeline(&packets(bytes, 4_096), 6, LINK.rate, LINK.delay);
    for seed in 1..=3 {
        let tree = FatTree::k_ary(4, LINK).unwrap().build().unwrap();
        let mut net = routed(Net::new(tree), Mode::Adaptive);
        net.seed = seed;
        let workload = permutation(&hosts, bytes, Time::ZERO, seed).unwrap();
        let played = net.play(workload.transfers, job());
        let share = ratio(ideal, played.end().since(Time::ZERO));
        assert!(share > 0.9, "seed {seed}: {share}");
    }
}

/// Four flows between two leaves, and one of four spines that is ten times slower: adaptive routing keeps off
/// it, chance does not.
#[test]
fn adaptive_routing_keeps_off_a_slow_link() {
    let took = |mode| {
        let mut net = routed(Net::new(leaf_spine(2, 4, 4, LINK)), mode);
        let first_up = 8;
        net.faults = vec![(Time::ZERO, Fault::Rate(first_up, gbps(10)))];
        let transfers = (0..4).map(|host| transfer(host, host + 4, 8 << 20));
        let played = net.play(transfers.collect(), job());
        assert_eq!(played.timeouts(), 0, "{mode:?}");
        played.end().since(Time::ZERO)
    };
    let (adaptive, random) = (took(Mode::Adaptive), took(Mode::RandomInAnyOrder));
    // 310 of 400 Gb/s are left.
    let ideal = pipeline(&packets(8 << 20, 4_096), 4, LINK.rate, LINK.delay);
    assert!(ratio(adaptive, ideal) < 1.45, "{adaptive:?} {ideal:?}");
    assert!(ratio(random, ideal) > 2.0, "{random:?} {ideal:?}");
}

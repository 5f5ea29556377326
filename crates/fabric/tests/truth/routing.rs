//! Adaptive routing: switches choose the path of each packet, and devices take packets in any order.

use ferroce_device::Counter;
use ferroce_fabric::{Fault, Routing, Span, Time, TransferId};

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
    /// Switches choose the shortest queue.
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

#[test]
fn collisions_of_a_ring_vanish() {
    for mode in [Mode::Hash, Mode::Random, Mode::RandomInAnyOrder, Mode::Entropy, Mode::Adaptive] {
        println!("{mode:?} {:?}", ring(16, 4, 4, 1 << 20, mode));
    }
}

//! Requests that wait for others to leave with.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{Node, PATIENCE, address, attr, connect};
use ferroce_hca::Counter;
use ferroce_wire::Qpn;

const LEN: usize = 4096;
/// Less than the queue pair takes.
const DEEP: usize = 1000;

fn sent(node: &Node) -> u64 {
    node.device.state().counter(Counter::RdmaTxPackets)
}

/// Posts until a request waits for others, which the helper must be awake for; tells when that was, and
/// how many packets had left. `None` if none waits soon.
fn until_one_waits(a: &Node, b: &Node, qpn: Qpn) -> Option<(Instant, u64)> {
    a.device.progress();
    (0..DEEP).find_map(|_| {
        let (posted, before) = (Instant::now(), sent(a));
        a.post(qpn, 0, b.remote(0).write(), a.sge(0, 8));
        (sent(a) == before).then_some((posted, before))
    })
}

/// A program that posts and then computes need not poll for its messages to leave. How long that takes
/// depends on the machine, so it is printed: `--nocapture` shows it, with `--release` as programs have it.
#[test]
fn what_waits_leaves_without_the_program() {
    const TRIES: usize = 200;
    const SEARCH: Duration = Duration::from_secs(5);
    let a = Node::open(address(52, 1, 0), LEN);
    let b = Node::open(address(52, 1, 1), LEN);
    let (qpn, _) = connect(&a, &b, &attr());
    let started = Instant::now();
    let mut taken = Vec::new();
    // Where all cores are busy, the watch may never be awake, and nothing waits.
    while taken.len() < TRIES && started.elapsed() < SEARCH {
        if let Some((posted, before)) = until_one_waits(&a, &b, qpn) {
            while sent(&a) == before {
                assert!(posted.elapsed() < PATIENCE, "it does not leave");
                // Its core may be the only one.
                thread::yield_now();
            }
            taken.push(posted.elapsed());
        }
        drain(&a);
    }
    taken.sort_unstable();
    let at = |percent: usize| {
        taken
            .get(taken.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    let of = taken.len();
    eprintln!(
        "left after {:?} (median), {:?} (90 %) of {of}",
        at(50),
        at(90)
    );
}

/// What is still to complete.
fn drain(node: &Node) {
    let mut out = Vec::new();
    let pause = Duration::from_millis(20);
    while node.device.wait(node.cq, 64, &mut out, pause).unwrap() > 0 {}
}

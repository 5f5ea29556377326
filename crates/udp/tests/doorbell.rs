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

/// Posts until a request waits for others, which the helper must be awake for; false if none does soon.
fn until_one_waits(a: &Node, b: &Node, qpn: Qpn) -> bool {
    a.device.progress();
    (0..DEEP).any(|_| {
        let before = sent(a);
        a.post(qpn, 0, b.remote(0).write(), a.sge(0, 8));
        sent(a) == before
    })
}

/// A program that posts and then computes need not poll for its messages to leave. On a machine whose
/// cores are all busy that may take longer, and most often requests do not wait at all then.
#[test]
fn what_waits_leaves_without_the_program() {
    const WITHIN: Duration = Duration::from_micros(20);
    let a = Node::open(address(52, 1, 0), LEN);
    let b = Node::open(address(52, 1, 1), LEN);
    let (qpn, _) = connect(&a, &b, &attr());
    let (started, mut fastest) = (Instant::now(), Duration::MAX);
    while fastest > WITHIN {
        assert!(started.elapsed() < PATIENCE, "{fastest:?} at best");
        if until_one_waits(&a, &b, qpn) {
            let (posted, waiting) = (Instant::now(), sent(&a));
            while sent(&a) == waiting {
                assert!(posted.elapsed() < PATIENCE, "it does not leave");
                // Its core may be the only one.
                thread::yield_now();
            }
            fastest = fastest.min(posted.elapsed());
        }
        drain(&a);
    }
}

/// What is still to complete.
fn drain(node: &Node) {
    let mut out = Vec::new();
    let pause = Duration::from_millis(20);
    while node.device.wait(node.cq, 64, &mut out, pause).unwrap() > 0 {}
}

//! Requests that wait for others to leave with.

mod common;

use std::time::{Duration, Instant};

use common::{Node, PATIENCE, address, attr, connect};
use ferroce_driver::patience::CALL_REQUESTS;
use ferroce_hca::Counter;
use ferroce_wire::Qpn;

const LEN: usize = 4096;

fn sent(node: &Node) -> u64 {
    node.device.state().counter(Counter::RdmaTxPackets)
}

fn post(a: &Node, b: &Node, qpn: Qpn, times: u32) {
    for _ in 0..times {
        a.post(qpn, 0, b.remote(0).write(), a.sge(0, 8));
    }
}

/// Until requests wait for each other, which the helper must be awake for.
fn until_one_waits(a: &Node, b: &Node, qpn: Qpn) {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < PATIENCE, "each request leaves at once");
        a.device.progress();
        post(a, b, qpn, CALL_REQUESTS);
        let before = sent(a);
        post(a, b, qpn, 1);
        if sent(a) == before {
            return;
        }
        drain(a);
    }
}

/// A program that posts and then computes need not poll for its messages to leave.
#[test]
fn what_waits_leaves_without_the_program() {
    const WITHIN: Duration = Duration::from_micros(20);
    let a = Node::open(address(52, 1, 0), LEN);
    let b = Node::open(address(52, 1, 1), LEN);
    let (qpn, _) = connect(&a, &b, &attr());
    let (mut tries, mut fastest) = (0, Duration::MAX);
    while fastest > WITHIN {
        assert!(tries < 1000, "{fastest:?} at best");
        until_one_waits(&a, &b, qpn);
        let (posted, waiting) = (Instant::now(), sent(&a));
        while sent(&a) == waiting {
            assert!(posted.elapsed() < PATIENCE, "it does not leave");
        }
        fastest = fastest.min(posted.elapsed());
        drain(&a);
        tries += 1;
    }
}

/// What is still to complete.
fn drain(node: &Node) {
    let mut out = Vec::new();
    let pause = Duration::from_millis(20);
    while node.device.wait(node.cq, 64, &mut out, pause).unwrap() > 0 {}
}

//! Devices in two processes.

mod common;

use std::time::Instant;

use common::{
    Link, Node, Other, PATIENCE, address, attr, check_all_kinds, connect, connect_back, hear,
    impatient, impatient_attr, pattern, role, tell, total,
};
use ferroce_hca::{SendOp, WcStatus};

const LEN: usize = 1 << 20;
const HALF: usize = LEN / 2;
const ROUNDS: u64 = 20;

/// The process beside the test's own: it opens a device and then does as its role says.
fn other(role: &[String]) {
    let node = Node::open(role[1].parse().unwrap(), LEN);
    let Link { qpn, memory, .. } = connect_back(&node, &attr());
    node.post_recv(qpn, 0, 0, HALF as u32);
    tell("connected");
    match role[0].as_str() {
        // Answers each SEND with the same bytes, changed, by a WRITE with immediate.
        "echo" => {
            let mut writes = 0;
            for round in 0..ROUNDS {
                // The next message may be here before the last WRITE is acknowledged.
                let len = loop {
                    match node.succeed(1)[0] {
                        done if done.wr_id == 1 => writes += 1,
                        message => break message.byte_len as usize,
                    }
                };
                assert_eq!(node.bytes(0, len), pattern(len, round));
                node.buffer.write(HALF, &pattern(len, !round));
                node.post_recv(qpn, 0, 0, HALF as u32);
                let write = SendOp::Write {
                    va: memory.va + HALF as u64,
                    rkey: memory.rkey,
                    imm: Some(len as u32),
                };
                node.post(qpn, 1, write, node.sge(HALF, len as u32));
            }
            node.succeed(ROUNDS as usize - writes);
        }
        // Does nothing, until it is killed or its parent ends.
        "target" => while hear().is_some() {},
        other => panic!("role {other}"),
    }
}

#[test]
fn both_ways_between_processes() {
    if let Some(role) = role() {
        return other(&role);
    }
    let (own, peer) = (address(42, 0, 0), address(42, 0, 1));
    let mut child = Other::start("both_ways_between_processes", &format!("echo {peer}"));
    let node = Node::open(own, LEN);
    let qpn = child.connect(&node, &attr()).qpn;
    assert_eq!(child.hear(), "connected");
    for round in 0..ROUNDS {
        let len = 1 + (HALF - 1) * round as usize / (ROUNDS as usize - 1);
        node.buffer.write(0, &pattern(len, round));
        node.post_recv(qpn, 2, 0, 0);
        let send = SendOp::Send { imm: None };
        node.post(qpn, 1, send, node.sge(0, len as u32));
        let completions = node.succeed(2);
        let received = completions.iter().find(|c| c.wr_id == 2).unwrap();
        assert_eq!(received.imm as usize, len);
        assert_eq!(node.bytes(HALF, len), pattern(len, !round));
    }
    // The child returned from its last `wait` and ended: its last acknowledgement came all the same.
    child.finish();
}

#[test]
fn a_killed_peer_is_noticed_and_the_device_lives() {
    if let Some(role) = role() {
        return other(&role);
    }
    let peer = address(42, 1, 1);
    let test = "a_killed_peer_is_noticed_and_the_device_lives";
    let mut child = Other::start(test, &format!("target {peer}"));
    let node = Node::with_config(impatient(address(42, 1, 0)), LEN);
    let attr = impatient_attr();
    let total = total(&node.device, &attr);
    let Link { qpn, memory, .. } = child.connect(&node, &attr);
    assert_eq!(child.hear(), "connected");

    // Enough that the kill comes amid it.
    const WRITES: usize = 1000;
    let write = |id| node.post(qpn, id, memory.write(), node.sge(0, LEN as u32));
    (0..WRITES as u64).for_each(write);
    node.succeed(3);
    child.kill();
    let killed = Instant::now();
    let mut completions = Vec::new();
    while completions.len() < WRITES - 3 {
        assert!(killed.elapsed() < PATIENCE);
        completions.extend(node.completions(1));
    }
    let took = killed.elapsed();
    let failed = completions
        .iter()
        .position(|c| c.status != WcStatus::Success)
        .expect("a thousand MiB were not through yet");
    let (first, rest) = completions[failed..].split_first().unwrap();
    assert_eq!(first.status, WcStatus::RetryExcErr);
    assert_eq!(first.vendor_err, 129);
    assert!(rest.iter().all(|c| c.status == WcStatus::WrFlushErr));
    // The total, and what a busy machine adds.
    assert!(took < 10 * total, "took {took:?} of {total:?}");

    let other = Node::open(address(42, 1, 2), LEN);
    let qps = connect(&node, &other, &common::attr());
    check_all_kinds(&node, &other, qps, 100_000, 1);
}

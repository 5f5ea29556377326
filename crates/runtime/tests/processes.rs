//! Devices in two processes.

mod common;

use common::echo::{echo, exchange};
use common::{
    Link, Node, Other, address, attr, check_all_kinds, connect, connect_back, hear, impatient,
    impatient_attr, role, tell,
};
use ferroce_hca::WcStatus;

const LEN: usize = 1 << 20;

/// The process beside the test's own: it opens a device and then does as its role says.
fn other(role: &[String]) {
    let node = Node::open(role[1].parse().unwrap(), LEN);
    match role[0].as_str() {
        "echo" => echo(&node, &attr()),
        // Does nothing, until it is killed or its parent ends.
        "target" => {
            connect_back(&node, &attr());
            tell("connected");
            while hear().is_some() {}
        }
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
    exchange(&node, &mut child, &attr());
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
    let Link { qpn, memory, .. } = child.connect(&node, &attr);
    assert_eq!(child.hear(), "connected");

    // Enough that the kill comes amid it.
    const WRITES: usize = 1000;
    let write = |id| node.post(qpn, id, memory.write(), node.sge(0, LEN as u32));
    (0..WRITES as u64).for_each(write);
    node.succeed(3);
    child.kill();
    // In case all of them were through before.
    write(WRITES as u64);
    let completions = node.completions(WRITES - 3 + 1);
    let failed = completions
        .iter()
        .position(|c| c.status != WcStatus::Success)
        .expect("the last one at least");
    let (first, rest) = completions[failed..].split_first().unwrap();
    assert_eq!(first.status, WcStatus::RetryExcErr);
    assert_eq!(first.vendor_err, 129);
    assert!(rest.iter().all(|c| c.status == WcStatus::WrFlushErr));

    let other = Node::open(address(42, 1, 2), LEN);
    let qps = connect(&node, &other, &common::attr());
    check_all_kinds(&node, &other, qps, 100_000, 1);
}

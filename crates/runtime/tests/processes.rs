//! Devices in two processes.

mod common;

use common::echo::exchange;
use common::{Node, Other, address, attr, check_all_kinds, connect, impatient, impatient_attr};

const LEN: usize = 1 << 20;

#[test]
fn both_ways_between_processes() {
    let (own, peer) = (address(42, 0, 0), address(42, 0, 1));
    let mut child = Other::at(&peer.to_string(), LEN, "echo");
    let node = Node::open(own, LEN);
    exchange(&node, &mut child, &attr());
    // The child returned from its last `wait` and ended: its last acknowledgement still arrived.
    child.finish();
}

#[test]
fn a_killed_peer_is_noticed_and_the_device_lives() {
    let peer = address(42, 1, 1);
    let mut child = Other::at(&peer.to_string(), LEN, "target");
    let node = Node::with_config(impatient(address(42, 1, 0)), LEN);
    child.meet_and_die(&node, &impatient_attr(), LEN as u32, || {});

    let other = Node::open(address(42, 1, 2), LEN);
    check_all_kinds(&node, &other, connect(&node, &other, &attr()), 100_000, 1);
}

//! Two devices on loopback: real sockets, real time.

mod common;

use common::{Node, address, attr, check_both_ways, nothing_was_lost, patient, patient_attr};
use ferroce_device::{Counter, Direction};

const LEN: usize = 4 << 20;
const BYTES: usize = LEN / 2 - 64;

#[test]
fn every_operation_arrives_intact() {
    let [a, b] = [0, 1].map(|host| Node::with_config(patient(address(31, 0, host)), LEN));
    check_both_ways(&a, &b, &patient_attr(), BYTES);
    nothing_was_lost(&a);
    nothing_was_lost(&b);
}

#[test]
fn every_operation_arrives_intact_over_a_bad_link() {
    let [a, b] = [0, 1].map(|host| Node::open(address(31, 1, host), LEN));
    for node in [&a, &b] {
        let bad = "loss=1%,duplicate=1%,corrupt=0.5%,reorder=0.5%:100us,delay=20us,jitter=10us";
        node.impair(Direction::Egress, bad);
    }
    check_both_ways(&a, &b, &attr(), BYTES);
    for node in [&a, &b] {
        let state = node.device.state();
        assert!(state.counter(Counter::ImpairLost) > 0);
        assert!(state.counter(Counter::RetransmittedPackets) > 0);
    }
}

//! Which retransmissions were spurious.

use ferroce_device::{Counter, Outgoing};
use ferroce_fabric::{Fate, Standing, Topology, Workload};

use crate::net::*;

const PACKETS: u64 = 3;
const LATE: Fate = Fate::Late(100_000_000);

/// Retransmitted requests, and the spurious ones of them, if a message of several packets meets
/// `fate`.
fn repeated(fate: Fate, matches: fn(&Outgoing) -> bool) -> (u64, u64) {
    let net = Net::new(Topology::pair(LINK).unwrap());
    let workload = Workload {
        transfers: vec![transfer(0, 1, 4_096 * PACKETS as u32)],
        edges: Vec::new(),
        jobs: vec!["one".into()],
    };
    let mut kept = job();
    kept.qp_per_transfer = false;
    let mut simulation = net.simulation(workload, vec![kept]);
    simulation.fabric.rules(0).strike(1, fate, matches);
    assert_eq!(simulation.run(1_000), Ok(Standing::Over));
    simulation.fabric.audit();
    let state = simulation.fabric.host(0).hca.state();
    let repeated = state.counter(Counter::RetransmittedPackets);
    (repeated, simulation.fabric.spurious())
}

fn is_answer(packet: &Outgoing) -> bool {
    packet.headers.opcode().is_response()
}

fn is_last(packet: &Outgoing) -> bool {
    packet.headers.psn.value() == PACKETS as u32 - 1 && !is_answer(packet)
}

/// The oldest packet probes what has arrived, so besides it only the last one is retransmitted.
#[test]
fn resending_a_lost_request_is_not_spurious() {
    assert_eq!(repeated(Fate::Lost, is_last), (2, 1));
}

#[test]
fn no_resend_is_spurious_if_an_answer_was_lost() {
    let (repeated, spurious) = repeated(Fate::Lost, is_answer);
    assert!(repeated > 0);
    assert_eq!(spurious, 0);
}

#[test]
fn every_resend_is_spurious_if_the_answer_is_late() {
    let (repeated, spurious) = repeated(LATE, is_answer);
    assert!(repeated > 0);
    assert_eq!(spurious, repeated);
}

/// What is still in flight at the end counts as well.
#[test]
fn every_resend_is_spurious_if_the_request_is_late() {
    assert_eq!(repeated(LATE, is_last), (2, 2));
}

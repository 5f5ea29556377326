//! Duplicate requests: executed once, answered again.

use ferroce_transport::{AccessFlags, Counter, QpState, SendOp, SendWr};
use ferroce_wire::Opcode;

use crate::common::{A, B, Fate, Packet, Pair, Setup};

/// Repeats every packet of A with this opcode.
fn repeat(pair: &mut Pair, opcode: Opcode) {
    pair.rule(usize::MAX, Fate::Twice(0), move |p| p.opcode() == opcode);
}

fn request(pair: &Pair, opcode: Opcode) -> Packet {
    pair.log
        .iter()
        .find(|p| p.opcode() == opcode)
        .unwrap()
        .clone()
}

#[test]
fn a_repeated_send_is_received_once_and_acknowledged_again() {
    let mut pair = Setup::default().connect();
    repeat(&mut pair, Opcode::RcSendOnly);
    for wr_id in 0..3 {
        pair.recv(B, wr_id, 10);
        pair.send(A, wr_id, 10);
    }
    pair.run();
    pair.expect_sent(A, 0..3);
    pair.expect_received(B, 0..3);
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 3);
    assert_eq!(pair.count_sent(B, |_| true), 6);
}

#[test]
fn a_repeated_write_is_not_written_again() {
    let mut pair = Setup::default().connect();
    pair.write(A, 0, 10);
    pair.run();
    let old = request(&pair, Opcode::RcWriteOnly);
    let target = pair[B].remote.part(0, 10);
    pair[B].host.fill(target, b"newer data");
    pair.forge(B, old.headers, &old.payload);
    assert_eq!(pair.bytes(B, target), b"newer data");
    assert_eq!(pair.sent(B), ["ACK 0", "ACK 0"]);
}

/// The answer to a lost acknowledgement covers everything executed since.
#[test]
fn a_repeated_write_is_answered_with_the_newest_acknowledgement() {
    let mut pair = Setup::default().connect();
    for wr_id in 0..5 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    let old = request(&pair, Opcode::RcWriteOnly);
    pair.forge(B, old.headers, &old.payload);
    assert_eq!(pair.sent(B).last().unwrap(), "ACK 4");
}

/// The answer does not extend across a READ, whose response may be the missing one.
#[test]
fn the_answer_to_a_repeated_write_stops_before_a_read() {
    let mut pair = Setup::default().connect();
    pair.write(A, 0, 10);
    pair.write(A, 1, 10);
    pair.read(A, 2, 10);
    pair.write(A, 3, 10);
    pair.run();
    let old = request(&pair, Opcode::RcWriteOnly);
    pair.forge(B, old.headers, &old.payload);
    assert_eq!(pair.sent(B).last().unwrap(), "ACK 1");
}

#[test]
fn a_repeated_read_is_executed_again() {
    let mut pair = Setup::default().connect();
    pair.read(A, 0, 10);
    pair.run();
    let old = request(&pair, Opcode::RcReadRequest);
    let source = pair[B].remote.part(0, 10);
    pair[B].host.fill(source, b"newer data");
    pair.forge(B, old.headers, &[]);
    assert_eq!(pair.log.last().unwrap().payload, b"newer data");
    pair.run();
    assert_ne!(pair.bytes(A, pair[A].local.part(0, 10)), b"newer data");
}

#[test]
fn a_repeated_read_of_a_part_is_answered_with_that_part() {
    let mut pair = Setup::default().connect();
    pair.read(A, 0, 5000);
    pair.run();
    let mut part = request(&pair, Opcode::RcReadRequest).headers;
    part.psn = part.psn.wrapping_add(3);
    let reth = part.reth_mut().unwrap();
    reth.va += 3 * 1024;
    reth.length -= 3 * 1024;
    pair.log.clear();
    pair.forge(B, part, &[]);
    assert_eq!(
        pair.sent(B),
        ["RDMA READ response first 3", "RDMA READ response last 4"]
    );
}

#[test]
fn a_repeated_read_beyond_the_original_is_dropped() {
    let mut pair = Setup::default().connect();
    pair.read(A, 0, 5000);
    pair.run();
    let mut forged = request(&pair, Opcode::RcReadRequest).headers;
    let before = pair.log.len();
    forged.psn = forged.psn.next();
    pair.forge(B, forged, &[]);
    forged.reth_mut().unwrap().length = u32::MAX;
    pair.forge(B, forged, &[]);
    assert_eq!(pair.log.len(), before);
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 2);
}

/// The region may have been deregistered since, and the packet may be very late.
#[test]
fn a_repeated_read_of_closed_memory_is_dropped() {
    let mut pair = Setup::default().connect();
    pair.read(A, 0, 10);
    pair.run();
    let old = request(&pair, Opcode::RcReadRequest);
    let before = pair.log.len();
    let remote = pair[B].remote;
    pair[B].host.deregister(remote);
    pair.forge(B, old.headers, &[]);
    assert_eq!(pair.log.len(), before);
    assert_eq!(pair[B].qp.state(), QpState::Rts);
}

#[test]
fn a_repeated_atomic_runs_once_and_returns_the_same_value() {
    let mut pair = Setup::default().connect();
    let word = pair[B].remote.part(0, 8);
    pair[B].host.fill(word, &40_u64.to_ne_bytes());
    pair.fetch_add(A, 0, 2);
    pair.run();
    let old = request(&pair, Opcode::RcFetchAdd);
    for _ in 0..1000 {
        pair.forge(B, old.headers, &[]);
        assert_eq!(pair.log.last().unwrap().headers.atomic_ack(), Some(40));
    }
    assert_eq!(pair[B].host.atomics, 1);
    assert_eq!(pair.bytes(B, word), 42_u64.to_ne_bytes());
    pair.run();
    pair.expect_sent(A, [0]);
}

#[test]
fn every_lost_atomic_response_is_replayed_exactly() {
    let mut pair = Setup::default().connect();
    // The first four, and after each timeout the one that is requested again.
    pair.rule(8, Fate::Lost, |p| p.opcode() == Opcode::RcAtomicAcknowledge);
    let word = pair[B].remote.part(0, 8);
    pair[B].host.fill(word, &0_u64.to_ne_bytes());
    let (va, rkey) = pair.target(A);
    for index in 0..10 {
        let sge = pair[A].local.part(8 * index, 8);
        pair.post(
            A,
            SendWr::new(index.into(), SendOp::FetchAdd { va, rkey, add: 1 }, sge),
        );
    }
    pair.run();
    pair.expect_sent(A, 0..10);
    for index in 0..10 {
        let found = pair.bytes(A, pair[A].local.part(8 * index, 8));
        assert_eq!(found, u64::from(index).to_ne_bytes());
    }
    assert_eq!(pair[B].host.atomics, 10);
}

#[test]
fn a_repeated_atomic_that_was_forgotten_is_dropped() {
    let mut pair = Setup {
        rd_atomic: 2,
        dest_rd_atomic: 2,
        ..Setup::default()
    }
    .connect();
    for wr_id in 0..3 {
        pair.fetch_add(A, wr_id, 1);
    }
    pair.run();
    let first = request(&pair, Opcode::RcFetchAdd);
    let before = pair.log.len();
    pair.forge(B, first.headers, &[]);
    assert_eq!(pair.log.len(), before, "only two are remembered");
    assert_eq!(pair[B].host.atomics, 3);
    assert_eq!(pair[B].qp.state(), QpState::Rts);
}

/// A READ that is repeated while its answer is still on its way out.
#[test]
fn a_repeated_read_that_waits_is_answered_once() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    pair.read(A, 0, 3000);
    pair.transmit();
    let read = request(&pair, Opcode::RcReadRequest);
    for _ in 0..50 {
        pair.deliver(B, &read.headers, &[]);
    }
    pair.transmit();
    assert_eq!(pair.count_sent(B, |_| true), 3);
}

/// What is still to be sent covers the part that is requested again.
#[test]
fn a_part_of_a_read_under_way_is_not_sent_twice() {
    let mut pair = Setup {
        gap_ns: 10_000,
        ..Setup::default()
    }
    .connect();
    pair.read(A, 0, 5000);
    pair.run_for(5_000);
    assert_eq!(pair.sent(B).len(), 1);
    let mut part = request(&pair, Opcode::RcReadRequest).headers;
    part.psn = part.psn.wrapping_add(3);
    let reth = part.reth_mut().unwrap();
    reth.va += 3 * 1024;
    reth.length -= 3 * 1024;
    pair.forge(B, part, &[]);
    pair.run();
    assert_eq!(pair.sent(B).len(), 5);
    pair.expect_sent(A, [0]);
}

/// An old READ arrives again while newer answers wait: none of them may be forgotten, and none
/// may come out of order.
#[test]
fn a_repeated_answer_displaces_no_other() {
    let mut pair = Setup {
        timeout: 0,
        ..Setup::default()
    }
    .connect();
    pair.read(A, 0, 10);
    pair.run();
    let old = request(&pair, Opcode::RcReadRequest);
    pair.silence(A);
    pair.write(A, 1, 10);
    pair.read(A, 2, 10);
    pair.write(A, 3, 10);
    pair.log.clear();
    pair.transmit();
    for packet in pair.log.clone() {
        pair.deliver(B, &packet.headers, &packet.payload);
    }
    pair.deliver(B, &old.headers, &[]);
    pair.transmit();
    assert_eq!(
        pair.sent(B),
        [
            "RDMA READ response only 0",
            "ACK 1",
            "RDMA READ response only 2",
            "ACK 3"
        ]
    );
    pair.run();
    pair.expect_sent(A, 0..4);
}

/// A READ in progress is interrupted by a repeated older one. It starts again, or the peer that
/// went back would miss its beginning.
#[test]
fn a_read_under_way_begins_again_after_an_older_one() {
    let mut pair = Setup {
        gap_ns: 10_000,
        ..Setup::default()
    }
    .connect();
    pair.read(A, 0, 10);
    pair.run();
    let old = request(&pair, Opcode::RcReadRequest);
    pair.read(A, 1, 5000);
    pair.log.clear();
    pair.run_for(25_000);
    assert_eq!(pair.sent(B).len(), 3);
    pair.forge(B, old.headers, &[]);
    pair.run();
    assert_eq!(
        pair.sent(B)[3..5],
        ["RDMA READ response only 0", "RDMA READ response first 1"]
    );
    assert_eq!(pair.sent(B).len(), 9);
    pair.expect_sent(A, [0, 1]);
    assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 0);
}

/// A flood of duplicates must not fill memory while the link is busy.
#[test]
fn duplicates_do_not_pile_up() {
    let mut pair = Setup::default().connect();
    for wr_id in 0..4 {
        pair.read(A, wr_id, 10_000);
        pair.write(A, 10 + wr_id, 10);
    }
    pair.run();
    let requests: Vec<_> = pair.log.iter().filter(|p| p.from == A).cloned().collect();
    for round in 0..1000 {
        for p in &requests {
            let mut headers = p.headers;
            if let Some(reth) = headers.reth_mut()
                && p.opcode() == Opcode::RcReadRequest
            {
                // Parts of the READ, each a bit later.
                reth.length = 1024;
                headers.psn = headers.psn.wrapping_add(round % 9);
            }
            pair.deliver(B, &headers, &p.payload);
        }
    }
    pair.log.clear();
    pair.transmit();
    let limit = usize::from(pair.attr(B).max_dest_rd_atomic);
    let reads = pair.count_sent(B, |p| p.opcode().is_read_response());
    assert_eq!(reads, limit);
    assert!(
        pair.log.len() <= 2 * limit + 1,
        "{} answers",
        pair.log.len()
    );
    assert_eq!(pair[B].qp.state(), QpState::Rts);
}

#[test]
fn a_repeated_send_with_invalidate_closes_the_key_once() {
    let mut pair = Setup::default().connect();
    repeat(&mut pair, Opcode::RcSendOnlyInvalidate);
    let rkey = pair[B].host.register(8, AccessFlags::all()).key;
    pair.recv(B, 0, 10);
    pair.op(A, 0, SendOp::SendInvalidate { rkey }, 10);
    pair.run();
    pair.expect_sent(A, [0]);
    pair.expect_received(B, [0]);
    assert_eq!(pair[B].qp.state(), QpState::Rts);
}

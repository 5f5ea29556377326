//! Limits on outstanding READs and atomics, on both sides.

use ferroce_transport::{Counter, QpState, SendOp, WcStatus};
use ferroce_wire::Opcode;

use crate::common::{A, B, Fate, Pair, Setup};

fn pair(rd_atomic: u8, dest_rd_atomic: u8) -> Pair {
    Setup {
        rd_atomic,
        dest_rd_atomic,
        ..Setup::default()
    }
    .connect()
}

#[test]
fn no_more_than_max_rd_atomic_are_outstanding() {
    for limit in 1..=16 {
        let mut pair = pair(limit, 16);
        pair.rule(usize::MAX, Fate::Late(100_000), |p| p.from == B);
        for wr_id in 0..20 {
            if wr_id % 2 == 0 {
                pair.read(A, wr_id, 10);
            } else {
                pair.fetch_add(A, wr_id, 1);
            }
        }
        pair.transmit();
        assert_eq!(pair.count_sent(A, |_| true), usize::from(limit));
        pair.run();
        pair.expect_sent(A, 0..20);
        assert_eq!(pair.count(A, Counter::RetransmittedPackets), 0);
    }
}

#[test]
fn requests_behind_a_fenced_read_wait() {
    let mut pair = pair(1, 1);
    pair.read(A, 0, 10);
    pair.read(A, 1, 10);
    pair.write(A, 2, 10);
    pair.transmit();
    assert_eq!(pair.sent(A), ["RDMA READ request 0"]);
    pair.run();
    pair.expect_sent(A, 0..3);
}

#[test]
fn more_than_max_dest_rd_atomic_are_an_invalid_request() {
    let mut pair = pair(3, 2);
    pair.silence(A);
    for wr_id in 0..3 {
        pair.read(A, wr_id, 10);
    }
    pair.transmit();
    for packet in pair.log.clone() {
        pair.deliver(B, &packet.headers, &[]);
    }
    pair.run_for(10_000);
    assert_eq!(
        pair.sent(B),
        [
            "RDMA READ response only 0",
            "RDMA READ response only 1",
            "NAK invalid 2"
        ]
    );
    use WcStatus::*;
    assert_eq!(
        pair.sends(A),
        [(0, Success), (1, Success), (2, RemInvReqErr)]
    );
}

/// A resource is free again once its answer is sent, even if that answer is requested again.
#[test]
fn answers_to_duplicates_take_no_resource() {
    let mut pair = pair(1, 1);
    pair.read(A, 0, 10);
    pair.run();
    let old = pair.log[0].headers;
    pair.read(A, 1, 10);
    pair.silence(A);
    pair.transmit();
    let new = pair.log.last().unwrap().headers;
    pair.deliver(B, &old, &[]);
    pair.forge(B, new, &[]);
    assert_eq!(pair[B].qp.state(), QpState::Rts);
    pair.run_for(10_000);
    pair.expect_sent(A, [0, 1]);
}

/// An answer that is requested again before it is sent keeps its resource.
#[test]
fn a_duplicate_does_not_free_the_resource_of_a_pending_response() {
    let mut pair = Setup {
        rd_atomic: 2,
        dest_rd_atomic: 1,
        gap_ns: 10_000,
        ..Setup::default()
    }
    .connect();
    pair.read(A, 0, 5000);
    pair.run_for(25_000);
    assert_eq!(pair.sent(B).len(), 3);
    let old = pair.log[0].headers;
    pair.forge(B, old, &[]);
    let mut new = old;
    new.psn = pair[B].qp.expected_psn();
    pair.forge(B, new, &[]);
    assert_eq!(pair[B].qp.state(), QpState::Err);
}

#[test]
fn a_requester_without_resources_cannot_read() {
    let mut pair = pair(0, 4);
    pair.write(A, 0, 10);
    pair.read(A, 1, 10);
    pair.write(A, 2, 10);
    pair.run();
    use WcStatus::*;
    assert_eq!(
        pair.sends(A),
        [(0, Success), (1, LocQpOpErr), (2, WrFlushErr)]
    );
    assert_eq!(
        pair.count_sent(A, |p| p.opcode() == Opcode::RcReadRequest),
        0
    );
}

#[test]
fn a_responder_without_resources_refuses_reads_and_atomics() {
    for read in [true, false] {
        let mut pair = pair(4, 0);
        if read {
            pair.read(A, 0, 10);
        } else {
            pair.fetch_add(A, 0, 1);
        }
        pair.run();
        assert_eq!(pair.sends(A), [(0, WcStatus::RemInvReqErr)]);
        assert_eq!(pair[B].host.atomics, 0);
    }
}

#[test]
fn an_atomic_needs_exactly_8_bytes() {
    for len in [0, 4, 16] {
        let mut pair = pair(4, 4);
        let (va, rkey) = pair.target(A);
        pair.op(A, 0, SendOp::FetchAdd { va, rkey, add: 1 }, len);
        pair.run();
        assert_eq!(pair.sends(A), [(0, WcStatus::LocLenErr)]);
        assert!(pair.log.is_empty());
    }
}

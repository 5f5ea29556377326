//! Lost packets: sequence NAKs, implied NAKs, go-back-N.

use ferroce_transport::{Counter, QpState, WcStatus};
use ferroce_wire::{NakCode, Opcode, Syndrome};

use crate::common::{A, B, Fate, Packet, Pair, Setup};

#[test]
fn a_gap_causes_one_nak_and_a_resend_from_the_missing_packet() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(1, A, true, 2);
    for wr_id in 0..6 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    let sent: Vec<_> = [0, 1, 2, 3, 4, 5, 2, 3, 4, 5]
        .map(|psn| format!("RDMA WRITE only {psn}"))
        .into();
    assert_eq!(pair.sent(A), sent);
    assert_eq!(
        pair.sent(B),
        [
            "ACK 0",
            "ACK 1",
            "NAK sequence 2",
            "ACK 2",
            "ACK 3",
            "ACK 4",
            "ACK 5"
        ]
    );
    pair.expect_sent(A, 0..6);
    assert_eq!(pair.count(A, Counter::PacketSeqErr), 1);
    assert_eq!(pair.count(B, Counter::OutOfSequence), 3);
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 4);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
}

#[test]
fn each_gap_is_reported() {
    let mut pair = Setup::default().connect();
    for lost in [1, 5, 9] {
        pair.lose_psn(1, A, true, lost);
        for _ in 0..4 {
            pair.write(A, 0, 10);
        }
        pair.run();
    }
    pair.expect_sent(A, [0; 12]);
    assert_eq!(pair.count(A, Counter::PacketSeqErr), 3);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
}

#[test]
fn a_nak_acknowledges_what_came_before() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(1, A, true, 2);
    pair.rule(usize::MAX, Fate::Lost, |p| {
        p.from == B
            && p.headers
                .aeth()
                .is_some_and(|a| matches!(a.syndrome, Syndrome::Ack { .. }))
    });
    for wr_id in 0..4 {
        pair.write(A, wr_id, 10);
    }
    pair.run_for(100_000);
    pair.expect_sent(A, [0, 1]);
    pair.heal();
    pair.run();
    pair.expect_sent(A, [2, 3]);
}

#[test]
fn a_lost_tail_waits_for_the_timer() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(1, A, true, 1);
    pair.write(A, 0, 10);
    pair.write(A, 1, 10);
    let start = pair.now;
    pair.run();
    pair.expect_sent(A, [0, 1]);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
    assert!(pair.now.since(start).as_nanos() > 268_000_000);
}

fn lose_response(index: u32) -> Pair {
    let mut pair = Setup::default().connect();
    pair.lose_psn(1, B, false, index);
    pair.read(A, 1, 4500);
    pair.run();
    pair.expect_sent(A, [1]);
    pair.expect_same(4500);
    pair
}

/// The second READ request: PSN, offset, length.
fn second_request(pair: &Pair) -> (u32, u64, u32) {
    let second = pair
        .log
        .iter()
        .filter(|p| p.opcode() == Opcode::RcReadRequest)
        .nth(1)
        .unwrap();
    let reth = second.headers.reth().unwrap();
    let psn = second.headers.psn.since(pair.attr(A).sq_psn);
    (psn, reth.va - pair.target(A).0, reth.length)
}

#[test]
fn the_first_response_of_a_read_is_lost() {
    let pair = lose_response(0);
    assert_eq!(second_request(&pair), (0, 0, 4500));
    assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 1);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 1);
}

#[test]
fn a_lost_middle_read_response_is_requested_again_with_the_rest() {
    let pair = lose_response(2);
    assert_eq!(second_request(&pair), (2, 2048, 4500 - 2048));
    assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 1);
    assert_eq!(
        pair.sent(B)[5..],
        [
            "RDMA READ response first 2",
            "RDMA READ response middle 3",
            "RDMA READ response last 4"
        ]
    );
}

#[test]
fn the_last_response_of_a_read_is_lost() {
    let pair = lose_response(4);
    assert_eq!(second_request(&pair), (4, 4096, 404));
    assert_eq!(pair.sent(B)[5..], ["RDMA READ response only 4"]);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
}

#[test]
fn a_later_acknowledgement_reveals_a_lost_response() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(1, B, false, 0);
    pair.read(A, 1, 10);
    pair.write(A, 2, 10);
    pair.fetch_add(A, 3, 1);
    pair.run();
    pair.expect_sent(A, [1, 2, 3]);
    assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 1);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    assert_eq!(pair[B].host.atomics, 1);
}

/// A long READ is requested in pieces. A piece that is requested again must end where it ended
/// before, or the responder would not recognise it.
#[test]
fn pieces_of_a_long_read_keep_their_ends() {
    for lost in 0..20 {
        let mut pair = Setup {
            window_bytes: 8 << 10,
            ..Setup::default()
        }
        .connect();
        pair.lose_psn(2, B, false, lost);
        pair.read(A, 1, 20_000);
        pair.run();
        pair.expect_sent(A, [1]);
        pair.expect_same(20_000);
        for p in pair
            .log
            .iter()
            .filter(|p| p.opcode() == Opcode::RcReadRequest)
        {
            let reth = p.headers.reth().unwrap();
            let end = reth.va - pair.target(A).0 + u64::from(reth.length);
            assert!(
                end == 20_000 || end.is_multiple_of(4096),
                "a piece ends at {end}"
            );
        }
    }
}

#[test]
fn a_response_gap_is_acted_on_again_only_after_a_timeout() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(3, B, false, 0);
    pair.read(A, 1, 4000);
    pair.run();
    pair.expect_sent(A, [1]);
    assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 2);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
}

/// A pair whose A has sent three WRITEs without an answer, and a NAK for the first.
fn naked() -> (Pair, Packet) {
    let mut pair = Setup::default().connect();
    pair.write(A, 0, 10);
    pair.lose_psn(1, A, true, 0);
    pair.write(A, 1, 10);
    pair.write(A, 2, 10);
    pair.run_for(1_500);
    let nak = pair.log.iter().find(|p| p.from == B).unwrap().clone();
    assert_eq!(
        nak.headers.aeth().unwrap().syndrome,
        Syndrome::Nak(NakCode::SequenceError)
    );
    pair.silence(A).silence(B);
    (pair, nak)
}

#[test]
fn sequence_naks_without_progress_use_up_the_retries() {
    let (mut pair, nak) = naked();
    for _ in 0..7 {
        assert_eq!(pair[A].qp.state(), QpState::Rts);
        pair.forge(A, nak.headers, &[]);
    }
    pair.forge(A, nak.headers, &[]);
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(
        pair.sends(A),
        [(0, WcStatus::RetryExcErr), (1, flushed), (2, flushed)]
    );
    assert_eq!(pair.count(A, Counter::ReqTransportRetriesExceeded), 1);
}

/// Progress in the same NAK counts first: the NAK may use the retries that it restores.
#[test]
fn a_nak_with_progress_never_exhausts_the_retries() {
    let (mut pair, nak) = naked();
    for _ in 0..7 {
        pair.forge(A, nak.headers, &[]);
    }
    let mut progress = nak.headers;
    progress.psn = nak.headers.psn.next();
    pair.forge(A, progress, &[]);
    assert_eq!(pair[A].qp.state(), QpState::Rts);
    assert_eq!(pair[A].qp.retry().retries_left(), 6);
    pair.expect_sent(A, [0]);
}

#[test]
fn without_retries_the_first_nak_is_fatal() {
    let mut pair = Setup {
        retry_cnt: 0,
        ..Setup::default()
    }
    .connect();
    pair.lose_psn(1, A, true, 0);
    pair.write(A, 0, 10);
    pair.write(A, 1, 10);
    pair.run();
    assert_eq!(pair.sends(A)[0], (0, WcStatus::RetryExcErr));
}

#[test]
fn packets_acknowledged_meanwhile_are_not_resent() {
    let mut pair = Setup {
        gap_ns: 10_000,
        ..Setup::default()
    }
    .connect();
    // The acknowledgements are late; the timer expires and A goes back.
    pair.rule(10, Fate::Late(300_000_000), |p| p.from == B);
    for wr_id in 0..10 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    pair.expect_sent(A, 0..10);
    // The old acknowledgements arrive by the second packet of the second round.
    let again = pair.count(A, Counter::RetransmittedPackets);
    assert!(again < 40, "{again}");
    assert_eq!(pair.count(B, Counter::DuplicateRequest), again);
}

#[test]
fn a_resent_packet_that_is_lost_again_waits_for_the_timer() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(2, A, true, 0);
    pair.write(A, 0, 10);
    pair.write(A, 1, 10);
    pair.run();
    pair.expect_sent(A, [0, 1]);
    // The responder sends its NAK only once.
    let naks = pair.count_sent(B, |p| {
        p.headers.aeth().unwrap().syndrome == Syndrome::Nak(NakCode::SequenceError)
    });
    assert_eq!((naks, pair.count(A, Counter::LocalAckTimeoutErr)), (1, 1));
}

#[test]
fn reordered_requests_are_taken_for_lost() {
    let mut pair = Setup::default().connect();
    pair.rule(1, Fate::Late(5_000), |p| p.from == A);
    for wr_id in 0..3 {
        pair.write(A, wr_id, 1000);
    }
    pair.run();
    pair.expect_sent(A, 0..3);
    assert_eq!(pair.count(A, Counter::PacketSeqErr), 1);
}

//! After a timeout the oldest packet is sent first, and the rest depending on the answer.

use ferroce_transport::{Attr, Counter, QpAttr, QpModify, QpState};

use crate::common::{A, B, Fate, Pair, Setup};

/// The timeout of these pairs, which does not grow.
const TIMEOUT_NS: u64 = 268_435_456;

/// A WRITE of three packets, a SEND and an atomic, while nothing of one side arrives.
fn mixed(silent: crate::common::Id) -> Pair {
    let mut pair = Setup::default().connect();
    for wr_id in [2, 4] {
        pair.recv(B, wr_id, 10); // credit for both messages
    }
    pair.silence(silent);
    pair.write(A, 1, 3000);
    pair.send(A, 2, 10);
    pair.fetch_add(A, 3, 1);
    pair.run_for(TIMEOUT_NS / 2);
    pair.heal();
    pair.log.clear();
    pair.run();
    pair.expect_sent(A, 1..4);
    pair.expect_received(B, [2]);
    assert_eq!(pair[B].host.atomics, 1);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
    pair
}

#[test]
fn if_nothing_has_arrived_the_rest_follows_at_once() {
    let pair = mixed(A);
    assert_eq!(
        pair.sent(A),
        [
            "RDMA WRITE first 0",
            "RDMA WRITE middle 1",
            "RDMA WRITE last 2",
            "SEND only 3",
            "fetch and add 4"
        ]
    );
    // The rest leaves in one batch when the first packet is acknowledged.
    let at: Vec<u64> = pair
        .log
        .iter()
        .filter(|p| p.from == A)
        .map(|p| p.at.as_nanos())
        .collect();
    assert_eq!(at[1] - at[0], 2_000);
    assert_eq!(at[1..], [at[1]; 4]);
    assert_eq!(pair.sent(B)[0], "ACK 0");
}

/// The acknowledgement covers everything except the atomic, whose response is requested again.
#[test]
fn if_everything_has_arrived_nothing_follows() {
    let pair = mixed(B);
    assert_eq!(pair.sent(A), ["RDMA WRITE first 0", "fetch and add 4"]);
    assert_eq!(pair.sent(B), ["ACK 3", "atomic acknowledge 4"]);
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 2);
}

#[test]
fn if_the_end_is_missing_only_the_end_follows() {
    let mut pair = Setup::default().connect();
    pair.silence(B);
    for lost in 4..7 {
        pair.lose_psn(1, A, true, lost);
    }
    for wr_id in 0..7 {
        pair.write(A, wr_id, 10);
    }
    pair.run_for(TIMEOUT_NS / 2);
    pair.heal();
    pair.log.clear();
    pair.run();
    pair.expect_sent(A, 0..7);
    let sent = [0, 4, 5, 6].map(|psn| format!("RDMA WRITE only {psn}"));
    assert_eq!(pair.sent(A), sent);
    assert_eq!(pair.sent(B), ["ACK 3", "ACK 4", "ACK 5", "ACK 6"]);
}

/// Each of these packets requests an answer, so the late answer to the first one looks like an
/// answer to its repetition. A new packet shows the difference.
#[test]
fn late_answers_that_come_one_by_one_repeat_nothing_else() {
    let mut pair = Setup::default().connect();
    for n in 1..5 {
        let late = TIMEOUT_NS + 20_000 * n;
        pair.rule(1, Fate::Late(late), |p| p.from == B);
    }
    // The answer to the repetition comes after them, and the answer to the new packet last.
    for late in [100_000, 120_000] {
        pair.rule(1, Fate::Late(late), |p| p.from == B);
    }
    for wr_id in 0..4 {
        pair.write(A, wr_id, 10);
    }
    pair.run_for(TIMEOUT_NS + 10_000);
    for wr_id in 4..6 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    pair.expect_sent(A, 0..6);
    let sent = [0, 1, 2, 3, 0, 4, 5].map(|psn| format!("RDMA WRITE only {psn}"));
    assert_eq!(pair.sent(A), sent);
    assert_eq!(pair.count(A, Counter::SpuriousRetransmissions), 1);
}

/// A WRITE was sent without any answer, and requests posted since then wait.
fn posted_meanwhile() -> Pair {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    for wr_id in 0..3 {
        pair.write(A, wr_id, 10);
    }
    pair.run_for(TIMEOUT_NS / 2 * 3);
    pair.heal();
    pair.log.clear();
    for wr_id in 3..5 {
        pair.write(A, wr_id, 10);
    }
    pair
}

/// The peer lacks the packets before the new one, and sends a NAK.
#[test]
fn a_new_packet_reveals_the_missing_ones() {
    let mut pair = posted_meanwhile();
    pair.run();
    pair.expect_sent(A, 0..5);
    let sent = [0, 3, 1, 2, 3, 4].map(|psn| format!("RDMA WRITE only {psn}"));
    assert_eq!(pair.sent(A), sent);
    assert_eq!(pair.sent(B)[..2], ["ACK 0", "NAK sequence 1"]);
}

/// Without a timer, the loss of the new packet would not be noticed.
#[test]
fn skipped_packets_leave_before_a_timer_is_switched_off() {
    let mut pair = posted_meanwhile();
    pair.lose_psn(1, A, true, 3);
    pair.run_for(TIMEOUT_NS / 2 + 100_000);
    assert_eq!(pair.sent(A).len(), 2);
    let attr = QpAttr {
        timeout: 0,
        ..pair.attr(A)
    };
    pair.move_to(A, QpState::Sqd);
    pair.modify(A, &QpModify::to(QpState::Sqd, Attr::TIMEOUT, attr));
    pair.run();
    pair.move_to(A, QpState::Rts);
    pair.run();
    pair.expect_sent(A, 0..5);
}

/// A NAK proves a loss: everything from the missing packet on is sent again at once.
#[test]
fn a_nak_needs_no_probe() {
    let mut pair = Setup::default().connect();
    pair.rule(1, Fate::Late(TIMEOUT_NS - 1_500), |p| p.from == B);
    pair.lose_psn(1, A, true, 0);
    for wr_id in 0..5 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    pair.expect_sent(A, 0..5);
    let sent = [0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 4].map(|psn| format!("RDMA WRITE only {psn}"));
    assert_eq!(pair.sent(A), sent);
}

/// One READ request stands for all of its responses.
#[test]
fn a_read_is_asked_for_again_before_what_follows_it() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    pair.read(A, 1, 3000);
    pair.read(A, 2, 10);
    pair.write(A, 3, 10);
    pair.run_for(TIMEOUT_NS / 2);
    pair.heal();
    pair.log.clear();
    pair.run();
    pair.expect_sent(A, 1..4);
    assert_eq!(
        pair.sent(A),
        [
            "RDMA READ request 0",
            "RDMA READ request 3",
            "RDMA WRITE only 4"
        ]
    );
    let answered = pair
        .log
        .iter()
        .position(|p| p.headers.psn == pair.attr(A).sq_psn.wrapping_add(2));
    let next = pair.log.iter().rposition(|p| p.from == A);
    assert!(
        answered < next,
        "the second request waits for all responses to the first one"
    );
}

#[test]
fn requests_posted_meanwhile_wait_for_the_answer() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    pair.write(A, 0, 10);
    pair.run_for(TIMEOUT_NS / 2 * 3);
    for wr_id in 1..4 {
        pair.write(A, wr_id, 10);
    }
    pair.transmit();
    let alone = ["RDMA WRITE only 0", "RDMA WRITE only 0"];
    assert_eq!(pair.sent(A), alone);
    pair.heal();
    pair.run();
    pair.expect_sent(A, 0..4);
}

/// Without a timer, the loss of a probe would not be noticed.
#[test]
fn a_queue_pair_that_loses_its_timer_sends_everything() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    for wr_id in 0..4 {
        pair.write(A, wr_id, 10);
    }
    pair.run_for(TIMEOUT_NS / 2 * 3);
    pair.heal();
    let attr = QpAttr {
        timeout: 0,
        ..pair.attr(A)
    };
    pair.move_to(A, QpState::Sqd);
    pair.modify(A, &QpModify::to(QpState::Sqd, Attr::TIMEOUT, attr));
    // The first of them reveals that the probe is missing.
    pair.run();
    pair.expect_sent(A, 0..4);
}

#[test]
fn a_receiver_that_is_not_ready_is_alive() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    for wr_id in 0..3 {
        pair.send(A, wr_id, 10);
    }
    pair.run_for(TIMEOUT_NS / 2);
    pair.heal();
    pair.log.clear();
    pair.run_for(TIMEOUT_NS / 2 + 1_500);
    assert_eq!(pair.sent(A), ["SEND only 0"]);
    for wr_id in 0..3 {
        pair.recv(B, wr_id, 10);
    }
    pair.run();
    pair.expect_sent(A, 0..3);
    let sent = [0, 0, 1, 2].map(|psn| format!("SEND only {psn}"));
    assert_eq!(pair.sent(A), sent);
}

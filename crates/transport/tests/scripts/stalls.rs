//! A machine whose threads get no processor for a while: which side caused a retransmission, and
//! how many there are.

use ferroce_transport::Counter;

use crate::common::{A, B, Fate, Pair, Setup};

/// The timeout of these pairs, which does not grow.
const TIMEOUT_NS: u64 = 268_435_456;

/// Spurious retransmissions that the two ends know of: A as the requester, B as the responder.
fn for_nothing(pair: &Pair) -> [u64; 2] {
    [
        pair.count(A, Counter::SpuriousRetransmissions),
        pair.count(B, Counter::EarlyDuplicateRequest),
    ]
}

fn timeouts(pair: &Pair) -> u64 {
    pair.count(A, Counter::LocalAckTimeoutErr)
}

/// Runs until every request has completed, in order, and checks the bytes.
fn finish(pair: &mut Pair, wr_ids: impl IntoIterator<Item = u64>) {
    pair.run();
    pair.expect_sent(A, wr_ids);
}

#[test]
fn resends_after_a_lost_write_or_ack_are_not_spurious() {
    for from in [A, B] {
        let mut pair = Setup::default().connect();
        pair.rule(1, Fate::Lost, move |p| p.from == from);
        pair.write(A, 1, 10);
        finish(&mut pair, [1]);
        assert_eq!((timeouts(&pair), for_nothing(&pair)), (1, [0, 0]));
    }
}

#[test]
fn resends_after_a_lost_read_response_are_not_spurious() {
    let mut pair = Setup::default().connect();
    pair.rule(1, Fate::Lost, |p| p.from == B);
    pair.read(A, 1, 10);
    pair.write(A, 2, 10);
    finish(&mut pair, [1, 2]);
    assert_eq!(for_nothing(&pair), [0, 0]);
}

/// The answer was only late, so both copies are answered, and the requester notices.
#[test]
fn an_answer_that_is_late_shows_the_requester_that_it_was_early() {
    for read in [false, true] {
        let mut pair = Setup::default().connect();
        pair.rule(1, Fate::Late(TIMEOUT_NS / 2 * 3), |p| p.from == B);
        match read {
            true => pair.read(A, 1, 10),
            false => pair.write(A, 1, 10),
        }
        finish(&mut pair, [1]);
        assert_eq!((timeouts(&pair), for_nothing(&pair)), (1, [1, 0]));
    }
}

/// Each repetition of the same packet is counted once.
#[test]
fn each_repetition_counts_once() {
    let mut pair = Setup::default().connect();
    pair.rule(1, Fate::Late(TIMEOUT_NS / 2 * 7), |p| p.from == A);
    pair.rule(3, Fate::Late(TIMEOUT_NS * 5), |p| p.from == B);
    pair.write(A, 1, 10);
    finish(&mut pair, [1]);
    // Three repetitions have overtaken the packet. Of the four answers, which are later still, one
    // was needed.
    assert_eq!(pair.count(B, Counter::DuplicateRequest), timeouts(&pair));
    assert_eq!(for_nothing(&pair), [timeouts(&pair), 0]);
}

/// Answers to later requests do not count an earlier repetition.
#[test]
fn later_answers_say_nothing_about_old_repeats() {
    let mut pair = Setup::default().connect();
    pair.rule(1, Fate::Lost, |p| p.from == B);
    pair.write(A, 1, 10);
    pair.write(A, 2, 10);
    finish(&mut pair, [1, 2]);
    pair.write(A, 3, 10);
    finish(&mut pair, [3]);
    let acknowledgement = pair.log.last().unwrap().clone();
    for _ in 0..3 {
        pair.forge(A, acknowledgement.headers, &[]);
    }
    assert_eq!(for_nothing(&pair), [0, 0]);
}

/// The peer's thread finds the request and its repetitions together. One acknowledgement answers
/// all of them, so only the peer knows.
#[test]
fn a_stalled_responder_sees_that_the_requester_was_early() {
    for read in [false, true] {
        let mut pair = Setup::default().connect();
        match read {
            true => pair.read(A, 1, 3000),
            false => pair.write(A, 1, 10),
        }
        pair.stall(B, TIMEOUT_NS / 2 * 5);
        finish(&mut pair, [1]);
        assert_eq!((timeouts(&pair), for_nothing(&pair)), (2, [0, 2]), "{read}");
    }
}

/// The host takes what has arrived before it lets a timer run out.
#[test]
fn a_stalled_requester_finds_the_answer_before_its_timer() {
    for id in [A, B] {
        let mut pair = Setup::default().connect();
        for wr_id in 0..20 {
            pair.write(A, wr_id, 3000);
        }
        pair.run_for(500);
        // The last packet of one stall arrives before the other end's timer is due.
        let stalls = if id == A {
            3 * TIMEOUT_NS
        } else {
            TIMEOUT_NS / 2
        };
        pair.stall(id, stalls);
        finish(&mut pair, 0..20);
        assert_eq!((timeouts(&pair), for_nothing(&pair)), (0, [0, 0]));
        assert_eq!(pair.count(A, Counter::RetransmittedPackets), 0);
    }
}

/// When the host cannot know better, a timeout costs one or two packets, not a window.
#[test]
fn a_stall_costs_no_more_packets_than_it_has_timeouts() {
    for read in [false, true] {
        for stalls in 1..6 {
            let mut pair = Setup::default().connect();
            for wr_id in 0..20 {
                match read {
                    true => pair.read(A, wr_id, 3000),
                    false => pair.write(A, wr_id, 3000),
                }
            }
            let stall_ns = TIMEOUT_NS * stalls + TIMEOUT_NS / 2;
            pair.stall(B, stall_ns);
            pair.run_for(stall_ns - 1);
            // A host takes what arrives together before it sends.
            pair.stall(A, 10_000);
            finish(&mut pair, 0..20);
            assert_eq!(timeouts(&pair), stalls);
            assert!(pair.count(A, Counter::RetransmittedPackets) <= stalls + 1);
            let duplicates = pair.count(B, Counter::DuplicateRequest);
            assert!(duplicates <= stalls + 1, "{duplicates}");
        }
    }
}

/// The answers are in flight, and arrive one by one.
#[test]
fn late_answers_cost_two_packets_for_each_timeout() {
    let mut pair = Setup::default().connect();
    pair.rule(20, Fate::Late(TIMEOUT_NS / 2 * 3), |p| p.from == B);
    for wr_id in 0..20 {
        pair.write(A, wr_id, 3000);
    }
    finish(&mut pair, 0..20);
    assert_eq!(timeouts(&pair), 1);
    assert!(pair.count(A, Counter::RetransmittedPackets) <= 2);
}

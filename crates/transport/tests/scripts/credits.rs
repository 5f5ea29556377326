//! End-to-end flow control: the receiver says how many receives it has posted.

use ferroce_transport::{Counter, SendOp, WcStatus};
use ferroce_wire::{Aeth, CreditCode, Headers, Opcode, Psn, Syndrome};

use crate::common::{A, B, Pair, Setup};

fn last_credit(pair: &Pair) -> (CreditCode, u32) {
    let aeth = pair
        .log
        .iter()
        .rev()
        .find(|p| p.from == B)
        .and_then(|p| p.headers.aeth())
        .unwrap();
    match aeth.syndrome {
        Syndrome::Ack { credit } => (credit, aeth.msn),
        other => panic!("{other:?}"),
    }
}

#[test]
fn acknowledgements_carry_credits_and_the_message_number() {
    let mut pair = Setup::default().connect();
    for wr_id in 0..4 {
        pair.recv(B, wr_id, 100);
    }
    for (wr_id, credits) in [(0, 3), (1, 2), (2, 1), (3, 0)] {
        pair.send(A, wr_id, 10);
        pair.run();
        let expected = (CreditCode::from_credits(credits), wr_id as u32 + 1);
        assert_eq!(last_credit(&pair), expected);
    }
}

#[test]
fn a_shared_receive_queue_promises_nothing_and_limits_nothing() {
    let mut pair = Setup {
        srq: true,
        ..Setup::default()
    }
    .connect();
    for wr_id in 0..5 {
        pair.recv(B, wr_id, 100);
    }
    pair.send(A, 0, 10);
    pair.run();
    assert_eq!(last_credit(&pair).0, CreditCode::INVALID);
    let before = pair.log.len();
    for wr_id in 1..5 {
        pair.send(A, wr_id, 10);
    }
    pair.transmit();
    assert_eq!(pair.log.len() - before, 4);
    pair.run();
    pair.expect_sent(A, 0..5);
}

/// A pair in which A knows that B has no receive left.
fn without_credit() -> Pair {
    let mut pair = Setup {
        rnr_retry: 7,
        ..Setup::default()
    }
    .connect();
    pair.recv(B, 0, 100);
    pair.send(A, 0, 10);
    pair.run();
    pair.expect_sent(A, [0]);
    pair.expect_received(B, [0]);
    pair.log.clear();
    pair
}

/// Of 100 messages as many leave at once as the code grants, and without credit one; whatever the message
/// number, of which the third connection passes the end while they leave.
#[test]
fn every_credit_code_grants_its_number() {
    for aged in [0, (1 << 23) - 2, (1 << 24) - 50] {
        for code in (0..32).map(CreditCode::new) {
            let window_bytes = 1 << 20;
            let mut pair = Setup {
                window_bytes,
                ..Setup::default()
            }
            .connect();
            assert!(pair.age(A, aged));
            pair.send(A, 0, 10);
            pair.transmit();
            let sent = pair.log.last().unwrap().headers;
            let ack = Headers::acknowledge(Aeth {
                syndrome: Syndrome::Ack { credit: code },
                msn: Psn::new(aged).next().value(),
            });
            pair.forge(A, ack.to(pair[A].qp.qpn(), sent.psn), &[]);
            pair.expect_sent(A, [0]);
            (1..=100).for_each(|wr_id| pair.send(A, wr_id, 10));
            pair.transmit();
            let granted = code.credits().unwrap_or(100).clamp(1, 100);
            let left = pair.log.len() - 1;
            assert_eq!(left, granted as usize, "{code:?} after {aged}");
        }
    }
}

#[test]
fn without_credit_one_packet_at_a_time_asks_for_some() {
    let mut pair = without_credit();
    pair.send(A, 1, 3000);
    pair.send(A, 2, 10);
    pair.transmit();
    assert_eq!(pair.sent(A), ["SEND first 1"]);
    assert!(pair.log[0].headers.asks_for_ack());
    // No receive is posted: the one packet is refused.
    pair.run_for(10_000);
    assert_eq!(pair.sent(B), ["RNR 1"]);
    pair.recv(B, 1, 4000);
    pair.recv(B, 2, 4000);
    pair.run();
    pair.expect_sent(A, [1, 2]);
    pair.expect_received(B, [1, 2]);
}

#[test]
fn acknowledging_the_first_packet_releases_the_rest() {
    let mut pair = without_credit();
    pair.recv(B, 1, 10_000);
    pair.send(A, 1, 10_000);
    pair.transmit();
    assert_eq!(pair.sent(A), ["SEND first 1"]);
    let step = 2_000;
    pair.run_for(step);
    assert_eq!(pair.sent(A).len(), 10, "all after one round trip");
    pair.run();
    pair.expect_sent(A, [1]);
}

#[test]
fn only_the_last_packet_of_a_write_with_immediate_needs_credit() {
    let mut pair = without_credit();
    pair.write(A, 1, 3000);
    let (va, rkey) = pair.target(A);
    let imm = Some(1);
    pair.op(A, 2, SendOp::Write { va, rkey, imm }, 3000);
    pair.transmit();
    assert_eq!(
        pair.sent(A),
        [
            "RDMA WRITE first 1",
            "RDMA WRITE middle 2",
            "RDMA WRITE last 3",
            "RDMA WRITE first 4",
            "RDMA WRITE middle 5"
        ]
    );
    pair.recv(B, 1, 0);
    pair.run();
    pair.expect_sent(A, [1, 2]);
    assert_eq!(pair.count(A, Counter::RnrNakRetryErr), 0);
}

#[test]
fn credits_that_come_back_are_used_at_once() {
    let mut pair = without_credit();
    for wr_id in 1..=8 {
        pair.recv(B, wr_id, 100);
    }
    pair.write(A, 1, 10); // its acknowledgement brings the news
    pair.run();
    pair.log.clear();
    for wr_id in 2..10 {
        pair.send(A, wr_id, 10);
    }
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 8);
    pair.run();
    pair.expect_sent(A, 1..10);
}

#[test]
fn granted_credits_stay_granted() {
    let mut pair = Setup::default().connect();
    for wr_id in 0..9 {
        pair.recv(B, wr_id, 100);
    }
    // 8 are left and reported; then 7, of which only 6 can be encoded.
    for (wr_id, told) in [(0, 8), (1, 6)] {
        pair.send(A, wr_id, 10);
        pair.run();
        assert_eq!(last_credit(&pair).0.credits(), Some(told));
    }
    pair.log.clear();
    for wr_id in 2..9 {
        pair.send(A, wr_id, 10);
    }
    pair.transmit();
    assert_eq!(pair.sent(A).len(), 7);
    pair.run();
    pair.expect_sent(A, 0..9);
}

/// The credit code rounds down. A smaller credit than before must not hold back a message half-way
/// when no further acknowledgement with a larger one is due.
#[test]
fn rounded_credits_never_stall() {
    for receives in 1..40 {
        let mut pair = Setup {
            timeout: 0,
            window_bytes: 2 << 10,
            ..Setup::default()
        }
        .connect();
        for wr_id in 0..receives {
            pair.recv(B, wr_id, 3000);
        }
        for wr_id in 0..receives {
            pair.send(A, wr_id, 3000);
        }
        pair.run();
        pair.expect_sent(A, 0..receives);
        pair.expect_received(B, 0..receives);
        assert_eq!(pair.count(A, Counter::RnrNakRetryErr), 0);
    }
}

/// The message number of a READ that is split counts each of its requests, so credits stay right.
#[test]
fn a_long_read_takes_as_many_message_numbers_as_requests() {
    let mut pair = Setup {
        rnr_retry: 0,
        window_bytes: 4 << 10,
        ..Setup::default()
    }
    .connect();
    pair.recv(B, 0, 100);
    pair.recv(B, 1, 100);
    pair.read(A, 0, 20_000);
    pair.send(A, 1, 10);
    pair.run();
    assert!(pair.count_sent(A, |p| p.opcode() == Opcode::RcReadRequest) > 1);
    pair.log.clear();
    // One credit is left: of two SENDs only the first leaves at once.
    pair.send(A, 2, 10);
    pair.send(A, 3, 10);
    pair.transmit();
    assert_eq!(pair.count_sent(A, |_| true), 1);
    pair.recv(B, 2, 100);
    pair.run();
    pair.expect_sent(A, 0..4);
}

#[test]
fn nonsense_credits_and_message_numbers_neither_stall_nor_break() {
    for (code, msn) in [
        (0, 0),
        (0, 0x80_0000),
        (30, 0xff_ffff),
        (31, 5),
        (0, 0xff_ffff),
    ] {
        let mut pair = without_credit();
        let mut ack = Setup::default().connect();
        ack.write(A, 0, 1);
        ack.run();
        let mut headers = ack.log.last().unwrap().headers;
        let aeth = headers.aeth_mut().unwrap();
        aeth.msn = msn;
        aeth.syndrome = Syndrome::Ack {
            credit: CreditCode::new(code),
        };
        // It repeats the newest acknowledged PSN, so its credits count.
        pair.forge(A, headers, &[]);
        for wr_id in 1..6 {
            pair.recv(B, wr_id, 100);
            pair.send(A, wr_id, 100);
        }
        pair.run();
        assert_eq!(
            pair.sends(A),
            (1..6).map(|n| (n, WcStatus::Success)).collect::<Vec<_>>()
        );
    }
}

//! RNR NAKs: the sender waits as long as the code says, and as often as its retry count allows.

use ferroce_transport::{Counter, QpState, SendOp, Span, WcStatus, WorkQueue};
use ferroce_wire::{NakCode, Opcode, RNR_TIMER_NS, Syndrome};

use crate::common::{A, B, Fate, Pair, Setup};

fn not_ready(rnr_retry: u8, min_rnr_timer: u8) -> Pair {
    let mut pair = Setup {
        rnr_retry,
        min_rnr_timer,
        ..Setup::default()
    }
    .connect();
    pair.send(A, 1, 10);
    pair
}

#[test]
fn the_sender_waits_for_exactly_what_each_of_the_32_codes_says() {
    for code in 0..32 {
        let mut pair = not_ready(7, code);
        pair.run_for(1_500);
        let nak = pair.log.last().unwrap();
        let aeth = nak.headers.aeth().unwrap();
        assert_eq!(aeth.syndrome, Syndrome::Rnr { timer: code });
        let arrived = nak.at.after(Span::from_nanos(1_000));
        pair.recv(B, 1, 10);
        pair.run();
        let again = pair.log.iter().rfind(|p| p.from == A).unwrap();
        assert_eq!(
            again.at.since(arrived).as_nanos(),
            RNR_TIMER_NS[usize::from(code)]
        );
        pair.expect_sent(A, [1]);
        pair.expect_received(B, [1]);
        assert_eq!(pair.count(A, Counter::RnrNakRetryErr), 1);
        assert_eq!(pair.count(B, Counter::OutOfBuffer), 1);
    }
}

#[test]
fn rnr_retry_counts_from_0_to_6() {
    for rnr_retry in 0..7 {
        let mut pair = not_ready(rnr_retry, 1);
        pair.write(A, 2, 10);
        pair.run();
        let sends = pair.count_sent(A, |p| p.opcode() == Opcode::RcSendOnly);
        assert_eq!(sends, 1 + usize::from(rnr_retry));
        let statuses = [(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(pair.sends(A), statuses);
        assert_eq!(pair[A].qp.state(), QpState::Err);
        assert_eq!(pair.count(A, Counter::ReqRnrRetriesExceeded), 1);
        //= F10: the fatal NAK counts as well.
        let naks = 1 + u64::from(rnr_retry);
        assert_eq!(pair.count(A, Counter::RnrNakRetryErr), naks);
        assert_eq!(pair.count(B, Counter::OutOfBuffer), naks);
    }
}

#[test]
fn rnr_retry_7_never_ends() {
    let mut pair = not_ready(7, 1);
    pair.run_for(5_000_000);
    let sends = pair.count_sent(A, |p| p.opcode() == Opcode::RcSendOnly);
    assert!(sends > 300, "{sends}");
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
}

#[test]
fn progress_gives_all_rnr_retries_back() {
    let mut pair = not_ready(1, 1);
    for wr_id in 1..5 {
        pair.run_for(5_000); // refused once
        pair.recv(B, wr_id, 10);
        pair.run();
        pair.send(A, wr_id + 1, 10);
    }
    pair.expect_sent(A, 1..5);
    assert_eq!(pair[A].qp.state(), QpState::Rts);
}

#[test]
fn the_rest_of_a_burst_is_not_out_of_sequence() {
    let mut pair = not_ready(7, 12);
    for wr_id in 2..5 {
        pair.write(A, wr_id, 10);
    }
    pair.run_for(50_000);
    assert_eq!(pair.sent(B), ["RNR 0"]);
    pair.recv(B, 1, 10);
    pair.run();
    assert_eq!(
        pair.sent(A),
        [
            "SEND only 0",
            "RDMA WRITE only 1",
            "RDMA WRITE only 2",
            "RDMA WRITE only 3",
            "SEND only 0",
            "RDMA WRITE only 1",
            "RDMA WRITE only 2",
            "RDMA WRITE only 3",
        ]
    );
    pair.expect_sent(A, 1..5);
}

#[test]
fn a_write_with_immediate_is_refused_at_its_last_packet_only() {
    let mut pair = Setup::default().connect();
    let (va, rkey) = pair.target(A);
    let imm = Some(3);
    pair.op(A, 1, SendOp::Write { va, rkey, imm }, 3000);
    pair.run_for(50_000);
    assert_eq!(pair.sent(B), ["RNR 2"]);
    pair.recv(B, 1, 0);
    pair.run();
    assert_eq!(pair.sent(A)[3..], ["RDMA WRITE last with immediate 2"]);
    pair.expect_same(3000);
    let received = pair.completions(B, WorkQueue::Recv);
    assert_eq!(received[0].byte_len, 3000);
}

#[test]
fn a_send_is_refused_at_its_first_packet_and_begins_again() {
    let mut pair = Setup::default().connect();
    pair.send(A, 1, 3000);
    pair.run_for(50_000);
    assert_eq!(pair.sent(B), ["RNR 0"]);
    let sge = pair[B].remote.part(0, 3000);
    pair.recv_into(B, 1, &[sge]);
    pair.run();
    pair.expect_same(3000);
}

#[test]
fn a_repeated_rnr_nak_counts_once() {
    let mut pair = not_ready(1, 12);
    pair.rule(1, Fate::Twice(0), |p| p.from == B);
    pair.run_for(50_000);
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
}

#[test]
fn a_repeated_request_is_refused_twice_and_waited_for_once() {
    let mut pair = not_ready(1, 12);
    pair.rule(1, Fate::Twice(0), |p| p.from == A);
    pair.run_for(50_000);
    assert_eq!(pair.sent(B), ["RNR 0", "RNR 0"]);
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
    pair.expect_received(B, [1]);
}

/// Linux's soft-RoCE refuses the rest of a burst as well; when it is slow, that comes after the
/// wait.
#[test]
fn late_sequence_naks_do_not_end_a_wait_without_end() {
    let mut pair = not_ready(7, 1);
    pair.run_for(5_000);
    let mut late = pair.log.last().unwrap().headers;
    late.aeth_mut().unwrap().syndrome = Syndrome::Nak(NakCode::SequenceError);
    let retry_cnt = pair.attr(A).retry_cnt;
    for _ in 0..=2 * retry_cnt {
        let refused = pair.count(A, Counter::RnrNakRetryErr);
        while pair.count(A, Counter::RnrNakRetryErr) == refused {
            let sent = pair.count_sent(A, |_| true);
            while pair.count_sent(A, |_| true) == sent {
                pair.step(None);
            }
            pair.forge(A, late, &[]);
            pair.run_for(5_000);
        }
    }
    assert!(pair.count(A, Counter::PacketSeqErr) > retry_cnt.into());
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
}

#[test]
fn the_ack_timer_recovers_a_lost_rnr_nak() {
    let mut pair = not_ready(7, 12);
    pair.silence(B);
    pair.run_for(10_000);
    pair.heal();
    pair.run_for(400_000_000);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
}

/// The RNR NAK is old: the request was already sent again and executed.
#[test]
fn an_acknowledgement_ends_the_wait_it_makes_pointless() {
    let mut pair = not_ready(7, 0);
    pair.rule(1, Fate::Late(2_000), |p| p.from == A);
    pair.run_for(200_000);
    let rnr = pair.log.last().unwrap().headers;
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
    // Once more, with the old NAK modified to look new.
    pair.recv(B, 2, 10);
    pair.send(A, 2, 10);
    pair.transmit();
    let mut stale = rnr;
    stale.psn = rnr.psn.next();
    let before = pair.now;
    pair.forge(A, stale, &[]);
    pair.run();
    pair.expect_sent(A, [2]);
    assert!(pair.now.since(before).as_nanos() < 100_000);
}

#[test]
fn nothing_is_sent_during_the_wait() {
    let mut pair = not_ready(7, 12);
    pair.run_for(10_000);
    let before = pair.log.len();
    pair.write(A, 2, 10);
    pair.read(A, 3, 10);
    pair.run_for(100_000);
    assert_eq!(pair.log.len(), before);
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, 1..4);
}

#[test]
fn signs_of_loss_do_not_cut_the_wait_short() {
    let mut pair = not_ready(7, 12);
    pair.read(A, 2, 10);
    pair.run_for(10_000);
    let rnr = pair.log.last().unwrap().headers;
    let due = pair[A].qp.poll_timeout();
    let mut nak = rnr;
    let aeth = nak.aeth_mut().unwrap();
    aeth.syndrome = Syndrome::Nak(NakCode::SequenceError);
    pair.forge(A, nak, &[]);
    assert_eq!(pair[A].qp.poll_timeout(), due);
    assert_eq!(pair[A].qp.retry().retries_left(), 7);
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1, 2]);
}

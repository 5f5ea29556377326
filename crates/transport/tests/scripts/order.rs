//! Fences, and the order of completions when things go wrong.

use ferroce_transport::{Counter, QpState, SendFlags, SendOp, SendWr, WcStatus, WorkQueue};
use ferroce_wire::Opcode;

use crate::common::{A, B, Fate, Pair, Setup};

fn fenced_write(pair: &Pair, wr_id: u64) -> SendWr {
    let (va, rkey) = pair.target(A);
    pair.fenced(
        A,
        wr_id,
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        10,
    )
}

#[test]
fn a_fence_waits_for_reads_and_atomics() {
    let mut pair = Setup::default().connect();
    pair.read(A, 1, 3000);
    pair.fetch_add(A, 2, 1);
    let wr = fenced_write(&pair, 3);
    pair.post(A, wr);
    pair.write(A, 4, 10);
    pair.transmit();
    assert_eq!(pair.sent(A), ["RDMA READ request 0", "fetch and add 3"]);
    pair.run();
    let sent_at = |opcode| pair.log.iter().find(|p| p.opcode() == opcode).unwrap().at;
    assert!(sent_at(Opcode::RcWriteOnly) > sent_at(Opcode::RcAtomicAcknowledge));
    pair.expect_sent(A, 1..5);
}

#[test]
fn a_fence_does_not_wait_for_sends_and_writes() {
    let mut pair = Setup::default().connect();
    pair.write(A, 1, 3000);
    let wr = fenced_write(&pair, 2);
    pair.post(A, wr);
    pair.transmit();
    assert_eq!(pair.count_sent(A, |_| true), 4);
    pair.run();
    pair.expect_sent(A, 1..3);
}

/// After going back, the READ is outstanding again and the fence holds again.
#[test]
fn a_fence_holds_while_a_read_is_repeated() {
    for lost_request in [true, false] {
        let mut pair = Setup::default().connect();
        pair.lose(
            1,
            if lost_request {
                Opcode::RcReadRequest
            } else {
                Opcode::RcReadResponseOnly
            },
        );
        pair.read(A, 1, 10);
        let wr = fenced_write(&pair, 2);
        pair.post(A, wr);
        pair.run();
        assert_eq!(
            pair.sent(A),
            [
                "RDMA READ request 0",
                "RDMA READ request 0",
                "RDMA WRITE only 1"
            ]
        );
        pair.expect_sent(A, [1, 2]);
    }
}

#[test]
fn a_failing_queue_pair_flushes_everything_in_order() {
    let mut pair = Setup {
        retry_cnt: 1,
        ..Setup::default()
    }
    .connect();
    pair.silence(A);
    for wr_id in 0..3 {
        pair.recv(A, 50 + wr_id, 10);
    }
    for wr_id in 0..6 {
        let (va, rkey) = pair.target(A);
        let sge = pair[A].local.part(0, 10);
        let mut wr = SendWr::new(
            wr_id,
            SendOp::Write {
                va,
                rkey,
                imm: None,
            },
            sge,
        );
        // Errors are reported for unsignalled requests as well.
        wr.flags.set(SendFlags::SIGNALED, wr_id % 2 == 0);
        pair.post(A, wr);
    }
    pair.run();
    let done = pair.completions(A, WorkQueue::Send);
    let statuses: Vec<_> = done
        .iter()
        .map(|wc| (wc.wr_id, wc.status, wc.vendor_err))
        .collect();
    let flushed = |wr_id| (wr_id, WcStatus::WrFlushErr, 249);
    assert_eq!(statuses[0], (0, WcStatus::RetryExcErr, 129));
    assert_eq!(
        statuses[1..],
        [flushed(1), flushed(2), flushed(3), flushed(4), flushed(5)]
    );
    assert!(done.iter().all(|wc| wc.solicited));
    let flush = WcStatus::WrFlushErr;
    assert_eq!(pair.recvs(A), [(50, flush), (51, flush), (52, flush)]);
    assert_eq!(pair.count(A, Counter::ReqCqeFlushError), 5);
    assert_eq!(pair.count(A, Counter::RespCqeFlushError), 3);
    //= F8, F9: every error counts as one.
    assert_eq!(pair.count(A, Counter::ReqCqeError), 6);
    assert_eq!(pair.count(A, Counter::RespCqeError), 3);
    // Requests that are posted later are flushed at once.
    pair.write(A, 7, 10);
    pair.recv(A, 57, 10);
    assert_eq!(pair.sends(A), [(7, flush)]);
    assert_eq!(pair.recvs(A), [(57, flush)]);
    assert_eq!(pair[A].qp.poll_timeout(), None);
}

#[test]
fn a_half_received_send_is_flushed_first() {
    let mut pair = Setup::default().connect();
    pair.recv(B, 1, 4000);
    pair.recv(B, 2, 4000);
    pair.rule(usize::MAX, Fate::Lost, |p| p.opcode() == Opcode::RcSendLast);
    pair.send(A, 1, 3000);
    pair.run_for(10_000);
    assert!(pair.recvs(B).is_empty());
    pair.move_to(B, QpState::Err);
    let flush = WcStatus::WrFlushErr;
    assert_eq!(pair.recvs(B), [(1, flush), (2, flush)]);
}

#[test]
fn completions_keep_the_order_of_posting_whatever_answers_first() {
    let mut pair = Setup::default().connect();
    // The READ's response comes long after the acknowledgements of what follows.
    pair.rule(1, Fate::Late(50_000), |p| {
        p.opcode() == Opcode::RcReadResponseOnly
    });
    pair.read(A, 1, 10);
    pair.write(A, 2, 10);
    pair.fetch_add(A, 3, 1);
    pair.write(A, 4, 10);
    pair.run();
    pair.expect_sent(A, 1..5);
    assert_eq!(pair[B].host.atomics, 1);
}

#[test]
fn an_error_of_one_side_leaves_the_other_to_its_own_timer() {
    let mut pair = Setup::default().connect();
    pair.write(A, 1, 10);
    pair.move_to(B, QpState::Err);
    pair.run();
    assert_eq!(pair.sends(A), [(1, WcStatus::RetryExcErr)]);
}

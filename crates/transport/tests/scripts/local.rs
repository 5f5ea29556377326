//! Operations of a device on its own keys: they pass through the send queue and send no packets.

use ferroce_transport::{
    AccessFlags, Completion, MwBind, PostError, QpState, QpType, SendFlags, SendOp, SendTo, SendWr,
    Sge, WcOpcode, WcStatus, WorkQueue,
};

use crate::common::{A, B, Pair, Setup};

fn bind(pair: &Pair, rkey: u32) -> SendOp {
    SendOp::BindMw(MwBind {
        rkey,
        lkey: pair[A].remote.key,
        va: pair[A].remote.va,
        length: 100,
        access: AccessFlags::REMOTE_WRITE,
        zero_based: false,
    })
}

/// A bind that names no region.
fn bad_bind(pair: &Pair) -> SendOp {
    match bind(pair, 1) {
        SendOp::BindMw(bind) => SendOp::BindMw(MwBind {
            lkey: 0xdead,
            ..bind
        }),
        op => op,
    }
}

fn post(pair: &mut Pair, wr_id: u64, op: SendOp) {
    let nothing = Sge {
        addr: 0,
        length: 0,
        lkey: 0,
    };
    pair.post(A, SendWr::new(wr_id, op, nothing));
}

fn bound(pair: &Pair) -> Vec<u32> {
    pair[A].host.binds.iter().map(|bind| bind.rkey).collect()
}

#[test]
fn local_operations_complete_at_once_without_a_packet() {
    let mut pair = Setup::default().connect();
    let rkey = pair[A].host.register(8, AccessFlags::all()).key;
    let op = bind(&pair, 5);
    post(&mut pair, 1, op);
    post(&mut pair, 2, SendOp::LocalInvalidate { rkey });
    pair.run();
    assert!(pair.log.is_empty());
    assert_eq!(bound(&pair), [5]);
    let done = pair.completions(A, WorkQueue::Send);
    let success = |wr_id, opcode| Completion::success(wr_id, opcode, pair[A].qp.qpn());
    let expected = [success(1, WcOpcode::BindMw), success(2, WcOpcode::LocalInv)];
    assert_eq!(done, expected);
    // The key is invalid now.
    post(&mut pair, 3, SendOp::LocalInvalidate { rkey });
    pair.run();
    assert_eq!(pair.sends(A), [(3, WcStatus::MwBindErr)]);
}

#[test]
fn local_operations_complete_before_later_requests_leave() {
    let mut pair = Setup::default().connect();
    pair.recv(B, 9, 10);
    let op = bind(&pair, 5);
    post(&mut pair, 1, op);
    pair.send(A, 2, 10);
    pair.transmit();
    assert_eq!(pair.sent(A), ["SEND only 0"]);
    assert_eq!(bound(&pair), [5]);
    pair.run();
    pair.expect_sent(A, [1, 2]);
}

#[test]
fn local_operations_run_once_and_in_order_despite_losses() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(2, A, true, 0);
    pair.lose_psn(1, A, true, 2);
    pair.write(A, 1, 3000);
    for (wr_id, rkey) in [(2, 5), (3, 6)] {
        let op = bind(&pair, rkey);
        post(&mut pair, wr_id, op);
    }
    pair.write(A, 4, 10);
    let op = bind(&pair, 7);
    post(&mut pair, 5, op);
    pair.transmit();
    assert_eq!(bound(&pair), [5, 6, 7]);
    assert!(pair.sends(A).is_empty(), "the first WRITE is not done");
    pair.run();
    pair.expect_sent(A, 1..=5);
    assert_eq!(bound(&pair), [5, 6, 7]);
    pair.expect_same(10);
}

#[test]
fn a_fenced_local_operation_waits_for_reads() {
    for flags in [SendFlags::empty(), SendFlags::FENCE] {
        let mut pair = Setup::default().connect();
        pair.read(A, 1, 10);
        let mut wr = pair.fenced(A, 2, bind(&pair, 5), 0);
        wr.flags = flags | SendFlags::SIGNALED;
        pair.post(A, wr);
        pair.transmit();
        let waits = flags == SendFlags::FENCE;
        assert_eq!(bound(&pair).is_empty(), waits);
        pair.run();
        pair.expect_sent(A, [1, 2]);
        assert_eq!(bound(&pair), [5]);
    }
}

#[test]
fn unsignalled_local_operations_free_their_queue_entries() {
    let mut pair = Setup::default().connect();
    for rkey in 0..1000 {
        let wr = SendWr {
            flags: SendFlags::empty(),
            ..SendWr::new(0, bind(&pair, rkey), pair[A].local.part(0, 0))
        };
        pair.post(A, wr);
        pair.transmit();
    }
    assert_eq!(bound(&pair).len(), 1000);
    assert!(pair.sends(A).is_empty());
    assert_eq!(pair[A].qp.send_queue_len(), 0);
}

#[test]
fn a_failing_local_operation_fails_the_queue_pair_in_turn() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(1, A, true, 0);
    pair.write(A, 1, 10);
    let (bad, good) = (bad_bind(&pair), bind(&pair, 5));
    post(&mut pair, 2, bad);
    post(&mut pair, 3, good);
    pair.run();
    assert!(bound(&pair).is_empty());
    let expected = [
        (1, WcStatus::Success),
        (2, WcStatus::MwBindErr),
        (3, WcStatus::WrFlushErr),
    ];
    assert_eq!(pair.sends(A), expected);
    assert_eq!(pair[A].qp.state(), QpState::Err);
}

#[test]
fn a_drained_send_queue_starts_no_local_operation() {
    let mut pair = Setup::default().connect();
    pair.move_to(A, QpState::Sqd);
    let op = bind(&pair, 5);
    post(&mut pair, 1, op);
    pair.run();
    assert!(bound(&pair).is_empty());
    pair.move_to(A, QpState::Rts);
    pair.run();
    pair.expect_sent(A, [1]);
}

#[test]
fn uc_has_local_operations_and_ud_does_not() {
    let connect = |qp_type| {
        let setup = Setup {
            qp_type,
            ..Setup::default()
        };
        setup.connect()
    };
    let mut pair = connect(QpType::Uc);
    let (good, bad) = (bind(&pair, 5), bad_bind(&pair));
    pair.write(A, 1, 10);
    post(&mut pair, 2, good);
    pair.write(A, 3, 10);
    post(&mut pair, 4, bad);
    post(&mut pair, 5, good);
    pair.run();
    assert_eq!(bound(&pair), [5]);
    let (ok, flushed) = (WcStatus::Success, WcStatus::WrFlushErr);
    let expected = [
        (1, ok),
        (2, ok),
        (3, ok),
        (4, WcStatus::MwBindErr),
        (5, flushed),
    ];
    assert_eq!(pair.sends(A), expected);
    assert_eq!(pair[A].qp.state(), QpState::Sqe);

    let mut pair = connect(QpType::Ud);
    let wr = SendWr {
        to: SendTo::Peer,
        ..SendWr::new(1, bind(&pair, 5), pair[A].local.part(0, 0))
    };
    let side = &mut pair[A];
    let refused = side.qp.post_send(wr, &mut side.host);
    assert!(matches!(refused, Err(PostError::Unsupported { .. })));
}

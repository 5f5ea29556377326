//! Queue pair states: posting rules, drain, reset, events.

use ferroce_transport::{
    Attr, Counter, ModifyError, PostError, QpAttr, QpEvent, QpModify, QpState, RecvWr, SendOp,
    SendWr, Sges, Span, WcStatus, WorkQueue,
};

use crate::common::{A, B, Fate, Id, Pair, Setup};

fn post_send(pair: &mut Pair) -> Result<(), PostError> {
    let sge = pair[A].local.part(0, 1);
    let side = &mut pair[A];
    side.qp.post_send(
        SendWr::new(1, SendOp::Send { imm: None }, sge),
        &mut side.host,
    )
}

fn post_recv(pair: &mut Pair) -> Result<(), PostError> {
    let sges = Sges::new();
    let side = &mut pair[A];
    side.qp.post_recv(RecvWr { wr_id: 1, sges }, &mut side.host)
}

#[test]
fn posting_follows_the_state() {
    let mut pair = Setup::default().build();
    let attr = pair.attr(A);
    let steps = [
        (None, false, false),
        (Some(QpModify::init(attr)), false, true),
        (Some(QpModify::rtr(attr)), false, true),
        (Some(QpModify::rts(attr)), true, true),
    ];
    for (change, send, recv) in steps {
        if let Some(change) = change {
            pair.modify(A, &change);
        }
        assert_eq!(
            post_send(&mut pair).is_ok(),
            send,
            "{:?}",
            pair[A].qp.state()
        );
        assert_eq!(
            post_recv(&mut pair).is_ok(),
            recv,
            "{:?}",
            pair[A].qp.state()
        );
    }
    for state in [QpState::Sqd, QpState::Err] {
        pair.move_to(A, state);
        assert_eq!(
            (post_send(&mut pair), post_recv(&mut pair)),
            (Ok(()), Ok(()))
        );
    }
}

#[test]
fn a_queue_pair_with_an_srq_takes_no_receives_of_its_own() {
    let mut pair = Setup {
        srq: true,
        ..Setup::default()
    }
    .connect();
    assert_eq!(post_recv(&mut pair), Err(PostError::UsesSrq));
}

#[test]
fn a_refused_modify_changes_nothing() {
    let mut pair = Setup::default().connect();
    let before = *pair[A].qp.attr();
    let mut attr = before;
    attr.min_rnr_timer = 3;
    attr.timeout = 3;
    let change = QpModify::to(QpState::Rts, Attr::MIN_RNR_TIMER | Attr::TIMEOUT, attr);
    let side = &mut pair[A];
    let refused = side.qp.modify(&change, &mut side.host);
    assert!(matches!(refused, Err(ModifyError::NotAllowed { .. })));
    assert_eq!(*side.qp.attr(), before);
}

#[test]
fn the_first_packet_in_rtr_establishes_communication_once() {
    let mut pair = Setup::default().build();
    pair.connect(A);
    let attr = pair.attr(B);
    pair.modify(B, &QpModify::init(attr));
    pair.recv(B, 1, 10);
    pair.write(A, 0, 10);
    pair.run_for(10_000);
    assert!(pair[B].host.events.is_empty(), "INIT takes no packets");
    pair.modify(B, &QpModify::rtr(attr));
    pair.send(A, 1, 10);
    pair.run();
    assert_eq!(pair[B].host.events, [QpEvent::CommunicationEstablished]);
    pair.expect_sent(A, [0, 1]);
    pair.expect_received(B, [1]);
    pair.modify(B, &QpModify::rts(attr));
    pair.write(B, 5, 10);
    pair.run();
    pair.expect_sent(B, [5]);
    assert_eq!(pair[A].host.events, []);
}

fn drain(pair: &mut Pair, notify: bool) {
    let attr = QpAttr {
        sqd_async_notify: true,
        ..QpAttr::default()
    };
    let mask = if notify {
        Attr::EN_SQD_ASYNC_NOTIFY
    } else {
        Attr::empty()
    };
    pair.modify(A, &QpModify::to(QpState::Sqd, mask, attr));
}

#[test]
fn a_drain_finishes_what_was_started_and_starts_nothing() {
    let mut pair = Setup {
        window_bytes: 4 << 10,
        ..Setup::default()
    }
    .connect();
    pair.write(A, 1, 20_000);
    pair.write(A, 2, 10);
    pair.transmit();
    drain(&mut pair, true);
    assert!(pair[A].host.events.is_empty());
    pair.run();
    pair.expect_sent(A, [1]);
    assert_eq!(pair[A].host.events, [QpEvent::SendQueueDrained]);
    pair.write(A, 3, 10);
    pair.run();
    assert!(pair.sends(A).is_empty());
    // Requests of the peer are served meanwhile.
    pair.read(B, 9, 3000);
    pair.run();
    pair.expect_sent(B, [9]);
    pair.move_to(A, QpState::Rts);
    pair.run();
    pair.expect_sent(A, [2, 3]);
    assert_eq!(pair[A].host.events.len(), 1);
}

#[test]
fn a_drain_goes_on_through_losses() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(2, A, true, 1);
    pair.lose_psn(1, B, false, 4);
    pair.write(A, 1, 3000);
    pair.read(A, 2, 3000);
    pair.transmit();
    drain(&mut pair, true);
    pair.write(A, 3, 10);
    pair.run();
    pair.expect_sent(A, [1, 2]);
    assert_eq!(pair[A].host.events, [QpEvent::SendQueueDrained]);
}

/// A request that only waits for its turn has not started.
#[test]
fn a_request_held_back_by_a_limit_has_not_started() {
    let mut pair = Setup {
        rd_atomic: 1,
        ..Setup::default()
    }
    .connect();
    pair.read(A, 1, 10);
    pair.read(A, 2, 10);
    pair.transmit();
    drain(&mut pair, true);
    pair.run();
    pair.expect_sent(A, [1]);
    assert_eq!(pair[A].host.events, [QpEvent::SendQueueDrained]);
    pair.move_to(A, QpState::Rts);
    pair.run();
    pair.expect_sent(A, [2]);
}

#[test]
fn draining_an_idle_queue_is_immediate_and_reported_on_request() {
    let mut pair = Setup::default().connect();
    drain(&mut pair, true);
    assert_eq!(pair[A].host.events, [QpEvent::SendQueueDrained]);
    pair.move_to(A, QpState::Rts);
    drain(&mut pair, false);
    assert_eq!(pair[A].host.events.len(), 1);
    // The request for an event of an earlier drain that was interrupted is not remembered either.
    pair.move_to(A, QpState::Rts);
    pair.write(A, 1, 10);
    pair.transmit();
    drain(&mut pair, true);
    pair.move_to(A, QpState::Rts);
    drain(&mut pair, false);
    pair.run();
    pair.expect_sent(A, [1]);
    assert_eq!(pair[A].host.events.len(), 1);
}

#[test]
fn attributes_change_while_drained() {
    let mut pair = Setup {
        timeout: 0,
        ..Setup::default()
    }
    .connect();
    pair.silence(A);
    pair.write(A, 1, 10);
    pair.run_for(1_000_000_000);
    assert_eq!(pair[A].qp.poll_timeout(), None, "0 is infinite");
    drain(&mut pair, false);
    let attr = QpAttr {
        timeout: 17,
        retry_cnt: 2,
        max_rd_atomic: 0,
        ..QpAttr::default()
    };
    let mask = Attr::TIMEOUT | Attr::RETRY_CNT | Attr::MAX_QP_RD_ATOMIC;
    pair.modify(A, &QpModify::to(QpState::Sqd, mask, attr));
    pair.transmit();
    let start = pair.now;
    assert_eq!(
        pair[A].qp.poll_timeout(),
        Some(start.after(Span::from_nanos(4096 << 17)))
    );
    pair.run();
    assert_eq!(pair.sends(A), [(1, WcStatus::RetryExcErr)]);
    assert_eq!(pair.now.since(start).as_nanos(), 3 * (4096 << 17));
}

#[test]
fn lowering_the_read_limit_to_zero_keeps_a_started_read() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(1, B, false, 0);
    pair.read(A, 1, 10);
    pair.transmit();
    drain(&mut pair, true);
    let attr = QpAttr::default();
    pair.modify(A, &QpModify::to(QpState::Sqd, Attr::MAX_QP_RD_ATOMIC, attr));
    pair.run();
    pair.expect_sent(A, [1]);
    assert_eq!(pair[A].host.events, [QpEvent::SendQueueDrained]);
}

#[test]
fn reset_forgets_everything_and_a_new_connection_works() {
    let mut pair = Setup::default().connect();
    // Leave unfinished work of every kind.
    pair.recv(B, 1, 4000);
    pair.recv(A, 2, 4000);
    pair.rule(usize::MAX, Fate::Lost, |p| p.headers.psn.value() & 1 == 1);
    for wr_id in 0..4 {
        pair.read(A, wr_id, 3000);
        pair.send(B, 10 + wr_id, 3000);
        pair.fetch_add(A, 20 + wr_id, 1);
    }
    pair.run_for(700_000_000);
    pair.heal();
    for via_error in [false, true, false] {
        for id in [A, B] {
            if via_error {
                pair.move_to(id, QpState::Err);
            }
            pair.move_to(id, QpState::Reset);
            assert_eq!(pair[id].qp.send_queue_len(), 0);
            assert_eq!(pair[id].qp.recv_queue_len(), 0);
            assert_eq!(pair[id].qp.poll_timeout(), None);
            assert!(!pair[id].qp.has_answers());
            assert_eq!(*pair[id].qp.attr(), QpAttr::default());
        }
        // Packets still on the wire find no queue pair.
        pair.run();
        for id in [A, B] {
            let side = &mut pair[id].host;
            side.completions.clear();
            side.events.clear();
            pair.connect(id);
        }
        pair.log.clear();
        for id in [A, B] {
            pair.recv(id, 1, 4000);
        }
        for id in [A, B] {
            pair.read(id, 1, 3000);
            pair.send(id, 2, 3000);
            pair.fetch_add(id, 3, 1);
        }
        pair.run();
        for id in [A, B] {
            pair.expect_sent(id, 1..4);
            pair.expect_received(id, [1]);
            assert_eq!(pair.sent(id)[0], "RDMA READ request 0");
        }
        assert_eq!(
            pair.log
                .iter()
                .filter(|p| p.headers.psn.value() == 0xff_fff0)
                .count(),
            2
        );
    }
}

#[test]
fn reset_completes_nothing_and_error_everything() {
    for (state, flushed) in [(QpState::Reset, 0), (QpState::Err, 1)] {
        let mut pair = Setup::default().connect();
        pair.recv(A, 1, 10);
        pair.silence(A);
        pair.write(A, 1, 10);
        pair.run_for(1000);
        pair.move_to(A, state);
        assert_eq!(
            (pair.sends(A).len(), pair.recvs(A).len()),
            (flushed, flushed)
        );
        pair.run();
        assert_eq!(pair.count_sent(A, |_| true), 1);
    }
}

#[test]
fn packets_are_dropped_in_reset_init_and_error() {
    let mut pair = Setup::default().connect();
    pair.write(A, 1, 10);
    pair.run();
    let packet = pair.log[0].clone();
    for state in [QpState::Err, QpState::Reset, QpState::Init] {
        match state {
            QpState::Init => {
                let attr = pair.attr(B);
                pair.modify(B, &QpModify::init(attr));
            }
            _ => pair.move_to(B, state),
        }
        let before = pair.log.len();
        pair.forge(B, packet.headers, &packet.payload);
        assert_eq!(pair.log.len(), before);
        assert!(!pair[B].qp.takes_packets());
    }
}

#[test]
fn a_shared_receive_queue_serves_in_order_and_keeps_what_it_has() {
    let mut pair = Setup {
        srq: true,
        ..Setup::default()
    }
    .connect();
    for wr_id in 0..4 {
        pair.recv(B, wr_id, 100);
    }
    for wr_id in 0..3 {
        pair.send(A, wr_id, 100);
    }
    pair.run();
    pair.expect_received(B, 0..3);
    pair.move_to(B, QpState::Err);
    pair.move_to(B, QpState::Err);
    assert!(
        pair.recvs(B).is_empty(),
        "the rest is for other queue pairs"
    );
    assert_eq!(pair[B].host.srq.as_ref().unwrap().len(), 1);
    assert_eq!(pair[B].host.events, [QpEvent::LastWqeReached], "once");
}

#[test]
fn an_empty_shared_receive_queue_is_not_ready() {
    let mut pair = Setup {
        srq: true,
        ..Setup::default()
    }
    .connect();
    pair.send(A, 1, 10);
    pair.run_for(50_000);
    assert_eq!(pair.sent(B), ["RNR 0"]);
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
    assert_eq!(pair.count(B, Counter::OutOfBuffer), 1);
}

/// Both PSNs that `ibv_query_qp` reports, counted from the first ones.
fn psns(pair: &Pair, id: Id) -> [u32; 2] {
    let live = pair[id].qp.live_attr();
    let first = pair.attr(id);
    [
        live.rq_psn.since(first.rq_psn),
        live.sq_psn.since(first.sq_psn),
    ]
}

#[test]
fn queried_psns_are_those_that_come_next() {
    let mut pair = Setup::default().connect();
    assert_eq!((psns(&pair, A), psns(&pair, B)), ([0, 0], [0, 0]));
    pair.write(A, 1, 3000);
    pair.read(A, 2, 5000);
    pair.write(B, 3, 10);
    pair.run();
    assert_eq!((psns(&pair, A), psns(&pair, B)), ([1, 8], [8, 1]));
    // Everything else is unchanged.
    let same = QpAttr {
        rq_psn: pair.attr(A).rq_psn,
        sq_psn: pair.attr(A).sq_psn,
        ..pair[A].qp.live_attr()
    };
    assert_eq!(same, *pair[A].qp.attr());
    // A packet that was sent and lost counts as sent.
    pair.silence(A);
    pair.write(A, 4, 3000);
    pair.transmit();
    pair.move_to(A, QpState::Err);
    assert_eq!((psns(&pair, A), psns(&pair, B)), ([1, 11], [8, 1]));
    pair.move_to(A, QpState::Reset);
    let zero = pair[A].qp.live_attr();
    assert_eq!((zero.rq_psn.value(), zero.sq_psn.value()), (0, 0));
}

#[test]
fn after_a_refusal_the_refused_packet_is_next() {
    let mut pair = Setup::default().connect();
    pair.write(A, 1, 3000);
    let write = SendOp::Write {
        va: pair.target(A).0,
        rkey: 0xdead,
        imm: None,
    };
    pair.op(A, 2, write, 3000);
    pair.write(A, 3, 3000);
    pair.run();
    assert_eq!(pair[A].qp.state(), QpState::Err);
    assert_eq!((psns(&pair, A), psns(&pair, B)), ([0, 3], [3, 0]));
}

/// A side that failed is set up again with the PSNs of the other one, which noticed nothing.
#[test]
fn a_peer_set_up_with_the_queried_psns_continues() {
    let mut pair = Setup::default().connect();
    pair.write(A, 1, 3000);
    pair.write(B, 2, 5000);
    pair.run();
    pair.expect_sent(A, 1..2);
    pair.expect_sent(B, 2..3);
    let live = pair[B].qp.live_attr();
    let attr = QpAttr {
        rq_psn: live.sq_psn,
        sq_psn: live.rq_psn,
        ..pair.attr(A)
    };
    for state in [QpState::Err, QpState::Reset] {
        pair.move_to(A, state);
    }
    for change in [
        QpModify::init(attr),
        QpModify::rtr(attr),
        QpModify::rts(attr),
    ] {
        pair.modify(A, &change);
    }
    pair.write(A, 3, 3000);
    pair.write(B, 4, 3000);
    pair.run();
    pair.expect_sent(A, 3..4);
    pair.expect_sent(B, 4..5);
}

/// The oldest request of a queue pair that the program moves to ERR reports that.
#[test]
fn stopping_a_queue_pair_shows_in_vendor_errors() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    for wr_id in 1..4 {
        pair.write(A, wr_id, 10);
    }
    pair.transmit();
    pair.move_to(A, QpState::Err);
    pair.write(A, 4, 10);
    let told: Vec<_> = pair.completions(A, WorkQueue::Send);
    let told: Vec<_> = told
        .iter()
        .map(|wc| (wc.wr_id, wc.status, wc.vendor_err))
        .collect();
    use WcStatus::WrFlushErr;
    assert_eq!(
        told,
        [
            (1, WrFlushErr, 245),
            (2, WrFlushErr, 249),
            (3, WrFlushErr, 249),
            (4, WrFlushErr, 249)
        ]
    );
}

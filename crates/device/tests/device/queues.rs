//! Completion queues and shared receive queues.

use ferroce_device::{
    AccessFlags, Attr, Counter, CqId, Event, Hca, Notify, PdId, PostError, QpCap, QpEvent, QpInit,
    QpModify, QpState, SendFlags, SendOp, SendWr, Span, SrqAttr, SrqId, SrqModify, VerbsError,
    WcStatus, limits,
};
use ferroce_wire::Qpn;

use ferroce_testing::{A, B, LATENCY_NS, Region, SEND, Side, World, attr, recv_wr, srq_limit};

fn send(pair: &mut World, qpn: Qpn, wr_id: u64, flags: SendFlags) {
    let region = pair.sides[A].register(64, AccessFlags::empty());
    let wr = SendWr {
        flags,
        ..SendWr::new(wr_id, SEND, region.whole())
    };
    pair.post(A, qpn, wr);
}

fn recvs(side: &mut Side, qpn: Qpn, wr_ids: std::ops::Range<u64>) {
    let sink = side.register(64, AccessFlags::LOCAL_WRITE);
    for wr_id in wr_ids {
        side.recv(qpn, wr_id, &sink);
    }
}

fn count(side: &Side, event: Event) -> usize {
    side.events.iter().filter(|e| **e == event).count()
}

fn polled(side: &mut Side, cq: CqId) -> Vec<(u64, WcStatus)> {
    let next = || side.hca.poll_completion(cq).unwrap();
    std::iter::from_fn(next)
        .map(|wc| (wc.wr_id, wc.status))
        .collect()
}

/// A completion queue as large as the work queues never overruns.
#[test]
fn a_request_keeps_its_place_until_its_completion_is_polled() {
    let mut pair = World::pair(ferroce_testing::config());
    pair.sides[A].watch_nothing();
    let side = &mut pair.sides[A];
    let cq = side.hca.create_cq(4).unwrap();
    let cap = QpCap {
        max_send_wr: 2,
        max_recv_wr: 2,
        ..QpCap::default()
    };
    let init = QpInit {
        send_cq: cq,
        recv_cq: cq,
        cap,
        ..side.init()
    };
    let qpn = side.hca.create_qp(&init).unwrap();
    let region = side.register(64, AccessFlags::LOCAL_WRITE);
    let peer = pair.sides[B].create_qp();
    let to = |state| QpModify::to(state, Attr::empty(), attr());
    let full = Err(VerbsError::Post(PostError::QueueFull { max: 2 }));
    let send = |hca: &mut Hca| hca.post_send(qpn, SendWr::new(1, SEND, region.whole()));
    let recv = |hca: &mut Hca| hca.post_recv(qpn, recv_wr(2, &region));

    pair.connect([qpn, peer], attr());
    let hca = &mut pair.sides[A].hca;
    hca.modify_qp(qpn, &to(QpState::Err), None).unwrap();
    for _ in 0..2 {
        assert_eq!((send(hca), recv(hca)), (Ok(()), Ok(())));
    }
    assert_eq!((send(hca), recv(hca)), (full, full));
    let polled = hca.poll_completion(cq).unwrap();
    assert_eq!(polled.map(|completion| completion.wr_id), Some(1));
    assert_eq!((send(hca), recv(hca)), (Ok(()), full));
    assert_eq!(send(hca), full);

    // RESET drops completions.
    hca.modify_qp(qpn, &to(QpState::Reset), None).unwrap();
    let other = pair.sides[B].create_qp();
    pair.connect([qpn, other], attr());
    let hca = &mut pair.sides[A].hca;
    for _ in 0..2 {
        assert_eq!((send(hca), recv(hca)), (Ok(()), Ok(())));
    }
    assert_eq!((send(hca), recv(hca)), (full, full));
}

#[test]
fn a_full_completion_queue_fails_its_queue_pairs_with_one_event() {
    let mut pair = World::pair(ferroce_testing::config());
    pair.sides[B].watch_nothing();
    let cq = pair.sides[B].hca.create_cq(2).unwrap();
    let init = QpInit {
        send_cq: cq,
        recv_cq: cq,
        ..pair.sides[B].init()
    };
    let others = pair.sides[B].init();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for init in [init, init, others] {
        a.push(pair.sides[A].create_qp());
        b.push(pair.sides[B].hca.create_qp(&init).unwrap());
    }
    for n in 0..3 {
        pair.connect([a[n], b[n]], attr());
        recvs(&mut pair.sides[B], b[n], 0..8);
    }
    for wr_id in 0..4 {
        send(&mut pair, a[0], wr_id, SendFlags::SIGNALED);
    }
    pair.run();
    let side = &pair.sides[B];
    assert_eq!(side.state(b[0]), QpState::Err);
    assert_eq!(count(side, Event::CqOverrun(cq)), 1);
    assert_eq!(count(side, Event::QpFatal(b[0])), 1);
    assert_eq!(
        side.state(b[1]),
        QpState::Rts,
        "it has not used the queue yet"
    );
    // The peer's requests after the third went unanswered.
    assert_eq!(pair.sides[A].state(a[0]), QpState::Err);
    let statuses: Vec<_> = pair.sides[A]
        .completions
        .iter()
        .map(|wc| wc.status)
        .collect();
    let (ok, lost) = (WcStatus::Success, WcStatus::RetryExcErr);
    assert_eq!(statuses, [ok, ok, ok, lost]);

    // What the queue held can be read; nothing new is added, even with room.
    let taken = polled(&mut pair.sides[B], cq);
    assert_eq!(taken, [(0, WcStatus::Success), (1, WcStatus::Success)]);
    send(&mut pair, a[1], 0, SendFlags::SIGNALED);
    pair.run();
    let side = &pair.sides[B];
    assert_eq!(side.state(b[1]), QpState::Err);
    assert_eq!(count(side, Event::QpFatal(b[1])), 1);
    assert_eq!(count(side, Event::CqOverrun(cq)), 1, "once for each queue");
    assert_eq!(polled(&mut pair.sides[B], cq), []);

    // Work posted to a failed queue pair is flushed without a completion.
    recvs(&mut pair.sides[B], b[0], 8..9);
    pair.settle();
    let side = &pair.sides[B];
    assert_eq!(count(side, Event::QpFatal(b[0])), 1);
    assert_eq!(count(side, Event::CqOverrun(cq)), 1);

    // A queue pair with another completion queue keeps working.
    assert_eq!(side.state(b[2]), QpState::Rts);
    send(&mut pair, a[2], 0, SendFlags::SIGNALED);
    pair.run();
    let done = polled(&mut pair.sides[B], others.recv_cq);
    assert_eq!(done, [(0, WcStatus::Success)]);
    pair.sides[B].hca.audit();
}

#[test]
fn a_send_queue_without_room_for_completions_fails_too() {
    let (mut pair, [_, b]) = World::connected();
    pair.sides[A].watch_nothing();
    let cq = pair.sides[A].hca.create_cq(1).unwrap();
    let init = QpInit {
        send_cq: cq,
        ..pair.sides[A].init()
    };
    let a = pair.sides[A].hca.create_qp(&init).unwrap();
    pair.sides[B].move_to(b, QpState::Reset);
    pair.connect([a, b], attr());
    recvs(&mut pair.sides[B], b, 0..8);
    send(&mut pair, a, 0, SendFlags::empty());
    send(&mut pair, a, 1, SendFlags::SIGNALED);
    send(&mut pair, a, 2, SendFlags::empty());
    pair.run();
    assert_eq!(
        pair.sides[A].state(a),
        QpState::Rts,
        "nothing came of two of three"
    );
    send(&mut pair, a, 3, SendFlags::SIGNALED);
    pair.run();
    let side = &pair.sides[A];
    assert_eq!(side.state(a), QpState::Err);
    assert_eq!(count(side, Event::CqOverrun(cq)), 1);
    assert_eq!(count(side, Event::QpFatal(a)), 1);
    assert_eq!(polled(&mut pair.sides[A], cq), [(1, WcStatus::Success)]);
    pair.sides[A].hca.audit();
}

#[test]
fn an_armed_queue_announces_what_it_was_armed_for() {
    let (mut pair, [a, b]) = World::connected();
    let cq = pair.sides[B].cq;
    recvs(&mut pair.sides[B], b, 0..10);
    let announced = |pair: &mut World, notify, flags: SendFlags| {
        if let Some(notify) = notify {
            pair.sides[B].hca.req_notify_cq(cq, notify).unwrap();
        }
        let before = count(&pair.sides[B], Event::Completion(cq));
        send(pair, a, 0, flags);
        pair.run();
        count(&pair.sides[B], Event::Completion(cq)) - before
    };
    let plain = SendFlags::empty();
    let solicited = SendFlags::SOLICITED;
    assert_eq!(announced(&mut pair, None, solicited), 0);
    assert_eq!(announced(&mut pair, Some(Notify::Any), plain), 1);
    assert_eq!(announced(&mut pair, None, solicited), 0, "once");
    assert_eq!(announced(&mut pair, Some(Notify::Solicited), plain), 0);
    assert_eq!(announced(&mut pair, None, solicited), 1);
    assert_eq!(announced(&mut pair, Some(Notify::Solicited), plain), 0);
    assert_eq!(announced(&mut pair, Some(Notify::Any), plain), 1);

    // An error counts as a solicited event.
    let armed = pair.sides[B].hca.req_notify_cq(cq, Notify::Solicited);
    armed.unwrap();
    let before = count(&pair.sides[B], Event::Completion(cq));
    pair.sides[B].move_to(b, QpState::Err);
    pair.settle();
    assert_eq!(count(&pair.sides[B], Event::Completion(cq)), before + 1);
    let flushed = pair.count(B, Counter::RespCqeFlushError);
    assert_eq!(flushed, 3, "what was left of ten");
}

/// A program may arm and go to sleep without another poll.
#[test]
fn arming_announces_waiting_completions() {
    let (mut pair, [a, b]) = World::connected();
    let cq = pair.sides[B].cq;
    let event = Event::Completion(cq);
    pair.sides[B].watch_nothing();
    recvs(&mut pair.sides[B], b, 0..3);
    let armed = |pair: &mut World, notify| {
        let before = count(&pair.sides[B], event);
        pair.sides[B].hca.req_notify_cq(cq, notify).unwrap();
        pair.settle();
        count(&pair.sides[B], event) - before
    };
    send(&mut pair, a, 0, SendFlags::empty());
    pair.run();
    assert_eq!(armed(&mut pair, Notify::Solicited), 0);
    assert_eq!(armed(&mut pair, Notify::Any), 1);
    send(&mut pair, a, 0, SendFlags::SOLICITED);
    pair.run();
    assert_eq!(count(&pair.sides[B], event), 1, "the arming is used up");
    assert_eq!(armed(&mut pair, Notify::Solicited), 1);
    assert_eq!(polled(&mut pair.sides[B], cq).len(), 2);
    assert_eq!(armed(&mut pair, Notify::Solicited), 0);

    // An error counts as solicited.
    pair.sides[B].move_to(b, QpState::Err);
    pair.settle();
    assert_eq!(count(&pair.sides[B], event), 3);
    assert_eq!(armed(&mut pair, Notify::Solicited), 1, "nor polled it");
}

#[test]
fn a_shared_queue_serves_all_queue_pairs_and_reports_its_limit() {
    let mut pair = World::pair(ferroce_testing::config());
    let pd = pair.sides[B].pd;
    let srq = pair.sides[B].hca.create_srq(pd, 16, 1).unwrap();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for n in 0..3 {
        a.push(pair.sides[A].create_qp());
        b.push(pair.sides[B].create_qp_with_srq(srq));
        pair.connect([a[n], b[n]], attr());
    }
    let sink = pair.sides[B].register(64, AccessFlags::LOCAL_WRITE);
    let post = |pair: &mut World, ids: std::ops::Range<u64>| {
        for wr_id in ids {
            let posted = pair.sides[B].hca.post_srq_recv(srq, recv_wr(wr_id, &sink));
            posted.unwrap();
        }
    };
    post(&mut pair, 0..8);
    let own = pair.sides[B].hca.post_recv(b[0], recv_wr(9, &sink));
    assert!(own.is_err(), "it has no queue of its own");
    assert!(pair.sides[B].hca.modify_srq(srq, &srq_limit(17)).is_err());
    pair.sides[B].hca.modify_srq(srq, &srq_limit(6)).unwrap();
    let low = Event::SrqLimit(srq);
    for (n, expected) in [(0, 0), (1, 0), (2, 1), (0, 1)] {
        send(&mut pair, a[n], 7, SendFlags::SIGNALED);
        pair.run();
        assert_eq!(count(&pair.sides[B], low), expected);
    }
    let ids: Vec<_> = pair.sides[B]
        .completions
        .iter()
        .map(|wc| wc.wr_id)
        .collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    let of: Vec<_> = pair.sides[B].completions.iter().map(|wc| wc.qpn).collect();
    assert_eq!(of, [b[0], b[1], b[2], b[0]]);

    // The event is raised once for each arming, and not at all when disarmed.
    pair.sides[B].hca.modify_srq(srq, &srq_limit(5)).unwrap();
    pair.sides[B].hca.modify_srq(srq, &srq_limit(0)).unwrap();
    for _ in 0..4 {
        send(&mut pair, a[1], 7, SendFlags::SIGNALED);
    }
    pair.run();
    assert_eq!(count(&pair.sides[B], low), 1);

    // A sender that finds no receive tries again until there is one.
    send(&mut pair, a[2], 7, SendFlags::SIGNALED);
    pair.run_for(1_000_000);
    assert!(pair.count(B, Counter::OutOfBuffer) > 0);
    let done = pair.sides[A].completions.len();
    assert_eq!(done, 8);
    post(&mut pair, 8..9);
    pair.run();
    assert_eq!(pair.sides[A].completions.len(), 9);

    // The event follows when the failed queue pair has released its last request.
    pair.sides[B].move_to(b[1], QpState::Err);
    pair.settle();
    let reached = Event::Qp(b[1], QpEvent::LastWqeReached);
    assert_eq!(count(&pair.sides[B], reached), 1);
    pair.sides[B].hca.audit();
}

/// As with the card's own library: a program may free the objects that its completions point to.
#[test]
fn a_queue_pair_that_is_gone_or_reset_leaves_no_completions() {
    for is_reset in [false, true] {
        let (mut pair, [a, b]) = World::connected();
        let cq = pair.sides[B].cq;
        pair.sides[B].watch_nothing();
        let other = [A, B].map(|id| pair.sides[id].create_qp());
        pair.connect(other, attr());
        recvs(&mut pair.sides[B], b, 0..4);
        recvs(&mut pair.sides[B], other[B], 10..11);
        send(&mut pair, a, 0, SendFlags::empty());
        send(&mut pair, other[A], 0, SendFlags::empty());
        send(&mut pair, a, 0, SendFlags::empty());
        pair.run();
        if is_reset {
            pair.sides[B].move_to(b, QpState::Err);
            pair.sides[B].move_to(b, QpState::Reset);
        } else {
            pair.sides[B].hca.destroy_qp(b).unwrap();
        }
        let left = polled(&mut pair.sides[B], cq);
        assert_eq!(left, [(10, WcStatus::Success)]);
    }
}

#[test]
fn a_completion_queue_shrinks_to_what_waits_in_it_and_grows() {
    let (mut pair, [a, b]) = World::connected();
    pair.sides[A].watch_nothing();
    let cq = pair.sides[A].cq;
    recvs(&mut pair.sides[B], b, 0..8);
    for wr_id in 0..4 {
        send(&mut pair, a, wr_id, SendFlags::SIGNALED);
    }
    pair.run();
    let hca = &mut pair.sides[A].hca;
    assert!(hca.resize_cq(cq, 3).is_err());
    assert!(hca.resize_cq(cq, 0).is_err());
    assert!(hca.resize_cq(cq, limits::MAX_CQE + 1).is_err());
    assert_eq!(hca.cq_capacity(cq), Ok(1 << 16));
    hca.resize_cq(cq, 4).unwrap();
    assert_eq!(hca.cq_capacity(cq), Ok(4));
    hca.resize_cq(cq, 5).unwrap();
    for wr_id in 4..6 {
        assert_eq!(pair.sides[A].state(a), QpState::Rts);
        send(&mut pair, a, wr_id, SendFlags::SIGNALED);
        pair.run();
    }
    assert_eq!(
        pair.sides[A].state(a),
        QpState::Err,
        "the sixth has no room"
    );
    assert_eq!(polled(&mut pair.sides[A], cq).len(), 5);
}

#[test]
fn completions_carry_the_time_of_the_device() {
    let (mut pair, [a, b]) = World::connected();
    recvs(&mut pair.sides[B], b, 0..1);
    let posted = pair.now;
    send(&mut pair, a, 0, SendFlags::SIGNALED);
    pair.run();
    let received = pair.sides[B].completions[0].timestamp;
    let sent = pair.sides[A].completions[0].timestamp;
    assert_eq!(received, posted.after(Span::from_nanos(LATENCY_NS)));
    assert_eq!(sent, posted.after(Span::from_nanos(2 * LATENCY_NS)));
}

#[test]
fn a_shared_queue_changes_as_a_whole_or_not_at_all() {
    let mut pair = World::pair(ferroce_testing::config());
    let side = &mut pair.sides[B];
    let srq = side.hca.create_srq(side.pd, 4, 3).unwrap();
    let sink = side.register(64, AccessFlags::LOCAL_WRITE);
    for wr_id in 0..3 {
        side.hca.post_srq_recv(srq, recv_wr(wr_id, &sink)).unwrap();
    }
    let attr = |max_wr, limit| SrqAttr {
        max_wr,
        max_sge: 3,
        limit,
    };
    let change = |max_wr, limit| SrqModify { max_wr, limit };
    assert_eq!(side.hca.query_srq(srq), Ok(attr(4, 0)));
    for refused in [
        change(Some(2), Some(1)),
        change(Some(0), None),
        change(Some(limits::MAX_SRQ_WR + 1), Some(1)),
        change(Some(8), Some(9)),
        change(None, Some(5)),
    ] {
        assert!(side.hca.modify_srq(srq, &refused).is_err(), "{refused:?}");
        assert_eq!(side.hca.query_srq(srq), Ok(attr(4, 0)));
    }
    side.hca.modify_srq(srq, &change(Some(8), Some(6))).unwrap();
    assert_eq!(side.hca.query_srq(srq), Ok(attr(8, 6)));
    for wr_id in 3..8 {
        side.hca.post_srq_recv(srq, recv_wr(wr_id, &sink)).unwrap();
    }
    assert!(side.hca.post_srq_recv(srq, recv_wr(8, &sink)).is_err());

    // The limit is cleared once it was reported.
    let b = side.create_qp_with_srq(srq);
    let a = pair.sides[A].create_qp();
    pair.connect([a, b], ferroce_testing::attr());
    for _ in 0..3 {
        send(&mut pair, a, 7, SendFlags::SIGNALED);
    }
    pair.run();
    assert_eq!(count(&pair.sides[B], Event::SrqLimit(srq)), 1);
    let hca = &mut pair.sides[B].hca;
    assert_eq!(hca.query_srq(srq), Ok(attr(8, 0)));
    // The queue shrinks, and its limit with it.
    hca.modify_srq(srq, &srq_limit(8)).unwrap();
    hca.modify_srq(srq, &change(Some(5), None)).unwrap();
    assert_eq!(hca.query_srq(srq), Ok(attr(5, 5)));
}

#[test]
fn every_queue_pair_takes_two_elements() {
    let mut pair = World::pair(ferroce_testing::config());
    let side = &mut pair.sides[A];
    let cap = QpCap {
        max_send_sge: 1,
        max_recv_sge: 0,
        ..QpCap::default()
    };
    let init = QpInit { cap, ..side.init() };
    let qpn = side.hca.create_qp(&init).unwrap();
    let given = side.hca.qp(qpn).unwrap().config().cap;
    assert_eq!([given.max_send_sge, given.max_recv_sge], [2, 2]);
    assert_eq!(given.max_send_wr, cap.max_send_wr);
}

/// A connected pair; B's queue pair and its shared receive queue have domains of their own.
struct Domains {
    pair: World,
    qpns: [Qpn; 2],
    srq: SrqId,
    of_qp: PdId,
    of_srq: PdId,
}

impl Domains {
    fn new() -> Self {
        let mut pair = World::pair(ferroce_testing::config());
        let b = &mut pair.sides[B];
        let (of_qp, of_srq) = (b.pd, b.hca.alloc_pd().unwrap());
        let srq = b.hca.create_srq(of_srq, 4, 1).unwrap();
        let qpns = [
            pair.sides[A].create_qp(),
            pair.sides[B].create_qp_with_srq(srq),
        ];
        pair.connect(qpns, attr());
        Self {
            pair,
            qpns,
            srq,
            of_qp,
            of_srq,
        }
    }

    /// A region of B's.
    fn region(&mut self, pd: PdId) -> Region {
        let b = &mut self.pair.sides[B];
        b.pd = pd;
        let region = b.register(64, AccessFlags::all());
        b.pd = self.of_qp;
        region
    }

    /// How a request of `from` completes.
    fn request(&mut self, from: usize, op: SendOp, into: &Region) -> WcStatus {
        let wr = SendWr::new(1, op, into.sge(0, 8));
        self.pair.post(from, self.qpns[from], wr);
        self.pair.run();
        let mut sent = self.pair.sides[from].completions.iter();
        sent.find(|wc| wc.wr_id == 1).unwrap().status
    }
}

/// As with cards: received data go where keys of the shared receive queue's domain allow, while
/// peers and requests use keys of the queue pair's domain.
#[test]
fn a_shared_queue_may_be_in_another_domain_than_its_queue_pairs() {
    for good in [true, false] {
        let pick = |own: PdId, other| if good { own } else { other };
        let status = |done: WcStatus, refused| if good { done } else { refused };
        // A message into a receive of the shared queue.
        let mut world = Domains::new();
        let pd = pick(world.of_srq, world.of_qp);
        let sink = world.region(pd);
        let b = &mut world.pair.sides[B];
        b.hca.post_srq_recv(world.srq, recv_wr(2, &sink)).unwrap();
        let own = world.pair.sides[A].register(64, AccessFlags::all());
        let sent = world.request(A, SEND, &own);
        assert_eq!(sent, status(WcStatus::Success, WcStatus::RemOpErr));
        let received = world.pair.sides[B].completions[0];
        assert_eq!(received.wr_id, 2);
        assert_eq!(
            received.status,
            status(WcStatus::Success, WcStatus::LocProtErr)
        );
        world.pair.sides[B].hca.audit();

        // What the peer accesses by its keys, and what is sent and fetched.
        for index in 0..5 {
            let mut world = Domains::new();
            let pd = pick(world.of_qp, world.of_srq);
            let own = world.pair.sides[A].register(64, AccessFlags::all());
            let region = world.region(pd);
            let (va, rkey) = (region.info.va, region.info.key.rkey());
            let to_a = (own.info.va, own.info.key.rkey());
            let imm = None;
            let (from, op, bad) = match index {
                0 => (A, SendOp::Write { va, rkey, imm }, WcStatus::RemAccessErr),
                1 => (A, SendOp::Read { va, rkey }, WcStatus::RemAccessErr),
                2 => (
                    A,
                    SendOp::FetchAdd { va, rkey, add: 1 },
                    WcStatus::RemAccessErr,
                ),
                3 => {
                    let (va, rkey) = to_a;
                    (B, SendOp::Write { va, rkey, imm }, WcStatus::LocProtErr)
                }
                _ => {
                    let (va, rkey) = to_a;
                    (B, SendOp::Read { va, rkey }, WcStatus::LocProtErr)
                }
            };
            let local = if from == A { &own } else { &region };
            let done = world.request(from, op, local);
            assert_eq!(done, status(WcStatus::Success, bad), "{op:?}");
        }
    }
}

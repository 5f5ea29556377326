//! Lifetimes of packets, timers, memory and queue pairs.

use ferroce_device::{
    AccessFlags, Attr, Counter, Direction, Event, Hca, HcaConfig, Impairment, Limits, Memory, Path,
    QpAttr, QpEvent, QpInit, QpModify, QpState, QpType, SendOp, SendWr, Sge, Span, Time, WcStatus,
};
use ferroce_wire::Qpn;

use ferroce_testing::register::switch_adaptive;
use ferroce_testing::{A, B, SEND, World, attr, config};

fn write(pair: &mut World, qpn: Qpn, len: usize) {
    let own = pair.sides[A].register(len, AccessFlags::empty());
    let remote = pair.sides[B].register(len, AccessFlags::all());
    pair.post(A, qpn, SendWr::new(0, remote.write(), own.whole()));
}

#[test]
fn a_queue_pair_can_be_destroyed_with_everything_in_flight() {
    for id in [A, B] {
        let (mut pair, qpns) = World::connected();
        let source = pair.sides[B].register(1 << 20, AccessFlags::REMOTE_READ);
        let sink = pair.sides[A].register(1 << 20, AccessFlags::LOCAL_WRITE);
        let read = SendOp::Read {
            va: source.info.va,
            rkey: source.info.key.rkey(),
        };
        write(&mut pair, qpns[A], 8 << 20);
        pair.post(A, qpns[A], SendWr::new(1, read, sink.whole()));
        pair.run_for(2_500);
        assert!(pair.sides[A].hca.qp(qpns[A]).unwrap().in_flight() > 0);
        pair.sides[id].hca.destroy_qp(qpns[id]).unwrap();
        pair.sides[id].hca.audit();
        pair.run();
        assert!(pair.count(id, Counter::RxUnknownQp) > 0);
        pair.sides[id].hca.audit();
        let statuses: Vec<_> = pair.sides[A]
            .completions
            .iter()
            .map(|wc| wc.status)
            .collect();
        if id == A {
            assert_eq!(statuses, [], "it takes its completions with it");
        } else {
            let expected = [WcStatus::RetryExcErr, WcStatus::WrFlushErr];
            assert_eq!(statuses, expected);
        }
    }
}

/// Everything that the device knew of a queue pair is forgotten before its number is used again.
#[test]
fn a_reused_number_starts_without_state() {
    let config = HcaConfig {
        limits: Limits {
            max_qp: 1,
            ..Limits::MAX
        },
        ..config()
    };
    let mut pair = World::pair(config);
    let delay = Impairment {
        delay: Span::from_nanos(40_000),
        ..Impairment::default()
    };
    for (id, direction) in [(A, Direction::Egress), (B, Direction::Ingress)] {
        let hca = &mut pair.sides[id].hca;
        hca.set_impairment(direction, delay.clone()).unwrap();
    }
    let mut only = None;
    for round in 0..50_u32 {
        let qpns = [A, B].map(|id| pair.sides[id].create_qp());
        let only = *only.get_or_insert(qpns);
        assert_eq!(qpns, only, "the only number");
        // The queue pairs of each round have PSNs of their own, as programs choose them.
        let psns = [round << 16, 0x80_0000 + (round << 16)];
        pair.connect_from(qpns, attr(), psns);
        write(&mut pair, qpns[A], 20_000);
        let before = pair.sides[A].completions.len();
        if round % 5 == 4 {
            // Packets of earlier rounds are still in the links, and change nothing.
            pair.run();
            assert_eq!(pair.sides[A].completions.len(), before + 1);
            assert_eq!(pair.sides[A].completions[before].status, WcStatus::Success);
        } else {
            pair.run_for(u64::from(round) * 1_000);
        }
        for id in [A, B] {
            // Even if the output has not been drained.
            if round % 3 == 0 && id == A {
                write(&mut pair, qpns[A], 8);
                assert!(pair.sides[A].hca.wants_transmit());
            }
            pair.sides[id].hca.destroy_qp(qpns[id]).unwrap();
            pair.sides[id].hca.audit();
            assert!(!pair.sides[id].hca.wants_transmit());
        }
    }
    pair.run();
    assert_eq!(pair.sides[A].hca.poll_timeout(), None);
}

#[test]
fn memory_taken_away_from_a_requester_fails_its_request() {
    let (mut pair, [a, _]) = World::connected();
    let own = pair.sides[A].register(8 << 20, AccessFlags::empty());
    let remote = pair.sides[B].register(8 << 20, AccessFlags::all());
    pair.post(A, a, SendWr::new(3, remote.write(), own.whole()));
    pair.run_for(5_000);
    pair.sides[A].hca.dereg_mr(own.info.key).unwrap();
    pair.run();
    assert_eq!(pair.sides[A].state(a), QpState::Err);
    let completion = pair.sides[A].completions[0];
    assert_eq!(completion.wr_id, 3);
    assert_eq!(completion.status, WcStatus::LocProtErr);
    pair.sides[A].hca.audit();
}

#[test]
fn deregistering_a_responder_s_memory_fails_the_peer_s_request() {
    for is_read in [false, true] {
        let (mut pair, [a, b]) = World::connected();
        let own = pair.sides[A].register(8 << 20, AccessFlags::LOCAL_WRITE);
        let remote = pair.sides[B].register(8 << 20, AccessFlags::all());
        let op = match is_read {
            true => SendOp::Read {
                va: remote.info.va,
                rkey: remote.info.key.rkey(),
            },
            false => remote.write(),
        };
        pair.post(A, a, SendWr::new(4, op, own.whole()));
        pair.run_for(5_000);
        pair.sides[B].hca.dereg_mr(remote.info.key).unwrap();
        pair.run();
        assert_eq!(pair.sides[A].completions[0].status, WcStatus::RemAccessErr);
        assert_eq!(
            [pair.sides[A].state(a), pair.sides[B].state(b)],
            [QpState::Err; 2]
        );
        //= F11: a WRITE does not count.
        let refused = pair.count(B, Counter::RespRemoteAccessErrors);
        assert_eq!(refused, u64::from(is_read));
        let event = Event::Qp(b, QpEvent::AccessError);
        assert!(pair.sides[B].events.contains(&event));
    }
}

#[test]
fn a_packet_held_by_a_link_has_the_bytes_of_when_it_was_sent() {
    let (mut pair, [a, b]) = World::connected();
    let link = Impairment {
        delay: Span::from_nanos(100_000),
        ..Impairment::default()
    };
    let hca = &mut pair.sides[A].hca;
    hca.set_impairment(Direction::Egress, link).unwrap();
    let own = pair.sides[A].register(500, AccessFlags::empty());
    own.fill(1);
    let sent = own.bytes();
    let sink = pair.sides[B].register(500, AccessFlags::LOCAL_WRITE);
    pair.sides[B].recv(b, 0, &sink);
    pair.post(A, a, SendWr::new(0, SEND, own.whole()));
    pair.settle();
    // A program must not do this before the completion.
    own.fill(2);
    pair.sides[A].hca.dereg_mr(own.info.key).unwrap();
    pair.run();
    assert_eq!(sink.bytes(), sent);
}

/// A peer that keeps a queue pair waiting makes short timers follow long ones. Entries of the
/// timer heap that are useless then must not accumulate.
#[test]
fn timers_that_are_not_needed_any_more_do_not_pile_up() {
    let (mut pair, [a, _]) = World::connected();
    let attr = QpAttr {
        timeout: 31,
        ..attr()
    };
    pair.sides[A].move_to(a, QpState::Reset);
    // Two hours for an answer, and 10 us for each RNR NAK.
    switch_adaptive(&mut pair.sides[A].hca, false);
    let b = pair.sides[B].create_qp();
    pair.connect([a, b], attr);
    let region = pair.sides[A].register(8, AccessFlags::empty());
    pair.post(A, a, SendWr::new(0, SEND, region.whole()));
    for _ in 0..200 {
        pair.run_for(100_000);
        pair.sides[A].hca.audit();
    }
    assert!(pair.count(A, Counter::RnrNakRetryErr) > 1_000);
    assert_eq!(pair.sides[A].state(a), QpState::Rts);
}

/// 100 000 queue pairs, each with a timer.
#[test]
fn many_queue_pairs_have_their_timers() {
    const QPS: usize = 60_000;
    let mut hca = Hca::new(HcaConfig {
        trace_timers: true,
        ..config()
    });
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(2 * QPS as u32).unwrap();
    let memory = Memory::Phantom { addr: 0, len: 8 };
    let mr = hca.reg_mr(pd, memory, AccessFlags::empty()).unwrap();
    let init = QpInit::new(QpType::Rc, pd, cq);
    let path = Path {
        dest: [10, 0, 0, 2].into(),
        traffic_class: 0,
        sl: 0,
        port: 1,
    };
    let sge = Sge {
        addr: 0,
        length: 8,
        lkey: mr.key.lkey(),
    };
    let mut now = Time::ZERO;
    let mut qpns = Vec::new();
    for n in 0..QPS {
        let qpn = hca.create_qp(&init).unwrap();
        let attr = QpAttr {
            timeout: 8 + (n % 8) as u8,
            retry_cnt: 1,
            ..attr()
        };
        for change in [
            QpModify::init(attr),
            QpModify::rtr(attr),
            QpModify::rts(attr),
        ] {
            let path = change.mask.contains(Attr::AV).then_some(path);
            hca.modify_qp(qpn, &change, path).unwrap();
        }
        now = now.after(Span::from_nanos(100));
        hca.post_send(qpn, SendWr::new(n as u64, SEND, sge))
            .unwrap();
        assert!(hca.poll_transmit(now).is_some());
        assert!(hca.poll_transmit(now).is_none());
        qpns.push(qpn);
    }
    // A few are destroyed early.
    for qpn in qpns.iter().step_by(10) {
        hca.destroy_qp(*qpn).unwrap();
    }
    hca.audit();
    let mut sent = 0_u64;
    let mut expired = 0;
    while let Some(next) = hca.poll_timeout() {
        now = now.max(next);
        hca.handle_timeout(now);
        while hca.poll_transmit(now).is_some() {
            sent += 1;
        }
        while let Some(event) = hca.poll_event() {
            if let Event::TimerExpired { at, expiry, .. } = event {
                assert_eq!(at, now);
                expired += u64::from(!expiry.fatal);
            }
        }
    }
    hca.audit();
    assert_eq!(
        sent, expired,
        "a retransmission for each timer that ran out"
    );
    let mut failed = 0;
    while let Some(wc) = hca.poll_completion(cq).unwrap() {
        assert_eq!(wc.status, WcStatus::RetryExcErr);
        failed += 1;
    }
    assert_eq!(failed, QPS * 9 / 10);
}

/// A link that holds one packet back does not make later ones wait for a timer.
#[test]
fn an_undelayed_packet_overtakes_packets_held_by_the_link() {
    let (mut pair, [a, b]) = World::connected();
    let sink = pair.sides[B].register(8, AccessFlags::LOCAL_WRITE);
    for wr_id in 0..2 {
        pair.sides[B].recv(b, wr_id, &sink);
        let source = pair.sides[A].register(8, AccessFlags::empty());
        pair.post(A, a, SendWr::new(wr_id, SEND, source.whole()));
    }
    let now = pair.now;
    let packets = [(); 2].map(|()| pair.sides[A].hca.poll_transmit(now).unwrap());
    let late = Impairment {
        reorder: 1.0,
        reorder_by: Span::from_nanos(1_000_000),
        ..Impairment::default()
    };
    for (packet, link) in packets.iter().rev().zip([late, Impairment::default()]) {
        let hca = &mut pair.sides[B].hca;
        hca.set_impairment(Direction::Ingress, link).unwrap();
        let mut bytes = [0; 8];
        assert!(pair.sides[A].hca.gather(packet, &mut bytes));
        pair.give(B, 0, &packet.headers, ferroce_device::Data::Bytes(&bytes));
    }
    pair.sides[B].collect(None, now);
    let done = |pair: &World| pair.sides[B].completions.len();
    assert_eq!(done(&pair), 1);
    pair.run();
    assert_eq!(done(&pair), 2);
}

/// A program that ends still has to acknowledge packets, but its memory is gone.
#[test]
fn a_device_with_revoked_memory_does_not_access_it() {
    let (mut pair, qpns) = World::connected();
    let sink = pair.sides[B].register(4096, AccessFlags::all());
    let own = pair.sides[A].register(4096, AccessFlags::empty());
    pair.post(A, qpns[A], SendWr::new(1, sink.write(), own.whole()));
    pair.run();
    assert_eq!(pair.sides[A].completions[0].status, WcStatus::Success);

    pair.sides[B].hca.revoke_memory();
    pair.post(A, qpns[A], SendWr::new(2, sink.write(), own.whole()));
    pair.run();
    let ended = &pair.sides[A].completions[1];
    assert_eq!(
        ended.status,
        WcStatus::RetryExcErr,
        "as if nobody was there"
    );
    assert!(pair.count(B, Counter::RxWrongState) > 0);
    pair.sides[B].hca.audit();
}

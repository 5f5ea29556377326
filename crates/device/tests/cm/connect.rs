use ferroce_device::cm::{CmError, CmEventKind, CmState, ConnectRequest, Transport};
use ferroce_device::{Counter, Direction, Ece, Impairment};
use ferroce_wire::cm::{Bits, Gid, Message, Private, RejectReason, Req};
use ferroce_wire::{Psn, Qpn};

use super::net::{A, B, MS, Net, SERVICE, address, ece, req_of};
use super::{REJ, REP, REQ, RTU};

#[test]
fn both_sides_learn_everything_about_each_other() {
    let mut net = Net::new();
    let active = net.connect(0x111);
    let event = net.until(B, |_| true);
    let passive = event.comm;
    let CmEventKind::Request { source, req } = event.kind else {
        panic!("{event:?}");
    };
    assert_eq!(source, address(A));
    assert_eq!(Transport::of(&req), Some(Transport::Rc));
    assert_eq!(
        (req.qpn, req.starting_psn),
        (Qpn::new(0x111), Psn::new(0x112))
    );
    assert_eq!((req.responder_resources, req.initiator_depth), (4, 3));
    assert_eq!(
        (req.retry_count.value(), req.rnr_retry_count.value()),
        (6, 5)
    );
    assert_eq!((req.mtu.value(), req.ack_timeout.value()), (3, 19));
    assert_eq!((req.service_id, req.traffic_class), (SERVICE, 0x68));
    assert_eq!(req.service_level.value(), 2);
    assert_eq!(Ece::from(&*req), ece(0x111));
    assert_eq!(
        (req.local_gid, req.remote_gid),
        (Gid::from(address(A)), Gid::from(address(B)))
    );
    assert_eq!(req.private.0[..7], *b"please\0");

    net.accept(passive, 0x222);
    let event = net.until(A, |_| true);
    assert_eq!(event.comm, active);
    let CmEventKind::Reply { rep } = event.kind else {
        panic!("{event:?}");
    };
    assert_eq!(
        (rep.qpn, rep.starting_psn),
        (Qpn::new(0x222), Psn::new(0x224))
    );
    assert_eq!((rep.responder_resources, rep.initiator_depth), (2, 1));
    assert_eq!((rep.target_ack_delay.value(), rep.srq), (16, true));
    assert_eq!(Ece::from(&*rep), ece(0x222));
    assert_eq!(rep.private.0[..7], *b"gladly\0");

    net.ready(active);
    let private = Private::new(b"ready").unwrap();
    net.until(B, |kind| *kind == CmEventKind::Established { private });
    net.run_out();
    assert_eq!(net.messages(), [(A, REQ), (B, REP), (A, RTU)]);
    for (side, comm, own, other) in [(A, active, 0x111, 0x222), (B, passive, 0x222, 0x111)] {
        let info = net.world.sides[side]
            .hca
            .cm()
            .connections()
            .find(|info| info.comm == comm)
            .unwrap();
        assert_eq!(info.state, CmState::Established);
        assert_eq!(
            (info.local_qpn.value(), info.remote_qpn.value()),
            (own, other)
        );
        assert_eq!((info.peer, info.service_id), (address(1 - side), SERVICE));
    }
}

#[test]
fn messages_of_one_conversation_have_one_transaction() {
    let mut net = Net::new();
    net.connected([0x111, 0x222]);
    assert!(
        net.seen
            .iter()
            .all(|seen| seen.mad.tid == net.seen[0].mad.tid)
    );
}

#[test]
fn a_program_is_called_once_for_many_events() {
    let mut net = Net::new();
    net.connect(0x111);
    net.connect(0x113);
    net.settle();
    assert_eq!(net.announced(B), 1);
    assert_eq!(net.events(B).len(), 2);
    net.connect(0x115);
    net.settle();
    assert_eq!(net.announced(B), 1);
}

#[test]
fn a_rejection_carries_reason_and_data() {
    let mut net = Net::new();
    let active = net.connect(0x111);
    let passive = net.until_request();
    let private = Private::new(b"no").unwrap();
    let (now, reason) = (net.world.now, RejectReason::CONSUMER);
    net.world.sides[B]
        .hca
        .cm_mut()
        .reject(now, passive, reason, private)
        .unwrap();
    let event = net.until(A, |kind| *kind == CmEventKind::Rejected { reason, private });
    assert_eq!(event.comm, active);
    assert_eq!(net.state(A, active), Some(CmState::Idle));
    net.run_out();
    assert_eq!((net.events(A), net.events(B)), (vec![], vec![]));
    for (side, comm) in [(A, active), (B, passive)] {
        assert!(net.disconnect(side, comm).is_err(), "{side}");
    }
    net.destroy(B, passive);
    net.destroy(A, active);
    net.run_out();
    assert_eq!((net.count(A), net.count(B)), (0, 0));
}

#[test]
fn the_active_side_can_reject_the_reply() {
    let mut net = Net::new();
    let active = net.connect(0x111);
    let passive = net.until_request();
    net.accept(passive, 0x222);
    net.until(A, |kind| matches!(kind, CmEventKind::Reply { .. }));
    let private = Private::new(b"too small").unwrap();
    let (now, reason) = (net.world.now, RejectReason::CONSUMER);
    net.world.sides[A]
        .hca
        .cm_mut()
        .reject(now, active, reason, private)
        .unwrap();
    let event = net.until(B, |kind| *kind == CmEventKind::Rejected { reason, private });
    assert_eq!(event.comm, passive);
    net.run_out();
    // It was never connected, so there is no TIME_WAIT.
    assert_eq!((net.events(A), net.events(B)), (vec![], vec![]));
    assert_eq!(net.state(A, active), Some(CmState::Idle));
    assert!(net.disconnect(A, active).is_err());
    assert!(net.disconnect(B, passive).is_err());
}

#[test]
fn a_request_without_a_listener_is_repeated_and_rejected() {
    let mut net = Net::new();
    net.world.sides[B].hca.cm_mut().unlisten(SERVICE).unwrap();
    net.connect(0x111);
    let (reason, private) = (RejectReason::INVALID_SERVICE_ID, Private::default());
    net.until(A, |kind| *kind == CmEventKind::Rejected { reason, private });
    assert_eq!(net.messages(), [(A, REQ), (B, REJ)].repeat(8));
    assert_eq!((net.times(REQ)[7] - net.times(REQ)[0]) / 1_000_000, 254);
    assert_eq!(net.count(B), 0);
}

#[test]
fn a_request_reaches_a_listener_that_starts_late() {
    let mut net = Net::new();
    net.world.sides[B].hca.cm_mut().unlisten(SERVICE).unwrap();
    net.connect(0x111);
    while net.messages().len() < 6 {
        net.run(MS);
    }
    net.world.sides[B].hca.cm_mut().listen(SERVICE, 1).unwrap();
    net.until_request();
}

#[test]
fn a_service_has_one_listener_and_only_that_can_stop() {
    let mut net = Net::new();
    let cm = net.world.sides[B].hca.cm_mut();
    let error = cm.listen(SERVICE, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "something listens on Tcp port 7174 already; choose another port or end it first"
    );
    assert_eq!(cm.services().collect::<Vec<_>>(), [SERVICE]);
    cm.unlisten(SERVICE).unwrap();
    assert_eq!(
        cm.unlisten(SERVICE),
        Err(CmError::NotListening { service: SERVICE })
    );
}

#[test]
fn other_transports_are_named_or_refused() {
    for transport in [Transport::Uc, Transport::Xrc] {
        let mut net = Net::new();
        let request = ConnectRequest {
            transport,
            ..net.request(A, B, 0x111)
        };
        let now = net.world.now;
        net.world.sides[A]
            .hca
            .cm_mut()
            .connect(now, &request)
            .unwrap();
        net.until(B, |kind| {
            matches!(kind, CmEventKind::Request { req, .. } if Transport::of(req) == Some(transport))
        });
    }
    // Reliable datagrams.
    let mut net = Net::new();
    net.connect(0x111);
    net.settle();
    let mut mad = net.seen[0].mad;
    if let Message::Req(req) = &mut mad.message {
        req.transport = Bits::saturating(2);
        req.local_comm_id = 5;
        req.qpn = Qpn::new(0x999);
    }
    net.inject(address(A), B, 7, mad.message);
    net.settle();
    assert_eq!(net.messages(), [(A, REQ), (B, REJ)]);
}

#[test]
fn invalid_values_are_named_and_leave_no_state() {
    let mut net = Net::new();
    let good = net.request(A, B, 0x111);
    let now = net.world.now;
    let cases = [
        (
            ConnectRequest {
                retry_count: 8,
                ..good
            },
            "retry_count is 8; allowed: 0 to 7",
        ),
        (
            ConnectRequest {
                rnr_retry_count: 8,
                ..good
            },
            "rnr_retry_count is 8; allowed: 0 to 7",
        ),
        (
            ConnectRequest {
                ack_timeout: 32,
                ..good
            },
            "ack_timeout is 32; allowed: 0 to 31",
        ),
        (
            ConnectRequest {
                max_retries: 16,
                ..good
            },
            "max_retries is 16; allowed: 0 to 15",
        ),
        (
            ConnectRequest {
                packet_lifetime: 32,
                ..good
            },
            "packet_lifetime is 32; allowed: 0 to 31",
        ),
        (
            ConnectRequest {
                response_timeout: 32,
                ..good
            },
            "response_timeout is 32; allowed: 0 to 31",
        ),
    ];
    for (request, text) in cases {
        let error = net.world.sides[A]
            .hca
            .cm_mut()
            .connect(now, &request)
            .unwrap_err();
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(net.count(A), 0);
}

#[test]
fn calls_at_the_wrong_time_change_nothing() {
    let mut net = Net::new();
    let active = net.connect(0x111);
    let (now, private) = (net.world.now, Private::default());
    let reply = net.reply(1);
    let cm = net.world.sides[A].hca.cm_mut();
    let error = cm.accept(now, active, &reply).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a connection in state \"REQ sent\" cannot accept; REQ received can"
    );
    assert!(cm.ready(active, Private::default()).is_err());
    assert!(cm.establish(active).is_err());
    assert!(
        cm.reject(now, active, RejectReason::CONSUMER, private)
            .is_err()
    );
    assert!(net.disconnect(A, active).is_err());
    let passive = net.until_request();
    assert!(net.disconnect(B, passive).is_err());
    net.accept(passive, 0x222);
    let now = net.world.now;
    assert!(
        net.world.sides[B]
            .hca
            .cm_mut()
            .accept(now, passive, &reply)
            .is_err()
    );
    net.destroy(A, active);
    let error = net.world.sides[A]
        .hca
        .cm_mut()
        .destroy(now, active)
        .unwrap_err();
    assert_eq!(error, CmError::NoSuch { comm: active });
    assert_eq!(
        error.to_string(),
        format!(
            "there is no connection {:#010x}; it was never made, or destroyed",
            active.0
        )
    );
}

/// The program takes all requests, and then answers the first one.
#[test]
fn the_backlog_is_what_the_program_has_not_taken() {
    let mut net = Net::new();
    net.world.sides[B].hca.cm_mut().unlisten(SERVICE).unwrap();
    net.world.sides[B].hca.cm_mut().listen(SERVICE, 2).unwrap();
    for qpn in 0x100..0x105 {
        net.connect(qpn);
    }
    let mut taken = Vec::new();
    net.settle();
    assert_eq!(net.count(B), 2);
    while taken.len() < 5 {
        let comm = net.until_request();
        net.world.sides[B].hca.cm_mut().take_request(comm);
        taken.push(comm);
    }
    assert_eq!(net.counter(B, Counter::CmBacklogFull), 3 + 1);
    for (comm, qpn) in taken.iter().zip(0x200..) {
        // A request leaves the backlog only once.
        net.world.sides[B].hca.cm_mut().take_request(*comm);
        net.accept(*comm, qpn);
    }
    net.connect(0x105);
    net.until_request();
}

/// Requests that the program refuses, destroys or accepts before it takes them leave the backlog as
/// well, and so do those that the peer gives up.
#[test]
fn finished_requests_leave_the_backlog() {
    let mut net = Net::new();
    net.world.sides[B].hca.cm_mut().unlisten(SERVICE).unwrap();
    net.world.sides[B].hca.cm_mut().listen(SERVICE, 1).unwrap();
    let (reason, private) = (RejectReason::CONSUMER, Private::default());
    for (round, qpn) in (0..8).zip(0x100..) {
        let active = net.connect(qpn);
        let passive = net.until_request();
        let now = net.world.now;
        let cm = net.world.sides[B].hca.cm_mut();
        match round % 4 {
            0 => cm.reject(now, passive, reason, private).unwrap(),
            1 => cm.destroy(now, passive).unwrap(),
            2 => net.accept(passive, qpn + 0x100),
            _ => net.destroy(A, active),
        }
        net.settle();
        net.events(A);
        net.events(B);
    }
    assert_eq!(net.counter(B, Counter::CmBacklogFull), 0);
}

#[test]
fn a_path_mtu_is_one_that_the_port_has() {
    for mtu in 0..=15 {
        let mut net = Net::new();
        let req = Req {
            local_comm_id: 1,
            service_id: SERVICE,
            qpn: Qpn::new(0x111),
            mtu: Bits::saturating(mtu),
            ..req_of(address(A))
        };
        net.inject(address(A), B, 7, req);
        net.settle();
        let asked = net.events(B).len();
        let refused = net.seen.iter().filter(
            |seen| matches!(seen.mad.message, Message::Rej(rej) if rej.reason == RejectReason(26)),
        );
        let expected = if (1..=4).contains(&mtu) {
            (1, 0)
        } else {
            (0, 1)
        };
        assert_eq!((asked, refused.count()), expected, "{mtu}");
    }
}

#[test]
fn a_device_connects_to_itself() {
    let mut net = Net::of(1);
    net.world.sides[A].hca.cm_mut().listen(SERVICE, 1).unwrap();
    let request = net.request(A, A, 0x111);
    let (now, reply) = (net.world.now, net.reply(0x222));
    let active = net.world.sides[A]
        .hca
        .cm_mut()
        .connect(now, &request)
        .unwrap();
    let passive = net
        .until(A, |kind| matches!(kind, CmEventKind::Request { .. }))
        .comm;
    let now = net.world.now;
    net.world.sides[A]
        .hca
        .cm_mut()
        .accept(now, passive, &reply)
        .unwrap();
    net.until(A, |kind| matches!(kind, CmEventKind::Reply { .. }));
    net.ready(active);
    let event = net.until(A, |kind| matches!(kind, CmEventKind::Established { .. }));
    assert_eq!(event.comm, passive);
}

#[test]
fn a_thousand_connections_come_and_go() {
    let mut net = Net::new();
    net.world.sides[B].hca.cm_mut().unlisten(SERVICE).unwrap();
    net.world.sides[B]
        .hca
        .cm_mut()
        .listen(SERVICE, 1_000)
        .unwrap();
    let active: Vec<_> = (0..1_000).map(|n| net.connect(0x1000 + n)).collect();
    net.settle();
    let mut passive = Vec::new();
    while let Some(event) = net.world.sides[B].hca.poll_cm_event() {
        net.accept(event.comm, 0x2000 + passive.len() as u32);
        passive.push(event.comm);
    }
    assert_eq!(passive.len(), 1_000);
    net.settle();
    for comm in &active {
        net.ready(*comm);
    }
    net.settle();
    let is_established =
        |net: &Net, side, comm| net.state(side, comm) == Some(CmState::Established);
    assert!(active.iter().all(|comm| is_established(&net, A, *comm)));
    assert!(passive.iter().all(|comm| is_established(&net, B, *comm)));
    for comm in active {
        net.destroy(A, comm);
    }
    net.settle();
    for comm in passive {
        net.destroy(B, comm);
    }
    net.run_out();
    assert_eq!((net.count(A), net.count(B)), (0, 0));
}

/// Messages are subject to the same impairments as packets.
#[test]
fn messages_are_impaired_and_counted() {
    use ferroce_device::Counter::{ImpairLost, RdmaRxPackets, RdmaTxPackets};
    let mut net = Net::new();
    let lossy = Impairment {
        loss: 1.0,
        ..Impairment::default()
    };
    net.world.sides[A]
        .hca
        .set_impairment(Direction::Egress, lossy)
        .unwrap();
    net.connect(0x111);
    net.settle();
    assert_eq!((net.messages(), net.counter(A, ImpairLost)), (vec![], 1));
    net.world.sides[A]
        .hca
        .set_impairment(Direction::Egress, Impairment::default())
        .unwrap();
    net.until_request();
    assert_eq!(net.counter(A, RdmaTxPackets), 1);
    assert_eq!(net.counter(B, RdmaRxPackets), 1);
}

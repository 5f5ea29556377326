use ferroce_device::cm::{CmEventKind, CmState, Owner};
use ferroce_device::{Counter, Data, Received};
use ferroce_wire::cm::GSI_QKEY;
use ferroce_wire::cm::{
    Answered, Drep, Dreq, Mad, Message, Mra, PortSpace, Private, Rej, RejectReason, Rep, Req, Rtu,
    ServiceId, SidrRep, SidrReq,
};
use ferroce_wire::{Deth, Headers, Psn, Qpn};

use super::net::{A, B, Net, SERVICE, address, req_of};
use super::{DREP, REJ};

/// A third party, or a peer with wrong communication IDs, has no effect.
#[test]
fn outsiders_cannot_end_a_connection() {
    let mut net = Net::new();
    let [active, passive] = net.connected([0x111, 0x222]);
    net.seen.clear();
    let (stranger, peer) = ("127.13.0.99".parse().unwrap(), address(A));
    for (source, name) in [(stranger, active.0), (peer, active.0 + 1), (peer, 0)] {
        let (local_comm_id, remote_comm_id) = (name, passive.0);
        let messages: [Message; 4] = [
            Dreq {
                local_comm_id,
                remote_comm_id,
                remote_qpn: Qpn::new(0x222),
                private: Private::default(),
            }
            .into(),
            Drep {
                local_comm_id,
                remote_comm_id,
                private: Private::default(),
            }
            .into(),
            Rej {
                local_comm_id,
                remote_comm_id,
                reason: RejectReason::TIMEOUT,
                answered: Answered::Other.into(),
                ..Rej::default()
            }
            .into(),
            Rtu {
                local_comm_id,
                remote_comm_id,
                private: Private::default(),
            }
            .into(),
        ];
        for message in messages {
            net.inject(source, B, 1, message);
        }
    }
    net.run_out();
    assert_eq!(net.state(B, passive), Some(CmState::Established));
    assert_eq!((net.events(A), net.events(B)), (vec![], vec![]));
    assert!(net.messages().iter().all(|message| *message == (B, DREP)));
}

#[test]
fn messages_for_unknown_connections_get_at_most_one_answer() {
    let mut net = Net::new();
    let peer = address(A);
    net.inject(peer, B, 1, Rtu::default());
    net.inject(peer, B, 1, Mra::default());
    net.inject(peer, B, 1, Rej::default());
    net.inject(peer, B, 1, Drep::default());
    net.inject(peer, B, 1, SidrRep::default());
    net.settle();
    assert_eq!(net.messages(), []);
    net.inject(peer, B, 1, Dreq::default());
    net.inject(peer, B, 1, Rep::default());
    net.settle();
    assert_eq!(net.messages(), [(B, DREP), (B, REJ)]);
    assert_eq!(net.count(B), 0);
}

#[test]
fn malformed_messages_are_counted() {
    let mut net = Net::new();
    let now = net.world.now;
    let mad = Mad {
        tid: 1,
        message: Dreq::default().into(),
    };
    let good = (ferroce_wire::cm::headers(Psn::ZERO), mad.emit());
    let mut give = |change: fn(&mut Headers), payload: Data<'_>, counter| {
        let mut headers = good.0;
        change(&mut headers);
        let packet = Received {
            source: address(A),
            dest: address(B),
            traffic_class: 0,
            sl: 0,
            headers: &headers,
            data: payload,
            port: 1,
        };
        let before = net.world.sides[B].hca.state().counter(counter);
        net.world.sides[B].hca.handle_packet(now, &packet);
        assert_eq!(net.world.sides[B].hca.state().counter(counter), before + 1);
    };
    let bytes = Data::Bytes(&good.1);
    give(
        |headers| {
            let with_imm = Headers::datagram(headers.deth().unwrap(), Some(0));
            *headers = with_imm.to(headers.dest_qp, headers.psn);
        },
        bytes,
        Counter::RxWrongService,
    );
    give(
        |headers| {
            let deth = Deth {
                qkey: GSI_QKEY ^ 1,
                ..headers.deth().unwrap()
            };
            *headers = Headers::datagram(deth, None).to(headers.dest_qp, headers.psn);
        },
        bytes,
        Counter::RxWrongQkey,
    );
    give(|headers| headers.pkey = 1, bytes, Counter::RxWrongPkey);
    give(|_| {}, Data::Length(256), Counter::RxMalformed);
    give(|_| {}, Data::Bytes(&good.1[..255]), Counter::RxMalformed);
    give(|_| {}, Data::Bytes(&[0; 256]), Counter::RxMalformed);
    net.settle();
    assert_eq!(net.messages(), []);
}

/// A flood of requests fills only the backlog.
#[test]
fn a_flood_stays_within_bounds() {
    let mut net = Net::new();
    for name in 1..20_000 {
        let req = Req {
            local_comm_id: name,
            service_id: SERVICE,
            qpn: Qpn::new(name + 10),
            ..req_of(address(A))
        };
        net.inject(address(A), B, 1, req);
        if name % 2_000 == 0 {
            let elsewhere = Req {
                service_id: ServiceId(1),
                ..req
            };
            net.inject(address(A), B, 2, elsewhere);
        }
    }
    assert_eq!(net.count(B), 16);
    let requests = net.events(B);
    assert_eq!(requests.len(), 16);
    assert!(
        requests
            .iter()
            .all(|kind| matches!(kind, CmEventKind::Request { .. }))
    );
    for name in 0..20_000 {
        let dreq = Dreq {
            local_comm_id: name,
            ..Dreq::default()
        };
        net.inject(address(A), B, 1, dreq);
    }
    net.settle();
    assert!(net.messages().len() <= 4_096, "{}", net.messages().len());
}

#[test]
fn a_message_belongs_to_a_process() {
    let mut net = Net::new();
    let peer = address(A);
    let owner = |net: &Net, message: Message| {
        let mad = Mad { tid: 1, message };
        net.world.sides[B].hca.cm().owner(peer, &mad.emit())
    };
    let elsewhere = ServiceId::new(PortSpace::Tcp, 1);
    let mut req = Req {
        local_comm_id: 0x0200_0001,
        service_id: SERVICE,
        qpn: Qpn::new(0x111),
        ..req_of(peer)
    };
    assert_eq!(owner(&net, req.into()), Owner::Here);
    let other = Req {
        service_id: elsewhere,
        ..req
    };
    assert_eq!(owner(&net, other.into()), Owner::Service(elsewhere));
    let sidr = SidrReq {
        service_id: elsewhere,
        ..SidrReq::default()
    };
    assert_eq!(owner(&net, sidr.into()), Owner::Service(elsewhere));
    // A repeated request goes to the process that took it, even if another one listens by now.
    net.inject(peer, B, 1, req);
    net.world.sides[B].hca.cm_mut().unlisten(SERVICE).unwrap();
    assert_eq!(owner(&net, req.into()), Owner::Here);
    req.local_comm_id += 1;
    assert_eq!(owner(&net, req.into()), Owner::Service(SERVICE));

    for (name, expected) in [
        (0x01ff_ffff, Owner::Here),
        (0x0200_0000, Owner::Slot(2)),
        (0xfe00_0001, Owner::Slot(254)),
        (5, Owner::Any),
    ] {
        let remote_comm_id = name;
        let messages: [Message; 7] = [
            Mra {
                remote_comm_id,
                ..Mra::default()
            }
            .into(),
            Rej {
                remote_comm_id,
                ..Rej::default()
            }
            .into(),
            Rep {
                remote_comm_id,
                ..Rep::default()
            }
            .into(),
            Rtu {
                remote_comm_id,
                ..Rtu::default()
            }
            .into(),
            Dreq {
                remote_comm_id,
                ..Dreq::default()
            }
            .into(),
            Drep {
                remote_comm_id,
                ..Drep::default()
            }
            .into(),
            SidrRep {
                request_id: name,
                ..SidrRep::default()
            }
            .into(),
        ];
        for message in messages {
            assert_eq!(owner(&net, message), expected, "{message:?}");
        }
    }
    assert_eq!(
        net.world.sides[B].hca.cm().owner(peer, b"nonsense"),
        Owner::Any
    );
}

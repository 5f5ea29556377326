//! Which packets are dropped, and which counters they raise.

use ferroce_device::{
    AccessFlags, Counter, Data, Direction, Impairment, QpState, Received, SendWr, WcStatus,
};
use ferroce_wire::{
    Aeth, Connection, CreditCode, Deth, ExtensionValues, Headers, Opcode, Place, Psn, Qpn, Syndrome,
};

use ferroce_testing::{A, B, SEND, World};

/// Every cause of a drop.
const CAUSES: &[Counter] = &[
    Counter::RxIcrcEncapsulated,
    Counter::RxMalformed,
    Counter::RxUnknownQp,
    Counter::RxWrongState,
    Counter::RxWrongPeer,
    Counter::RxWrongPkey,
    Counter::RxWrongService,
    Counter::RxUnexpectedResponse,
    Counter::TxDropped,
];

fn request(qpn: Qpn) -> Headers {
    Headers::send(Connection::Rc, Place::Only, None).to(qpn, Psn::new(0x7f_fffe))
}

/// Delivers a packet to B, and returns the causes for which it was dropped.
#[track_caller]
fn dropped(pair: &mut World, headers: &Headers, source: [u8; 4]) -> Vec<Counter> {
    let counts = |pair: &World| CAUSES.iter().map(|c| pair.count(B, *c)).collect::<Vec<_>>();
    let before = counts(pair);
    let taken = pair.count(B, Counter::RdmaRxPackets);
    let received = Received {
        source: source.into(),
        dest: pair.sides[B].address,
        traffic_class: 0,
        sl: 0,
        headers,
        data: Data::Bytes(b"hello"),
        port: 1,
    };
    let now = pair.now;
    pair.sides[B].hca.handle_packet(now, &received);
    let after = counts(pair);
    let rises = CAUSES.iter().zip(before.iter().zip(after));
    let causes: Vec<_> = rises
        .filter(|(_, (before, after))| **before != *after)
        .map(|(cause, (before, after))| {
            assert_eq!(before + 1, after);
            *cause
        })
        .collect();
    let taken_now = pair.count(B, Counter::RdmaRxPackets) - taken;
    let is_for_a_qp = causes.is_empty() || causes == [Counter::RxUnexpectedResponse];
    assert_eq!(taken_now, u64::from(is_for_a_qp));
    causes
}

const PEER: [u8; 4] = [10, 0, 0, 1];

#[test]
fn each_cause_has_its_counter() {
    let (mut pair, [_, qpn]) = World::connected();
    let sink = pair.sides[B].register(100, AccessFlags::LOCAL_WRITE);
    for wr_id in 0..4 {
        pair.sides[B].recv(qpn, wr_id, &sink);
    }
    let good = request(qpn);
    assert_eq!(dropped(&mut pair, &good, PEER), []);

    for number in [0, 2, 0xff, 0x102, 0xff_ffff] {
        let headers = request(Qpn::new(number));
        let causes = dropped(&mut pair, &headers, PEER);
        assert_eq!(causes, [Counter::RxUnknownQp], "{number:#x}");
    }
    // Queue pair 1 takes datagrams.
    let causes = dropped(&mut pair, &request(Qpn::GSI), PEER);
    assert_eq!(causes, [Counter::RxWrongService]);
    let causes = dropped(&mut pair, &good, [10, 0, 0, 3]);
    assert_eq!(causes, [Counter::RxWrongPeer]);

    for pkey in [0, 0x7ffe, 0x8001, 0xfffe] {
        let mut headers = good;
        headers.pkey = pkey;
        let causes = dropped(&mut pair, &headers, PEER);
        assert_eq!(causes, [Counter::RxWrongPkey], "{pkey:#x}");
    }
    // A limited member of the default partition.
    let mut limited = good;
    limited.pkey = 0x7fff;
    limited.psn = good.psn.next();
    assert_eq!(dropped(&mut pair, &limited, PEER), []);

    for opcode in [Opcode::UdSendOnly, Opcode::UcSendOnly] {
        let deth = Deth {
            qkey: 0,
            src_qp: qpn,
        };
        let values = ExtensionValues {
            deth,
            ..ExtensionValues::default()
        };
        let headers = Headers::with_values(opcode, &values).to(qpn, good.psn);
        let causes = dropped(&mut pair, &headers, PEER);
        assert_eq!(causes, [Counter::RxWrongService], "{opcode:?}");
    }

    let aeth = Aeth {
        syndrome: Syndrome::Ack {
            credit: CreditCode::INVALID,
        },
        msn: 0,
    };
    let answer = Headers::acknowledge(aeth).to(qpn, good.psn);
    let causes = dropped(&mut pair, &answer, PEER);
    assert_eq!(causes, [Counter::RxUnexpectedResponse]);

    let link = Impairment {
        corrupt: 1.0,
        ..Impairment::default()
    };
    let hca = &mut pair.sides[B].hca;
    hca.set_impairment(Direction::Ingress, link).unwrap();
    let causes = dropped(&mut pair, &good, PEER);
    assert_eq!(causes, [Counter::RxIcrcEncapsulated]);
    let hca = &mut pair.sides[B].hca;
    hca.set_impairment(Direction::Ingress, Impairment::default())
        .unwrap();

    pair.sides[B].hca.destroy_qp(qpn).unwrap();
    let causes = dropped(&mut pair, &good, PEER);
    assert_eq!(causes, [Counter::RxUnknownQp]);
    pair.sides[B].hca.audit();
}

#[test]
fn queue_pairs_that_are_not_ready_drop_packets() {
    let (mut pair, [_, qpn]) = World::connected();
    let good = request(qpn);
    for state in [QpState::Err, QpState::Reset] {
        pair.sides[B].move_to(qpn, state);
        let causes = dropped(&mut pair, &good, PEER);
        assert_eq!(causes, [Counter::RxWrongState], "{state:?}");
    }
    let fresh = pair.sides[B].create_qp();
    let causes = dropped(&mut pair, &request(fresh), PEER);
    assert_eq!(causes, [Counter::RxWrongState]);
    // The reset has cleared the address of its last peer.
    assert_eq!(pair.sides[B].hca.query_qp(qpn).unwrap().2, None);
}

#[test]
fn host_events_are_counted_where_named() {
    let (mut pair, _) = World::connected();
    for (n, cause) in CAUSES.iter().enumerate() {
        pair.sides[A].hca.count(*cause, n as u64 + 1);
        assert_eq!(pair.count(A, *cause), n as u64 + 1, "{}", cause.name());
    }
}

#[test]
fn a_lossy_link_counts_every_packet_once() {
    let (mut pair, [a, b]) = World::connected();
    let link = Impairment {
        loss: 0.2,
        ecn_mark: 1.0,
        ..Impairment::default()
    };
    let hca = &mut pair.sides[B].hca;
    hca.set_impairment(Direction::Ingress, link).unwrap();
    let source = pair.sides[A].register(64, AccessFlags::empty());
    let sink = pair.sides[B].register(64, AccessFlags::LOCAL_WRITE);
    for wr_id in 0..100 {
        pair.sides[B].recv(b, wr_id, &sink);
        pair.post(A, a, SendWr::new(wr_id, SEND, source.whole()));
    }
    pair.run();
    let done = |id: usize| {
        let completions = &pair.sides[id].completions;
        assert!(completions.iter().all(|wc| wc.status == WcStatus::Success));
        completions.len()
    };
    assert_eq!([done(A), done(B)], [100, 100]);
    let lost = pair.count(B, Counter::ImpairLost);
    let taken = pair.count(B, Counter::RdmaRxPackets);
    assert!(lost > 0);
    assert_eq!(pair.sides[B].given, lost + taken);
    assert_eq!(pair.count(A, Counter::RdmaTxPackets), pair.sides[B].given);
    assert_eq!(pair.count(B, Counter::ImpairEcnMarked), taken);
    assert_eq!(pair.count(B, Counter::NpEcnMarkedRocePackets), taken);
    let repeated = pair.count(A, Counter::RetransmittedPackets);
    assert_eq!(pair.sides[A].sent.0, 100 + repeated);
}

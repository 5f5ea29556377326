//! UD queue pairs and multicast groups.

use ferroce_device::{
    AccessFlags, Attr, Completion, Counter, Event, GRH_BYTES, Mtu, Object, Path, PostError, QpAttr,
    QpModify, QpState, QpType, SendOp, SendTo, SendWr, UdAddress, VerbsError, WcFlags, WcOpcode,
    WcStatus,
};
use ferroce_wire::{Connection, Headers, Place, Psn, Qpn};

use ferroce_testing::{A, B, Region, SEND, Side, World, attr, config, recv_wr};

const QKEY: u32 = 0x1234_5678;

fn devices() -> World {
    World::pair(config())
}

fn to(side: &Side, qpn: Qpn) -> UdAddress {
    UdAddress {
        path: Path {
            dest: side.address,
            traffic_class: 0x68,
            sl: 0,
            port: 1,
        },
        qpn,
        qkey: QKEY,
    }
}

fn wr(wr_id: u64, op: SendOp, region: &Region, to: UdAddress) -> SendWr {
    SendWr {
        to: SendTo::Datagram(to),
        ..SendWr::new(wr_id, op, region.whole())
    }
}

fn completion(side: &mut Side) -> Completion {
    assert_eq!(side.completions.len(), 1, "{:?}", side.completions);
    side.completions.remove(0)
}

/// A UD queue pair on each side, and a datagram of 100 bytes from A.
fn sent() -> (World, [Qpn; 2], Region) {
    let mut pair = devices();
    let qpns = [A, B].map(|id| pair.sides[id].create_ud(QKEY));
    let source = pair.sides[A].register(100, AccessFlags::empty());
    source.fill(1);
    (pair, qpns, source)
}

#[test]
fn a_datagram_arrives_behind_its_ip_header() {
    let (mut pair, [a, b], source) = sent();
    let sink = pair.sides[B].register(140, AccessFlags::LOCAL_WRITE);
    pair.sides[B].recv(b, 7, &sink);
    let address = to(&pair.sides[B], b);
    let op = SendOp::Send { imm: Some(0xabcd) };
    pair.post(A, a, wr(1, op, &source, address));
    pair.settle();
    let done = completion(&mut pair.sides[A]);
    assert_eq!(
        (done.wr_id, done.status),
        (1, WcStatus::Success),
        "when it has left"
    );
    pair.run();
    let got = completion(&mut pair.sides[B]);
    let expected = Completion {
        timestamp: pair.now,
        byte_len: 140,
        imm: 0xabcd,
        src_qp: a,
        flags: WcFlags::GRH | WcFlags::WITH_IMM,
        ..Completion::success(7, WcOpcode::Recv, b)
    };
    assert_eq!(got, expected);
    let bytes = sink.bytes();
    assert_eq!(bytes[20..22], [0x45, 0x68]);
    assert_eq!(bytes[32..40], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(bytes[40..], source.bytes());
    assert_eq!(pair.sides[B].sent.0, 0, "nobody answers");
}

#[test]
fn one_queue_pair_talks_to_many() {
    let mut pair = devices();
    let a = pair.sides[A].create_ud(QKEY);
    let peers: Vec<Qpn> = (0..5).map(|_| pair.sides[B].create_ud(QKEY)).collect();
    let source = pair.sides[A].register(8, AccessFlags::empty());
    let sink = pair.sides[B].register(48, AccessFlags::LOCAL_WRITE);
    for (wr_id, qpn) in (0..).zip(&peers) {
        pair.sides[B].recv(*qpn, wr_id, &sink);
        let address = to(&pair.sides[B], *qpn);
        pair.post(A, a, wr(wr_id, SEND, &source, address));
    }
    pair.run();
    let got: Vec<Qpn> = pair.sides[B].completions.iter().map(|c| c.qpn).collect();
    assert_eq!(got, peers);
    assert_eq!(pair.sides[A].completions.len(), 5);
}

#[test]
fn a_wrong_queue_key_is_dropped_and_counted() {
    let (mut pair, [a, b], source) = sent();
    let sink = pair.sides[B].register(140, AccessFlags::LOCAL_WRITE);
    pair.sides[B].recv(b, 7, &sink);
    let wrong = UdAddress {
        qkey: QKEY + 1,
        ..to(&pair.sides[B], b)
    };
    pair.post(A, a, wr(1, SEND, &source, wrong));
    pair.run();
    assert_eq!(pair.count(B, Counter::RxWrongQkey), 1);
    assert_eq!(pair.sides[B].completions, []);
    // The highest bit selects the sender's own Q_Key, which is the right one.
    let own = UdAddress {
        qkey: 1 << 31,
        ..to(&pair.sides[B], b)
    };
    pair.post(A, a, wr(2, SEND, &source, own));
    pair.run();
    assert_eq!(completion(&mut pair.sides[B]).status, WcStatus::Success);
}

#[test]
fn without_a_receive_that_is_long_enough_a_datagram_is_dropped() {
    let (mut pair, [a, b], source) = sent();
    let address = to(&pair.sides[B], b);
    pair.post(A, a, wr(1, SEND, &source, address));
    pair.run();
    assert_eq!(pair.count(B, Counter::OutOfBuffer), 1);
    // Room for the payload, not for the header before it.
    let short = pair.sides[B].register(139, AccessFlags::LOCAL_WRITE);
    pair.sides[B].recv(b, 7, &short);
    pair.post(A, a, wr(2, SEND, &source, address));
    pair.run();
    assert_eq!(pair.count(B, Counter::RespLocalLengthError), 1);
    assert_eq!(pair.sides[B].completions, []);
    // The receive still serves a shorter one.
    let small = SendWr {
        to: SendTo::Datagram(address),
        ..SendWr::new(3, SEND, source.sge(0, 99))
    };
    pair.post(A, a, small);
    pair.run();
    let got = completion(&mut pair.sides[B]);
    assert_eq!((got.wr_id, got.byte_len), (7, GRH_BYTES + 99));
    assert_eq!(pair.sides[B].state(b), QpState::Rts);
}

#[test]
fn a_receive_with_a_bad_key_fails_the_queue_pair() {
    let (mut pair, [a, b], source) = sent();
    let sink = pair.sides[B].register(140, AccessFlags::empty());
    pair.sides[B].recv(b, 7, &sink);
    let address = to(&pair.sides[B], b);
    pair.post(A, a, wr(1, SEND, &source, address));
    pair.run();
    assert_eq!(completion(&mut pair.sides[B]).status, WcStatus::LocProtErr);
    assert_eq!(pair.sides[B].state(b), QpState::Err);
}

#[test]
fn a_datagram_longer_than_the_port_allows_stops_the_send_queue() {
    let mut short = config();
    short.port_mtu = Mtu::Mtu1024;
    let mut pair = World::new([short, config()]);
    let [a, b] = [A, B].map(|id| pair.sides[id].create_ud(QKEY));
    let source = pair.sides[A].register(1025, AccessFlags::empty());
    let sink = pair.sides[B].register(2048, AccessFlags::LOCAL_WRITE);
    pair.sides[B].recv(b, 0, &sink);
    let address = to(&pair.sides[B], b);
    pair.post(A, a, wr(1, SEND, &source, address));
    pair.post(A, a, wr(2, SEND, &source, address));
    pair.run();
    let statuses = |side: &mut Side| -> Vec<(u64, WcStatus)> {
        side.completions
            .drain(..)
            .map(|c| (c.wr_id, c.status))
            .collect()
    };
    let failed = [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(statuses(&mut pair.sides[A]), failed);
    assert_eq!(pair.sides[A].state(a), QpState::Sqe);
    // The queue pair flushes what is posted, and still receives.
    pair.post(A, a, wr(3, SEND, &source, address));
    pair.settle();
    assert_eq!(statuses(&mut pair.sides[A]), [(3, WcStatus::WrFlushErr)]);
    // Until the program moves it back to RTS.
    pair.sides[A].move_to(a, QpState::Rts);
    let fits = SendWr {
        to: SendTo::Datagram(address),
        ..SendWr::new(4, SEND, source.sge(0, 1024))
    };
    pair.post(A, a, fits);
    pair.run();
    assert_eq!(statuses(&mut pair.sides[A]), [(4, WcStatus::Success)]);
    assert_eq!(statuses(&mut pair.sides[B]), [(0, WcStatus::Success)]);
}

#[test]
fn work_requests_must_suit_the_type() {
    let (mut pair, [a, b], source) = sent();
    let address = to(&pair.sides[B], b);
    let qp_type = QpType::Ud;
    let operation = "RDMA WRITE";
    let write = wr(1, source.write(), &source, address);
    assert_eq!(
        pair.sides[A].hca.post_send(a, write),
        Err(VerbsError::Post(PostError::Unsupported {
            qp_type,
            operation
        }))
    );
    let nowhere = SendWr::new(1, SEND, source.whole());
    assert_eq!(
        pair.sides[A].hca.post_send(a, nowhere),
        Err(VerbsError::Post(PostError::WrongAddress { qp_type }))
    );
    let connected = pair.sides[A].create_qp();
    let dest = pair.sides[B].address;
    pair.sides[A].connect(connected, dest, attr());
    assert_eq!(
        pair.sides[A]
            .hca
            .post_send(connected, wr(1, SEND, &source, address)),
        Err(VerbsError::Post(PostError::WrongAddress {
            qp_type: QpType::Rc
        }))
    );
}

#[test]
fn the_queue_key_can_be_changed_and_queried() {
    let (mut pair, [a, _], _) = sent();
    let side = &mut pair.sides[A];
    let attr = QpAttr {
        qkey: 99,
        ..QpAttr::default()
    };
    let change = QpModify::to(QpState::Rts, Attr::QKEY, attr);
    side.hca.modify_qp(a, &change, None).unwrap();
    let (state, attr, path) = side.hca.query_qp(a).unwrap();
    assert_eq!((state, attr.qkey, path), (QpState::Rts, 99, None));
    assert_eq!(attr.path_mtu, Mtu::Mtu4096);
    side.move_to(a, QpState::Reset);
    assert_eq!(side.hca.query_qp(a).unwrap().1.qkey, 0);
}

const MGID: [u8; 16] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];

/// The address of datagrams to [`MGID`].
fn group() -> UdAddress {
    UdAddress {
        path: Path {
            dest: [239, 1, 2, 3].into(),
            traffic_class: 0,
            sl: 0,
            port: 1,
        },
        qpn: Qpn::MULTICAST,
        qkey: QKEY,
    }
}

/// The queue pairs of the receptions that a side has seen.
fn received(side: &Side) -> Vec<Qpn> {
    let recvs = side
        .completions
        .iter()
        .filter(|c| c.opcode == WcOpcode::Recv);
    recvs.map(|c| c.qpn).collect()
}

/// All attached queue pairs, including those of the sender's own device, and no others.
#[test]
fn a_group_gets_a_copy_each() {
    let mut pair = devices();
    let a: Vec<Qpn> = (0..2).map(|_| pair.sides[A].create_ud(QKEY)).collect();
    let b: Vec<Qpn> = (0..3).map(|_| pair.sides[B].create_ud(QKEY)).collect();
    let other_key = pair.sides[B].create_ud(1);
    for (id, qpns) in [(A, &a[1..]), (B, &b[..2]), (B, &[other_key])] {
        for qpn in qpns {
            pair.sides[id].hca.attach_mcast(*qpn, MGID).unwrap();
            // Attaching again changes nothing.
            pair.sides[id].hca.attach_mcast(*qpn, MGID).unwrap();
        }
    }
    for (id, qpns) in [(A, &a), (B, &b)] {
        let sink = pair.sides[id].register(140, AccessFlags::LOCAL_WRITE);
        for qpn in qpns {
            pair.sides[id]
                .hca
                .post_recv(*qpn, recv_wr(9, &sink))
                .unwrap();
        }
    }
    let source = pair.sides[A].register(100, AccessFlags::empty());
    let group = group();
    pair.post(A, a[0], wr(1, SEND, &source, group));
    pair.run();
    assert_eq!(received(&pair.sides[A]), a[1..]);
    assert_eq!(received(&pair.sides[B]), b[..2]);
    assert_eq!(pair.count(B, Counter::RxWrongQkey), 1);
    let joins = pair.sides[B]
        .events
        .iter()
        .filter(|event| **event == Event::JoinGroup(group.path.dest));
    assert_eq!(joins.count(), 1);
}

#[test]
fn a_queue_pair_can_block_its_own_multicasts() {
    let mut pair = devices();
    let [blocking, hearing] = [0; 2].map(|_| pair.sides[A].create_ud(QKEY));
    let own = pair.sides[A].address;
    pair.sides[A].hca.block_own_mcast(blocking, own).unwrap();
    let sink = pair.sides[A].register(140, AccessFlags::LOCAL_WRITE);
    for qpn in [blocking, hearing] {
        let hca = &mut pair.sides[A].hca;
        hca.attach_mcast(qpn, MGID).unwrap();
        hca.post_recv(qpn, recv_wr(9, &sink)).unwrap();
    }
    let source = pair.sides[A].register(100, AccessFlags::empty());
    pair.post(A, blocking, wr(1, SEND, &source, group()));
    pair.run();
    assert_eq!(received(&pair.sides[A]), [hearing]);
    pair.post(A, hearing, wr(1, SEND, &source, group()));
    pair.run();
    assert_eq!(received(&pair.sides[A]), [hearing, blocking]);
}

#[test]
fn the_host_is_told_of_groups_that_are_joined_and_left() {
    let mut pair = devices();
    let side = &mut pair.sides[A];
    let [x, y] = [0; 2].map(|_| side.create_ud(QKEY));
    let group = [239, 1, 2, 3].into();
    side.hca.attach_mcast(x, MGID).unwrap();
    side.hca.attach_mcast(y, MGID).unwrap();
    assert_eq!(side.hca.groups().collect::<Vec<_>>(), [group]);
    let busy = VerbsError::Busy {
        object: Object::Qp,
        users: 1,
    };
    assert_eq!(side.hca.destroy_qp(x), Err(busy));
    side.hca.detach_mcast(x, MGID).unwrap();
    let gone = VerbsError::NotAttached { qpn: x, group };
    assert_eq!(side.hca.detach_mcast(x, MGID), Err(gone));
    side.hca.destroy_qp(x).unwrap();
    side.collect(None, pair.now);
    let side = &mut pair.sides[A];
    assert_eq!(side.events, [Event::JoinGroup(group)]);
    side.hca.detach_mcast(y, MGID).unwrap();
    side.collect(None, pair.now);
    assert_eq!(
        side.events,
        [Event::JoinGroup(group), Event::LeaveGroup(group)]
    );
    assert_eq!(side.hca.groups().count(), 0);
}

#[test]
fn only_datagrams_have_groups() {
    let mut pair = devices();
    let side = &mut pair.sides[A];
    let [rc, ud] = [QpType::Rc, QpType::Ud].map(|qp_type| side.create_qp_of(qp_type));
    let wrong = VerbsError::WrongType {
        actual: QpType::Rc,
        needed: QpType::Ud,
    };
    assert_eq!(side.hca.attach_mcast(rc, MGID), Err(wrong));
    let mut gid = MGID;
    gid[0] = 0xfe;
    let error = side.hca.attach_mcast(ud, gid).unwrap_err();
    assert_eq!(error, VerbsError::NotMulticast { gid: gid.into() });
}

/// A group's packet names no queue pair; it can only be a datagram.
#[test]
fn a_group_packet_of_another_service_is_dropped() {
    let mut pair = devices();
    let b = pair.sides[B].create_ud(QKEY);
    pair.sides[B].hca.attach_mcast(b, MGID).unwrap();
    let headers = Headers::send(Connection::Rc, Place::Only, None).to(Qpn::MULTICAST, Psn::ZERO);
    let received = ferroce_device::Received {
        source: pair.sides[A].address,
        dest: [239, 1, 2, 3].into(),
        traffic_class: 0,
        sl: 0,
        headers: &headers,
        data: ferroce_device::Data::Bytes(b"x"),
        port: 1,
    };
    pair.sides[B].hca.handle_packet(pair.now, &received);
    assert_eq!(pair.count(B, Counter::RxWrongService), 1);
}

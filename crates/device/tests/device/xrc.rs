//! XRC: domains, queue pairs that several handles share, and shared receive queues by number.

use ferroce_device::{
    AccessFlags, Buffer, CqId, Event, Hca, Memory, MrInfo, Object, Path, PdId, QpCap, QpEvent,
    QpInit, QpState, QpType, SendOp, SendTo, SendWr, Sge, SrqId, Srqn, VerbsError, WcOpcode,
    WcStatus, XrcObjects, XrcdId,
};
use ferroce_wire::{Psn, Qpn};

use ferroce_testing::{A, B, SEND, World, attr, config, recv_wr, srq_limit};

/// A shared receive queue with a protection domain and a completion queue of its own.
struct Inbox {
    pd: PdId,
    cq: CqId,
    srq: SrqId,
    number: Srqn,
}

impl Inbox {
    fn new(hca: &mut Hca, xrcd: XrcdId) -> Self {
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(16).unwrap();
        let srq = hca
            .create_xrc_srq(pd, XrcObjects { xrcd, cq }, 16, 2)
            .unwrap();
        let number = hca.srq_number(srq).unwrap();
        Self {
            pd,
            cq,
            srq,
            number,
        }
    }

    fn register(&self, hca: &mut Hca, len: usize) -> (MrInfo, Buffer) {
        let buffer = Buffer::zeroed(len);
        let memory = Memory::Buffer(buffer.clone());
        let info = hca.reg_mr(self.pd, memory, AccessFlags::all()).unwrap();
        (info, buffer)
    }

    fn recv(&self, hca: &mut Hca, wr_id: u64, info: &MrInfo) {
        let sge = Sge {
            addr: info.va,
            length: info.len as u32,
            lkey: info.key.lkey(),
        };
        let wr = ferroce_device::RecvWr {
            wr_id,
            sges: ferroce_device::Sges::from_buf([sge]),
        };
        hca.post_srq_recv(self.srq, wr).unwrap();
    }
}

/// A sends, B has two inboxes.
fn connected() -> (World, [Qpn; 2], XrcdId, [Inbox; 2]) {
    let mut pair = World::pair(config());
    let xrcd = pair.sides[B].hca.alloc_xrcd().unwrap();
    let inboxes = [0, 1].map(|_| Inbox::new(&mut pair.sides[B].hca, xrcd));
    let send = pair.sides[A].create_qp_of(QpType::XrcSend);
    let recv = pair.sides[B].hca.create_xrc_recv_qp(xrcd).unwrap();
    let qpns = [send, recv];
    let types = [QpType::XrcSend, QpType::XrcRecv];
    for own in [A, B] {
        let dest = pair.sides[1 - own].address;
        let path = Path {
            dest,
            traffic_class: 0,
            sl: 0,
            port: 1,
        };
        let mut attr = attr();
        attr.dest_qpn = qpns[1 - own];
        (attr.rq_psn, attr.sq_psn) = (Psn::new(5), Psn::new(5));
        pair.sides[own].ready(qpns[own], types[own], attr, Some(path));
    }
    (pair, qpns, xrcd, inboxes)
}

fn to(number: Srqn, wr_id: u64, op: SendOp, sge: Sge) -> SendWr {
    SendWr {
        to: SendTo::Srq(number),
        ..SendWr::new(wr_id, op, sge)
    }
}

fn statuses(pair: &mut World) -> Vec<(u64, WcStatus)> {
    let completions = std::mem::take(&mut pair.sides[A].completions);
    completions.iter().map(|c| (c.wr_id, c.status)).collect()
}

#[test]
fn a_message_completes_on_the_queue_of_the_srq_that_it_names() {
    let (mut pair, [send, recv], _, inboxes) = connected();
    let source = pair.sides[A].register(3000, AccessFlags::empty());
    source.fill(7);
    let b = &mut pair.sides[B].hca;
    let sinks = inboxes.each_ref().map(|inbox| {
        let (info, sink) = inbox.register(b, 3000);
        inbox.recv(b, 10, &info);
        inbox.recv(b, 11, &info);
        sink
    });
    b.modify_srq(inboxes[1].srq, &srq_limit(2)).unwrap();
    pair.post(A, send, to(inboxes[1].number, 1, SEND, source.whole()));
    pair.run();
    assert_eq!(statuses(&mut pair), [(1, WcStatus::Success)]);
    let b = &mut pair.sides[B];
    let got = b.hca.poll_completion(inboxes[1].cq).unwrap().unwrap();
    assert_eq!((got.wr_id, got.opcode, got.qpn), (10, WcOpcode::Recv, recv));
    assert_eq!(got.byte_len, 3000);
    let mut bytes = vec![0; 3000];
    sinks[1].read(0, &mut bytes);
    assert!(bytes == source.bytes());
    for cq in [inboxes[0].cq, inboxes[1].cq] {
        assert_eq!(b.hca.poll_completion(cq).unwrap(), None);
    }
    assert!(b.events.contains(&Event::SrqLimit(inboxes[1].srq)));
    b.hca.audit();
}

/// Answers to two READs wait at the same time, with keys of different domains.
#[test]
fn remote_keys_belong_to_the_domain_of_the_named_queue() {
    let (mut pair, [send, recv], _, inboxes) = connected();
    let sink = pair.sides[A].register(8000, AccessFlags::LOCAL_WRITE);
    let [one, two] = inboxes.each_ref().map(|inbox| {
        let (info, buffer) = inbox.register(&mut pair.sides[B].hca, 4000);
        buffer.write(0, &[inbox.srq.0 as u8 + 1; 4000]);
        info
    });
    let read = |info: &MrInfo| SendOp::Read {
        va: info.va,
        rkey: info.key.rkey(),
    };
    for (wr_id, inbox, info, offset) in [(1, &inboxes[0], one, 0), (2, &inboxes[1], two, 4000)] {
        let sge = sink.sge(offset, 4000);
        pair.post(A, send, to(inbox.number, wr_id, read(&info), sge));
    }
    pair.run();
    let good = |wr_id| (wr_id, WcStatus::Success);
    assert_eq!(statuses(&mut pair), [good(1), good(2)]);
    let expected = [[1; 4000], [2; 4000]].concat();
    assert!(sink.bytes() == expected);
    let sge = sink.sge(0, 4000);
    pair.post(A, send, to(inboxes[0].number, 3, read(&two), sge));
    pair.run();
    assert_eq!(statuses(&mut pair), [(3, WcStatus::RemAccessErr)]);
    assert_eq!(pair.sides[B].state(recv), QpState::Err);
}

#[test]
fn srqs_that_are_destroyed_or_of_another_domain_are_refused() {
    for case in 0..4 {
        let (mut pair, [send, recv], _, inboxes) = connected();
        let source = pair.sides[A].register(10, AccessFlags::empty());
        let b = &mut pair.sides[B];
        let number = match case {
            0 => {
                let other = b.hca.alloc_xrcd().unwrap();
                Inbox::new(&mut b.hca, other).number
            }
            1 => {
                let basic = b.hca.create_srq(b.pd, 1, 1).unwrap();
                b.hca.srq_number(basic).unwrap()
            }
            2 => {
                b.hca.destroy_srq(inboxes[0].srq).unwrap();
                inboxes[0].number
            }
            _ => Srqn::new(0xff_fffe),
        };
        pair.post(A, send, to(number, 1, SEND, source.whole()));
        pair.run();
        assert_eq!(statuses(&mut pair), [(1, WcStatus::RemInvReqErr)], "{case}");
        let b = &pair.sides[B];
        assert_eq!(b.state(recv), QpState::Err);
        let violation = Event::Qp(recv, QpEvent::AccessError);
        assert!(b.events.contains(&violation), "{case}: {:?}", b.events);
    }
}

#[test]
fn a_half_received_message_is_flushed_to_its_queue() {
    let (mut pair, [send, recv], _, inboxes) = connected();
    let source = pair.sides[A].register(20_000, AccessFlags::empty());
    let b = &mut pair.sides[B].hca;
    let (info, _) = inboxes[1].register(b, 20_000);
    inboxes[1].recv(b, 10, &info);
    let number = inboxes[1].number;
    pair.post(A, send, to(number, 1, SEND, source.sge(0, 20_000)));
    let first = pair.sides[A].hca.poll_transmit(pair.now).unwrap();
    let payload = [0; 1024];
    pair.give(B, 0, &first.headers, ferroce_device::Data::Bytes(&payload));
    pair.sides[B].move_to(recv, QpState::Err);
    let flushed = pair.sides[B].hca.poll_completion(inboxes[1].cq).unwrap();
    let flushed = flushed.map(|c| (c.wr_id, c.status, c.qpn));
    assert_eq!(flushed, Some((10, WcStatus::WrFlushErr, recv)));
}

#[test]
fn a_queue_pair_lives_until_every_open_is_matched_by_a_close() {
    let (mut pair, [_, recv], xrcd, inboxes) = connected();
    let b = &mut pair.sides[B].hca;
    let users = |object, users| Err(VerbsError::Busy { object, users });
    assert_eq!(b.dealloc_xrcd(xrcd), users(Object::Xrcd, 3));
    b.open_xrc_recv_qp(xrcd, recv).unwrap();
    b.audit();
    b.destroy_qp(recv).unwrap();
    assert_eq!(b.query_qp(recv).unwrap().0, QpState::Rts);
    b.destroy_qp(recv).unwrap();
    let no_such = |object, handle| Err(VerbsError::NoSuch { object, handle });
    let gone = no_such(Object::Qp, recv.value());
    assert_eq!(b.destroy_qp(recv), gone);
    assert_eq!(b.open_xrc_recv_qp(xrcd, recv), gone);
    for inbox in &inboxes {
        assert_eq!(b.destroy_cq(inbox.cq), users(Object::Cq, 1));
        assert_eq!(b.dealloc_pd(inbox.pd), users(Object::Pd, 1));
        b.destroy_srq(inbox.srq).unwrap();
        b.destroy_cq(inbox.cq).unwrap();
        b.dealloc_pd(inbox.pd).unwrap();
    }
    b.dealloc_xrcd(xrcd).unwrap();
    b.audit();
    let gone = no_such(Object::Xrcd, xrcd.0);
    assert_eq!(b.dealloc_xrcd(xrcd), gone);
    assert_eq!(b.create_xrc_recv_qp(xrcd).map(drop), gone);
}

#[test]
fn incompatible_objects_are_refused() {
    let (mut pair, [send, recv], xrcd, inboxes) = connected();
    let init = pair.sides[B].init();
    let b = &mut pair.sides[B];
    let other = b.hca.alloc_xrcd().unwrap();
    let no_qp = |qpn: Qpn| {
        Err(VerbsError::NoSuch {
            object: Object::Qp,
            handle: qpn.value(),
        })
    };
    assert_eq!(b.hca.open_xrc_recv_qp(other, recv), no_qp(recv));
    let rc = b.create_qp();
    assert_eq!(b.hca.open_xrc_recv_qp(xrcd, rc), no_qp(rc));
    let of_type = |qp_type| QpInit { qp_type, ..init };
    let refused = b.hca.create_qp(&of_type(QpType::XrcRecv));
    assert_eq!(refused, Err(VerbsError::NeedsXrcDomain));
    let with_xrc_srq = QpInit {
        pd: inboxes[0].pd,
        srq: Some(inboxes[0].srq),
        ..init
    };
    let refused = b.hca.create_qp(&with_xrc_srq);
    assert_eq!(refused, Err(VerbsError::XrcSrq));
    for (xrcd, cq, object, handle) in [
        (XrcdId(77), b.cq, Object::Xrcd, 77),
        (xrcd, CqId(77), Object::Cq, 77),
    ] {
        let refused = b.hca.create_xrc_srq(b.pd, XrcObjects { xrcd, cq }, 1, 1);
        assert_eq!(refused, Err(VerbsError::NoSuch { object, handle }));
    }
    let region = b.register(8, AccessFlags::LOCAL_WRITE);
    for (side, qpn) in [(A, send), (B, recv)] {
        let refused = pair.sides[side].hca.post_recv(qpn, recv_wr(1, &region));
        assert!(matches!(refused, Err(VerbsError::Post(_))), "{refused:?}");
    }
    pair.sides[B].hca.audit();
}

/// `ibv_create_qp` ignores the attributes for receiving.
#[test]
fn an_xrc_send_queue_pair_receives_nothing() {
    let mut pair = World::pair(config());
    let a = &mut pair.sides[A];
    let recv_cq = a.hca.create_cq(1).unwrap();
    let init = QpInit {
        qp_type: QpType::XrcSend,
        recv_cq,
        srq: Some(SrqId(77)),
        ..a.init()
    };
    let qpn = a.hca.create_qp(&init).unwrap();
    let QpCap {
        max_recv_wr,
        max_recv_sge,
        ..
    } = a.hca.qp(qpn).unwrap().config().cap;
    assert_eq!((max_recv_wr, max_recv_sge), (0, 0));
    a.hca.destroy_cq(recv_cq).unwrap();
    a.hca.audit();
    a.hca.destroy_qp(qpn).unwrap();
    a.hca.audit();
}

//! The dynamically connected transport: initiators, targets, and their connections.

use ferroce_device::{
    AccessFlags, Attr, Counter, DctAddress, Event, ModifyError, Object, Path, QpCap, QpEvent,
    QpInit, QpModify, QpState, QpType, SendOp, SendTo, SendWr, Sge, SrqId, VerbsError, WcOpcode,
    WcStatus,
};
use ferroce_testing::{A, B, Region, SEND, Side, World, attr, config, recv_wr};
use ferroce_wire::{Opcode, Psn, Qpn};

const KEY: u64 = 0xfeed_0123_4567_89ab;

/// A target, ready to receive.
fn target(side: &mut Side, srq: SrqId) -> Qpn {
    let init = QpInit {
        srq: Some(srq),
        ..side.init()
    };
    let qpn = side.hca.create_dct(&init, KEY).unwrap();
    let nowhere = Path {
        dest: [0, 0, 0, 0].into(),
        traffic_class: 0,
        sl: 0,
        port: 1,
    };
    for (from, to, path) in [
        (QpState::Reset, QpState::Init, None),
        (QpState::Init, QpState::Rtr, Some(nowhere)),
    ] {
        let step = QpModify::step(QpType::Dct, from, to, attr());
        side.hca.modify_qp(qpn, &step, path).unwrap();
    }
    qpn
}

/// An initiator, ready to send.
fn initiator(side: &mut Side) -> Qpn {
    let qpn = side.create_qp_of(QpType::Dci);
    use QpState::{Init, Reset, Rtr, Rts};
    let mut attr = attr();
    attr.sq_psn = Psn::new(0xff_fffe);
    for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
        let step = QpModify::step(QpType::Dci, from, to, attr);
        side.hca.modify_qp(qpn, &step, None).unwrap();
    }
    qpn
}

/// A has an initiator, and B targets with one shared receive queue.
struct Scene {
    pair: World,
    dci: Qpn,
    dcts: Vec<Qpn>,
    srq: SrqId,
    local: Region,
    remote: Region,
}

impl Scene {
    fn new(targets: usize) -> Self {
        let mut pair = World::pair(config());
        pair.log = Some(Vec::new());
        let dci = initiator(&mut pair.sides[A]);
        let b = &mut pair.sides[B];
        let srq = b.hca.create_srq(b.pd, 4096, 4).unwrap();
        let dcts = (0..targets).map(|_| target(b, srq)).collect();
        let [local, remote] = [A, B].map(|id| pair.sides[id].register(8192, AccessFlags::all()));
        Self {
            pair,
            dci,
            dcts,
            srq,
            local,
            remote,
        }
    }

    fn address(&self, target: usize) -> DctAddress {
        DctAddress {
            path: Path {
                dest: self.pair.sides[B].address,
                traffic_class: 0,
                sl: 0,
                port: 1,
            },
            qpn: self.dcts[target],
            key: KEY,
        }
    }

    fn request(&self, wr_id: u64, op: SendOp, sge: Sge, to: DctAddress) -> SendWr {
        SendWr {
            to: SendTo::Dct(to),
            ..SendWr::new(wr_id, op, sge)
        }
    }

    fn post(&mut self, wr_id: u64, op: SendOp, sge: Sge, target: usize) {
        let wr = self.request(wr_id, op, sge, self.address(target));
        self.pair.post(A, self.dci, wr);
    }

    fn recv(&mut self, wr_id: u64) {
        let wr = recv_wr(wr_id, &self.remote);
        self.pair.sides[B].hca.post_srq_recv(self.srq, wr).unwrap();
    }

    fn statuses(&mut self) -> Vec<(u64, WcStatus)> {
        let completions = std::mem::take(&mut self.pair.sides[A].completions);
        completions.iter().map(|c| (c.wr_id, c.status)).collect()
    }

    /// Opcodes that A has sent since the last call.
    fn sent(&mut self) -> Vec<Opcode> {
        let log = std::mem::take(self.pair.log.as_mut().unwrap());
        let sent = log.iter().filter(|sent| sent.from == A);
        sent.map(|sent| sent.headers.opcode()).collect()
    }
}

fn good(wr_id: u64) -> (u64, WcStatus) {
    (wr_id, WcStatus::Success)
}

fn connects(sent: &[Opcode]) -> usize {
    sent.iter().filter(|it| **it == Opcode::DcConnect).count()
}

#[test]
fn every_operation_reaches_the_target_over_one_connection() {
    let mut scene = Scene::new(1);
    scene.local.fill(7);
    let before = scene.local.bytes();
    for wr_id in 10..12 {
        scene.recv(wr_id);
    }
    let (va, rkey) = (scene.remote.info.va, scene.remote.info.key.rkey());
    let imm = Some(0xabcd);
    scene.post(1, SEND, scene.local.sge(0, 3000), 0);
    let write = SendOp::Write { va, rkey, imm };
    scene.post(2, write, scene.local.sge(0, 3000), 0);
    scene.post(3, SendOp::Read { va, rkey }, scene.local.sge(4000, 3000), 0);
    let add = SendOp::FetchAdd {
        va: va + 4000,
        rkey,
        add: 5,
    };
    scene.post(4, add, scene.local.sge(0, 8), 0);
    scene.pair.run_for(100_000);
    assert_eq!(scene.statuses(), [1, 2, 3, 4].map(good));
    assert!(scene.local.bytes()[4000..7000] == before[..3000]);
    let got = scene.pair.sides[B].completions.iter();
    let got: Vec<_> = got.map(|c| (c.wr_id, c.opcode, c.qpn)).collect();
    let dct = scene.dcts[0];
    let with_imm = (11, WcOpcode::RecvRdmaWithImm, dct);
    assert_eq!(got, [(10, WcOpcode::Recv, dct), with_imm]);
    let sent = scene.sent();
    assert_eq!((sent[0], connects(&sent)), (Opcode::DcConnect, 1));
    assert_eq!(scene.pair.count(B, Counter::RxDctConnect), 1);
    scene.pair.run();
    assert_eq!(scene.sent(), [Opcode::DcDisconnect], "after some idle time");
}

#[test]
fn nothing_is_sent_before_the_target_has_accepted() {
    let mut scene = Scene::new(1);
    scene.recv(10);
    scene.post(1, SEND, scene.local.sge(0, 8), 0);
    scene.pair.settle();
    assert_eq!(scene.sent(), [Opcode::DcConnect]);
    scene.pair.run_for(100_000);
    assert_eq!(scene.sent(), [Opcode::DcSendOnly]);
}

#[test]
fn an_initiator_leaves_a_target_that_has_answered_everything() {
    let mut scene = Scene::new(2);
    for wr_id in 10..14 {
        scene.recv(wr_id);
    }
    for (wr_id, target) in [(1, 0), (2, 0), (3, 1), (4, 0)] {
        scene.post(wr_id, SEND, scene.local.sge(0, 8), target);
    }
    scene.pair.run_for(500_000);
    assert_eq!(scene.statuses(), [1, 2, 3, 4].map(good));
    let got = scene.pair.sides[B].completions.iter();
    let got: Vec<_> = got.map(|c| (c.wr_id, c.qpn)).collect();
    let [one, two] = [scene.dcts[0], scene.dcts[1]];
    assert_eq!(got, [(10, one), (11, one), (12, two), (13, one)]);
    use Opcode::{DcConnect, DcDisconnect, DcSendOnly};
    #[rustfmt::skip]
    let expected = [
        DcConnect, DcSendOnly, DcSendOnly, DcDisconnect,
        DcConnect, DcSendOnly, DcDisconnect,
        DcConnect, DcSendOnly,
    ];
    assert_eq!(scene.sent(), expected);
}

#[test]
fn a_wrong_key_is_refused_and_the_target_goes_on() {
    let mut scene = Scene::new(1);
    scene.recv(10);
    let wrong = DctAddress {
        key: KEY ^ 1,
        ..scene.address(0)
    };
    let wr = scene.request(1, SEND, scene.local.sge(0, 8), wrong);
    scene.pair.post(A, scene.dci, wr);
    scene.post(2, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run();
    let refused = (1, WcStatus::RemAccessErr);
    assert_eq!(scene.statuses(), [refused, (2, WcStatus::WrFlushErr)]);
    assert_eq!(scene.pair.sides[A].state(scene.dci), QpState::Err);
    assert_eq!(scene.pair.sides[B].state(scene.dcts[0]), QpState::Rtr);
    let event = Event::Qp(scene.dcts[0], QpEvent::AccessError);
    assert_eq!(scene.pair.sides[B].events, [event]);
    assert_eq!(scene.pair.count(B, Counter::RxDctConnect), 0);
    scene.dci = initiator(&mut scene.pair.sides[A]);
    scene.post(3, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run();
    assert_eq!(scene.statuses(), [good(3)]);
}

/// As with a queue pair of RC, the retries of its peer are used up.
#[test]
fn a_target_that_has_gone_does_not_answer() {
    for connected in [false, true] {
        let mut scene = Scene::new(1);
        scene.recv(10);
        if connected {
            scene.post(1, SEND, scene.local.sge(0, 8), 0);
            scene.pair.run_for(100_000);
            assert_eq!(scene.statuses(), [good(1)]);
        }
        scene.pair.sides[B].hca.destroy_qp(scene.dcts[0]).unwrap();
        scene.pair.sides[B].hca.audit();
        scene.post(2, SEND, scene.local.sge(0, 8), 0);
        scene.pair.run();
        assert_eq!(scene.statuses(), [(2, WcStatus::RetryExcErr)]);
        assert!(scene.pair.count(B, Counter::RxUnknownQp) > 1);
    }
}

#[test]
fn memory_of_another_protection_domain_is_refused() {
    let mut scene = Scene::new(1);
    let b = &mut scene.pair.sides[B];
    let own = std::mem::replace(&mut b.pd, b.hca.alloc_pd().unwrap());
    let foreign = b.register(64, AccessFlags::all());
    b.pd = own;
    scene.post(1, foreign.write(), scene.local.sge(0, 64), 0);
    scene.pair.run();
    assert_eq!(scene.statuses(), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(scene.pair.sides[B].state(scene.dcts[0]), QpState::Rtr);
}

/// Receive requests are of the domain of the shared receive queue, which may be another one.
#[test]
fn a_shared_receive_queue_may_have_a_domain_of_its_own() {
    let mut scene = Scene::new(0);
    let b = &mut scene.pair.sides[B];
    let init = QpInit {
        pd: b.hca.alloc_pd().unwrap(),
        ..b.init()
    };
    let own = std::mem::replace(&mut b.pd, init.pd);
    scene.dcts.push(target(b, scene.srq));
    b.pd = own;
    scene.recv(10);
    scene.post(1, SEND, scene.local.sge(0, 8), 0);
    scene.post(2, scene.remote.write(), scene.local.sge(0, 8), 0);
    scene.pair.run();
    let refused = (2, WcStatus::RemAccessErr);
    assert_eq!(scene.statuses(), [good(1), refused]);
}

#[test]
fn an_initiator_waits_for_receives_as_one_of_rc() {
    let mut scene = Scene::new(1);
    scene.post(1, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run_for(100_000);
    assert_eq!(scene.statuses(), []);
    assert!(scene.pair.count(A, Counter::RnrNakRetryErr) > 0);
    scene.recv(10);
    scene.pair.run();
    assert_eq!(scene.statuses(), [good(1)]);
    assert_eq!(scene.pair.count(B, Counter::RxDctConnect), 1);
}

#[test]
fn a_lost_connect_request_is_repeated_like_any_other() {
    let mut scene = Scene::new(1);
    scene.recv(10);
    scene.pair.sides[B].deaf = true;
    scene.post(1, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run_for(200_000);
    let expiries = scene.pair.sides[A].expiries().len();
    assert!(expiries > 0);
    assert_eq!(connects(&scene.sent()), 1 + expiries);
    scene.pair.sides[B].deaf = false;
    scene.pair.run();
    assert_eq!(scene.statuses(), [good(1)]);
    assert_eq!(scene.pair.count(B, Counter::RxDctConnect), 1);
}

#[test]
fn a_thousand_initiators_and_a_thousand_targets() {
    let mut scene = Scene::new(1000);
    for wr_id in 0..2000 {
        scene.recv(wr_id);
    }
    let mut dcis = vec![scene.dci];
    dcis.resize_with(1000, || initiator(&mut scene.pair.sides[A]));
    for (wr_id, dci) in (0..).zip(&dcis) {
        scene.dci = *dci;
        scene.post(wr_id, SEND, scene.local.sge(0, 8), 0);
    }
    scene.pair.run();
    let statuses = scene.statuses();
    assert_eq!(statuses.len(), 1000);
    assert!(
        statuses
            .iter()
            .all(|(_, status)| *status == WcStatus::Success)
    );
    assert_eq!(scene.pair.count(B, Counter::RxDctConnect), 1000);
    for target in 0..1000 {
        let sge = scene.local.sge(0, 8);
        scene.post(target, SEND, sge, target as usize);
        scene.pair.run_for(20_000);
        assert_eq!(scene.statuses(), [good(target)]);
    }
    scene.pair.run();
    assert_eq!(scene.pair.count(B, Counter::RxDctConnect), 2000);
    let received = scene.pair.sides[B].completions.len();
    assert_eq!(received, 2000);
    scene.pair.sides[B].hca.audit();
}

/// Initiators that are destroyed do not disconnect.
#[test]
fn connections_are_bounded_and_silent_ones_make_room() {
    const MAX: u64 = 4096;
    let mut scene = Scene::new(1);
    let mut last = scene.dci;
    for wr_id in 0..MAX {
        scene.recv(wr_id);
        scene.post(wr_id, SEND, scene.local.sge(0, 8), 0);
        scene.pair.run_for(20_000);
        assert_eq!(scene.statuses(), [good(wr_id)]);
        last = scene.dci;
        scene.pair.sides[A].hca.destroy_qp(last).unwrap();
        scene.dci = initiator(&mut scene.pair.sides[A]);
    }
    let connected = scene.pair.count(B, Counter::RxDctConnect);
    assert_eq!(connected, MAX);
    scene.recv(1);
    scene.post(1, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run_for(20_000);
    assert_eq!(scene.statuses(), []);
    assert!(scene.pair.count(B, Counter::RxDcTableFull) > 0);
    assert_ne!(scene.dci, last);
    scene.pair.run();
    assert_eq!(scene.statuses(), [(1, WcStatus::RetryExcErr)]);
    scene.pair.run_for(5_000_000_000);
    scene.dci = initiator(&mut scene.pair.sides[A]);
    scene.post(2, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run();
    assert_eq!(scene.statuses(), [good(2)]);
}

#[test]
fn outsiders_without_the_key_fill_no_table() {
    let mut scene = Scene::new(1);
    for wr_id in 0..100 {
        let wrong = DctAddress {
            key: wr_id,
            ..scene.address(0)
        };
        let wr = scene.request(wr_id, SEND, scene.local.sge(0, 8), wrong);
        scene.pair.post(A, scene.dci, wr);
        scene.pair.run();
        assert_eq!(scene.statuses(), [(wr_id, WcStatus::RemAccessErr)]);
        scene.dci = initiator(&mut scene.pair.sides[A]);
    }
    let b = &mut scene.pair.sides[B];
    b.hca.audit();
    b.hca.destroy_qp(scene.dcts[0]).unwrap();
    b.hca.destroy_srq(scene.srq).unwrap();
    b.hca.audit();
}

#[test]
fn a_late_copy_of_a_connect_request_ends_no_later_connection() {
    let mut scene = Scene::new(2);
    for wr_id in 10..14 {
        scene.recv(wr_id);
    }
    scene.post(1, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run_for(50_000);
    let log = std::mem::take(scene.pair.log.as_mut().unwrap());
    let late = log.iter().find(|sent| sent.from == A).unwrap().headers;
    assert_eq!(late.opcode(), Opcode::DcConnect);
    scene.post(2, SEND, scene.local.sge(0, 8), 1);
    scene.post(3, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run_for(50_000);
    scene
        .pair
        .give(B, 0, &late, ferroce_device::Data::Bytes(&[]));
    scene.post(4, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run();
    assert_eq!(scene.statuses(), [1, 2, 3, 4].map(good));
    assert_eq!(scene.pair.count(B, Counter::RxDctConnect), 3);
}

#[test]
fn a_half_received_message_goes_with_its_target() {
    let mut scene = Scene::new(1);
    scene.recv(10);
    scene.post(1, SEND, scene.local.sge(0, 8), 0);
    scene.pair.run_for(50_000);
    scene.recv(11);
    scene.post(2, SEND, scene.local.sge(0, 8000), 0);
    let first = scene.pair.sides[A]
        .hca
        .poll_transmit(scene.pair.now)
        .unwrap();
    let payload = [0; 1024];
    let data = ferroce_device::Data::Bytes(&payload);
    scene.pair.give(B, 0, &first.headers, data);
    let b = &mut scene.pair.sides[B];
    b.hca.destroy_qp(scene.dcts[0]).unwrap();
    b.hca.audit();
    assert_eq!(b.hca.poll_completion(b.cq).unwrap(), None);
}

#[test]
fn the_states_of_both_ends_are_those_of_mlx5() {
    let mut scene = Scene::new(1);
    let to = |state| QpModify::to(state, Attr::empty(), attr());
    for state in [QpState::Rts, QpState::Err, QpState::Reset] {
        let refused = scene.pair.sides[B]
            .hca
            .modify_qp(scene.dcts[0], &to(state), None);
        let no_transition = ModifyError::NoTransition {
            qp_type: QpType::Dct,
            from: QpState::Rtr,
            to: state,
        };
        assert_eq!(refused, Err(VerbsError::Modify(no_transition)));
    }
    let side = &mut scene.pair.sides[A];
    let refused = side.hca.modify_qp(scene.dci, &to(QpState::Sqd), None);
    assert!(matches!(refused, Err(VerbsError::Modify(_))), "{refused:?}");
    side.hca
        .modify_qp(scene.dci, &to(QpState::Err), None)
        .unwrap();
    side.hca
        .modify_qp(scene.dci, &to(QpState::Reset), None)
        .unwrap();
    assert_eq!(side.state(scene.dci), QpState::Reset);
}

#[test]
fn unsuitable_requests_and_objects_are_refused() {
    let mut scene = Scene::new(1);
    let local = scene.local.sge(0, 8);
    let (rc, ud) = {
        let a = &mut scene.pair.sides[A];
        (a.create_qp(), a.create_ud(1))
    };
    let dct = scene.request(1, SEND, local, scene.address(0));
    let plain = SendWr::new(1, SEND, local);
    let a = &mut scene.pair.sides[A];
    for (qpn, wr) in [(scene.dci, &plain), (rc, &dct), (ud, &dct)] {
        let refused = a.hca.post_send(qpn, wr.clone());
        assert!(matches!(refused, Err(VerbsError::Post(_))), "{refused:?}");
    }
    let refused = a.hca.post_recv(scene.dci, recv_wr(1, &scene.local));
    assert!(matches!(refused, Err(VerbsError::Post(_))), "{refused:?}");
    let QpCap { max_recv_wr, .. } = a.hca.qp(scene.dci).unwrap().config().cap;
    assert_eq!(max_recv_wr, 0);
    let b = &mut scene.pair.sides[B];
    let refused = b.hca.post_send(scene.dcts[0], dct);
    assert!(matches!(refused, Err(VerbsError::Post(_))), "{refused:?}");
    let init = b.init();
    let of_type = |qp_type| QpInit { qp_type, ..init };
    for qp_type in [QpType::Dct, QpType::DcResponder] {
        let refused = b.hca.create_qp(&of_type(qp_type));
        assert_eq!(refused, Err(VerbsError::NeedsDcKey));
    }
    assert_eq!(b.hca.create_dct(&init, KEY), Err(VerbsError::NeedsSrq));
    let busy = Err(VerbsError::Busy {
        object: Object::Srq,
        users: 1,
    });
    assert_eq!(b.hca.destroy_srq(scene.srq), busy);
    assert_eq!(b.hca.qps().count(), 1);
    b.hca.audit();
}

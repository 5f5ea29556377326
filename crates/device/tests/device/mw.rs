//! Memory windows: what access they grant, to whom, and until when.

use ferroce_device::{
    AccessFlags, Hca, HcaConfig, MrModify, MwBind, MwBindWr, MwId, MwInfo, MwType, Object, PdId,
    QpInit, QpState, QpType, SendFlags, SendOp, SendWr, Sge, VerbsError, WcFlags, WcOpcode,
    WcStatus,
};
use ferroce_wire::Qpn;

use ferroce_testing::{A, B, Region, World, attr, local};

const LEN: u64 = 4096;

/// B's region, with every permission, and B's windows. A is the peer.
struct Windows {
    pair: World,
    qpns: [Qpn; 2],
    region: Region,
    own: Region,
}

impl Windows {
    fn new() -> Self {
        let (mut pair, qpns) = World::connected();
        let region = pair.sides[B].register(LEN as usize, AccessFlags::all());
        region.fill(7);
        let own = pair.sides[A].register(LEN as usize, AccessFlags::LOCAL_WRITE);
        own.fill(8);
        Self {
            pair,
            qpns,
            region,
            own,
        }
    }

    fn window(&mut self, kind: MwType) -> MwInfo {
        let side = &mut self.pair.sides[B];
        side.hca.alloc_mw(side.pd, kind).unwrap()
    }

    /// The middle half of the region.
    fn half(&self, rkey: u32, access: AccessFlags) -> MwBind {
        MwBind {
            va: self.region.info.va + LEN / 4,
            length: LEN / 2,
            ..self.region.bind(rkey, access)
        }
    }

    fn post_local(&mut self, op: SendOp) -> WcStatus {
        let qpn = self.qpns[B];
        self.pair.post(B, qpn, local(77, SendFlags::SIGNALED, op));
        self.pair.run();
        let done = self.pair.sides[B].completions.pop().unwrap();
        assert_eq!((done.wr_id, done.opcode), (77, op.wc_opcode()));
        done.status
    }

    /// Binds a window of type 2.
    fn bind(&mut self, bind: MwBind) -> WcStatus {
        self.post_local(SendOp::BindMw(bind))
    }

    /// Binds a window of type 1; returns its new key.
    fn bind_type_1(&mut self, id: MwId, bind: MwBind) -> u32 {
        let wr = MwBindWr {
            wr_id: 1,
            flags: SendFlags::SIGNALED,
            mr: Some(self.region.info.key),
            va: bind.va,
            length: bind.length,
            access: bind.access,
        };
        let hca = &mut self.pair.sides[B].hca;
        let rkey = hca.bind_mw(self.qpns[B], id, &wr).unwrap();
        self.pair.run();
        let done = self.pair.sides[B].completions.pop().unwrap();
        assert_eq!(done.opcode, WcOpcode::BindMw);
        assert_eq!(done.status, WcStatus::Success);
        rkey
    }

    fn request(&mut self, op: SendOp, len: u32) -> WcStatus {
        let wr = SendWr::new(5, op, self.own.sge(0, len));
        self.pair.post(A, self.qpns[A], wr);
        self.pair.run();
        self.pair.sides[A].completions.pop().unwrap().status
    }

    fn write(&mut self, rkey: u32, va: u64, len: u32) -> WcStatus {
        let imm = None;
        self.request(SendOp::Write { va, rkey, imm }, len)
    }

    fn send_invalidate(&mut self, rkey: u32) -> WcStatus {
        let sink = self.pair.sides[B].register(8, AccessFlags::LOCAL_WRITE);
        self.pair.sides[B].recv(self.qpns[B], 6, &sink);
        self.request(SendOp::SendInvalidate { rkey }, 8)
    }

    /// New queue pairs, after an error.
    fn reconnect(&mut self) {
        self.qpns = [A, B].map(|id| {
            self.pair.sides[id].completions.clear();
            self.pair.sides[id].create_qp()
        });
        self.pair.connect(self.qpns, attr());
    }
}

#[test]
fn a_window_opens_its_part_of_a_region_for_its_permissions() {
    for kind in [MwType::Type1, MwType::Type2] {
        for zero_based in [false, true] {
            if zero_based && kind == MwType::Type1 {
                continue;
            }
            let mut world = Windows::new();
            let window = world.window(kind);
            let mut bind = world.half(window.rkey + 1, AccessFlags::REMOTE_WRITE);
            bind.zero_based = zero_based;
            let (first, len) = (if zero_based { 0 } else { bind.va }, bind.length as u32);
            if kind == MwType::Type1 {
                world.bind_type_1(window.id, bind);
            } else {
                assert_eq!(world.bind(bind), WcStatus::Success);
            }
            let rkey = world.pair.sides[B].hca.query_mw(window.id).unwrap().rkey;
            assert_eq!(rkey, window.rkey + 1);
            assert_eq!(world.write(rkey, first, len), WcStatus::Success);
            let mut expected = world.region.bytes();
            let quarter = LEN as usize / 4;
            expected[quarter..3 * quarter].copy_from_slice(&world.own.bytes()[..2 * quarter]);
            assert!(world.region.bytes() == expected);
            let imm = None;
            for (op, len) in [
                (
                    SendOp::Write {
                        va: first.wrapping_sub(1),
                        rkey,
                        imm,
                    },
                    1,
                ),
                // Of one packet: whole packets before the end are written (F20).
                (
                    SendOp::Write {
                        va: first + u64::from(len) - 63,
                        rkey,
                        imm,
                    },
                    64,
                ),
                (SendOp::Read { va: first, rkey }, 1),
                (
                    SendOp::FetchAdd {
                        va: first,
                        rkey,
                        add: 1,
                    },
                    8,
                ),
            ] {
                world.reconnect();
                if kind == MwType::Type2 {
                    // The window belonged to the previous queue pair: allocate one for this queue
                    // pair.
                    let window = world.window(kind);
                    let bind = MwBind {
                        rkey: window.rkey,
                        ..bind
                    };
                    assert_eq!(world.bind(bind), WcStatus::Success);
                }
                assert_eq!(world.request(op, len), WcStatus::RemAccessErr, "{op:?}");
            }
            assert!(world.region.bytes() == expected);
        }
    }
}

#[test]
fn reads_and_atomics_go_through_windows_too() {
    let mut world = Windows::new();
    let window = world.window(MwType::Type2);
    let bind = world.half(window.rkey, AccessFlags::REMOTE);
    assert_eq!(world.bind(bind), WcStatus::Success);
    let (va, rkey) = (bind.va, bind.rkey);
    let before = world.region.bytes();
    let quarter = LEN as usize / 4;
    let read = world.request(SendOp::Read { va, rkey }, bind.length as u32);
    assert_eq!(read, WcStatus::Success);
    assert!(world.own.bytes()[..2 * quarter] == before[quarter..3 * quarter]);
    let add = world.request(SendOp::FetchAdd { va, rkey, add: 1 }, 8);
    assert_eq!(add, WcStatus::Success);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes[quarter..][..8].try_into().unwrap());
    assert_eq!(word(&world.region.bytes()), word(&before).wrapping_add(1));
}

#[test]
fn invalid_binds_fail_and_grant_no_access() {
    type Spoil = fn(&mut Windows, &mut MwBind);
    let spoils: &[(&str, Spoil)] = &[
        ("no such region", |_, bind| bind.lkey ^= 1),
        ("no such window", |_, bind| bind.rkey ^= 0x0100_0000),
        ("before the region", |world, bind| {
            bind.va = world.region.info.va - 1;
        }),
        ("behind the region", |_, bind| bind.length = LEN),
        ("an endless range", |_, bind| bind.length = u64::MAX),
        ("no byte", |_, bind| bind.length = 0),
        ("a region without windows", |world, bind| {
            let access = AccessFlags::all() - AccessFlags::MW_BIND;
            let region = world.pair.sides[B].register(LEN as usize, access);
            (bind.va, bind.lkey) = (region.info.va, region.info.key.lkey());
        }),
        ("a region that nobody may write", |world, bind| {
            let access = AccessFlags::REMOTE_READ | AccessFlags::MW_BIND;
            let region = world.pair.sides[B].register(LEN as usize, access);
            (bind.va, bind.lkey) = (region.info.va, region.info.key.lkey());
        }),
        ("the region of another domain", |world, bind| {
            let pd = world.pair.sides[B].hca.alloc_pd().unwrap();
            let change = MrModify {
                pd: Some(pd),
                ..MrModify::default()
            };
            let key = world.region.info.key;
            world.pair.sides[B].hca.rereg_mr(key, change).unwrap();
            bind.lkey = key.lkey();
        }),
        ("the window of another domain", |world, bind| {
            let pd = world.pair.sides[B].hca.alloc_pd().unwrap();
            let window = world.pair.sides[B].hca.alloc_mw(pd, MwType::Type2);
            bind.rkey = window.unwrap().rkey;
        }),
        ("the key of a window for a region", |world, bind| {
            bind.lkey = world.window(MwType::Type2).rkey;
        }),
    ];
    for (name, spoil) in spoils {
        let mut world = Windows::new();
        let window = world.window(MwType::Type2);
        let mut bind = world.half(window.rkey, AccessFlags::REMOTE_WRITE);
        spoil(&mut world, &mut bind);
        let window_exists =
            MwId::of_key(bind.rkey).is_some_and(|id| world.pair.sides[B].hca.query_mw(id).is_ok());
        if window_exists {
            assert_eq!(world.bind(bind), WcStatus::MwBindErr, "{name}");
            assert_eq!(world.pair.sides[B].state(world.qpns[B]), QpState::Err);
            world.reconnect();
            let status = world.write(bind.rkey, bind.va, 1);
            assert_eq!(status, WcStatus::RemAccessErr, "{name}");
        } else {
            let wr = local(0, SendFlags::empty(), SendOp::BindMw(bind));
            let refused = world.pair.sides[B].hca.post_send(world.qpns[B], wr);
            assert!(matches!(refused, Err(VerbsError::NoSuch { .. })), "{name}");
        }
    }
}

#[test]
fn a_type_2_window_is_bound_again_only_after_invalidation() {
    let mut world = Windows::new();
    let rkey = world.window(MwType::Type2).rkey;
    let first = world.half(rkey, AccessFlags::REMOTE_WRITE);
    assert_eq!(world.bind(first), WcStatus::Success);
    let gone = world.post_local(SendOp::LocalInvalidate { rkey });
    assert_eq!(gone, WcStatus::Success);
    // The peer may have been faster, so invalidating twice is not an error.
    let gone = world.post_local(SendOp::LocalInvalidate { rkey });
    assert_eq!(gone, WcStatus::Success);
    let second = MwBind {
        rkey: rkey ^ 0x55,
        ..first
    };
    assert_eq!(world.bind(second), WcStatus::Success);
    let written = world.write(second.rkey, second.va, 1);
    assert_eq!(written, WcStatus::Success);
    assert_eq!(world.bind(second), WcStatus::MwBindErr, "it is bound");
    world.reconnect();
    let status = world.write(rkey, first.va, 1);
    assert_eq!(status, WcStatus::RemAccessErr, "the old key");
}

#[test]
fn type_2_windows_serve_one_queue_pair_and_type_1_windows_all() {
    for (kind, expected) in [
        (MwType::Type1, WcStatus::Success),
        (MwType::Type2, WcStatus::RemAccessErr),
    ] {
        let mut world = Windows::new();
        let window = world.window(kind);
        let bind = world.half(window.rkey, AccessFlags::REMOTE_WRITE);
        let rkey = if kind == MwType::Type1 {
            world.bind_type_1(window.id, bind)
        } else {
            assert_eq!(world.bind(bind), WcStatus::Success);
            bind.rkey
        };
        world.reconnect();
        assert_eq!(world.write(rkey, bind.va, 10), expected);
    }
}

#[test]
fn the_peer_can_invalidate_its_window_and_nothing_else() {
    let mut world = Windows::new();
    let rkey = world.window(MwType::Type2).rkey;
    let bind = world.half(rkey, AccessFlags::REMOTE_WRITE);
    assert_eq!(world.bind(bind), WcStatus::Success);
    assert_eq!(world.send_invalidate(rkey), WcStatus::Success);
    let received = world.pair.sides[B].completions.pop().unwrap();
    assert_eq!((received.flags, received.imm), (WcFlags::WITH_INV, rkey));
    assert_eq!(world.write(rkey, bind.va, 1), WcStatus::RemAccessErr);

    let region = world.region.info.key.rkey();
    let type_1 = world.window(MwType::Type1);
    world.reconnect();
    let type_1 = world.bind_type_1(type_1.id, world.half(0, AccessFlags::REMOTE_WRITE));
    let foreign = world.window(MwType::Type2).rkey;
    let bind = world.half(foreign, AccessFlags::REMOTE_WRITE);
    assert_eq!(world.bind(bind), WcStatus::Success);
    for (key, name) in [
        (rkey, "not bound any more"),
        (region, "a region"),
        (type_1, "a type 1 window"),
        (foreign, "the window of another queue pair"),
    ] {
        world.reconnect();
        let status = world.send_invalidate(key);
        assert_eq!(status, WcStatus::RetryExcErr, "{name}: unanswered");
        let received = world.pair.sides[B].completions.pop().unwrap();
        assert_eq!(received.status, WcStatus::LocAccessErr, "{name}");
    }
    for key in [region, type_1] {
        world.reconnect();
        let va = bind.va;
        assert_eq!(world.write(key, va, 1), WcStatus::Success);
    }
}

#[test]
fn this_side_cannot_invalidate_regions_and_type_1_windows() {
    let mut world = Windows::new();
    let type_1 = world.window(MwType::Type1).rkey;
    for rkey in [type_1, world.region.info.key.rkey(), 0xdead_beef] {
        let status = world.post_local(SendOp::LocalInvalidate { rkey });
        assert_eq!(status, WcStatus::MwBindErr);
        world.reconnect();
    }
}

#[test]
fn a_type_1_window_moves_and_changes_its_key_each_time() {
    let mut world = Windows::new();
    let window = world.window(MwType::Type1);
    let bind = world.half(0, AccessFlags::REMOTE_WRITE);
    let va = world.region.info.va;
    let first = world.bind_type_1(window.id, bind);
    let second = world.bind_type_1(window.id, MwBind { va, ..bind });
    assert_eq!([first, second], [window.rkey + 1, window.rkey + 2]);
    assert_eq!(world.write(second, va, 1), WcStatus::Success);
    assert_eq!(world.write(first, bind.va, 1), WcStatus::RemAccessErr);
    world.reconnect();
    let nothing = MwBind { length: 0, ..bind };
    let third = world.bind_type_1(window.id, nothing);
    assert_ne!(third, second);
    for key in [second, third] {
        assert_eq!(world.write(key, va, 1), WcStatus::RemAccessErr);
        world.reconnect();
    }
    world.pair.sides[B].hca.audit();
}

#[test]
fn binds_of_one_window_in_a_row_get_keys_of_their_own() {
    let mut world = Windows::new();
    let window = world.window(MwType::Type1);
    let wr = MwBindWr {
        wr_id: 1,
        flags: SendFlags::empty(),
        mr: Some(world.region.info.key),
        va: world.region.info.va,
        length: 10,
        access: AccessFlags::REMOTE_WRITE,
    };
    let hca = &mut world.pair.sides[B].hca;
    let keys = [(); 3].map(|()| hca.bind_mw(world.qpns[B], window.id, &wr).unwrap());
    assert_eq!(keys, [1, 2, 3].map(|n| window.rkey + n));
    assert_eq!(hca.query_mw(window.id).unwrap().rkey, window.rkey, "posted");
    world.pair.run();
    assert_eq!(
        world.write(keys[2], wr.va, 10),
        WcStatus::Success,
        "the last one counts"
    );
}

#[test]
fn a_region_stays_as_it_is_while_a_window_is_bound_to_it() {
    let mut world = Windows::new();
    let ids = [MwType::Type1, MwType::Type2].map(|kind| world.window(kind));
    let bind = world.half(ids[1].rkey, AccessFlags::REMOTE_WRITE);
    world.bind_type_1(ids[0].id, bind);
    assert_eq!(world.bind(bind), WcStatus::Success);
    let hca = &mut world.pair.sides[B].hca;
    let key = world.region.info.key;
    let busy = |users| {
        Err(VerbsError::Busy {
            object: Object::Mr,
            users,
        })
    };
    hca.audit();
    assert_eq!(hca.dereg_mr(key), busy(2));
    let rereg = hca.rereg_mr(key, MrModify::default());
    assert_eq!(rereg.map(drop), busy(2));
    hca.dealloc_mw(ids[0].id).unwrap();
    assert_eq!(hca.dereg_mr(key), busy(1));
    // The window belongs to this queue pair.
    hca.destroy_qp(world.qpns[B]).unwrap();
    hca.audit();
    assert!(!hca.query_mw(ids[1].id).unwrap().bound);
    hca.dereg_mr(key).unwrap();
    hca.audit();
}

#[test]
fn a_deallocated_window_grants_no_access() {
    let mut world = Windows::new();
    let window = world.window(MwType::Type2);
    let bind = world.half(window.rkey, AccessFlags::REMOTE_WRITE);
    assert_eq!(world.bind(bind), WcStatus::Success);
    world.pair.sides[B].hca.dealloc_mw(window.id).unwrap();
    assert_eq!(world.write(bind.rkey, bind.va, 1), WcStatus::RemAccessErr);
    let again = world.pair.sides[B].hca.dealloc_mw(window.id);
    let (object, handle) = (Object::Mw, window.id.0);
    assert_eq!(again, Err(VerbsError::NoSuch { object, handle }));
}

#[test]
fn the_key_of_a_window_is_not_a_local_key() {
    let mut world = Windows::new();
    let window = world.window(MwType::Type2);
    let bind = world.half(window.rkey, AccessFlags::REMOTE);
    assert_eq!(world.bind(bind), WcStatus::Success);
    let sge = Sge {
        addr: bind.va,
        length: 8,
        lkey: bind.rkey,
    };
    let wr = SendWr::new(1, SendOp::Send { imm: None }, sge);
    world.pair.post(B, world.qpns[B], wr);
    world.pair.run();
    let done = world.pair.sides[B].completions.pop().unwrap();
    assert_eq!(done.status, WcStatus::LocProtErr);
}

#[test]
fn each_verb_has_its_type_of_window() {
    let mut hca = Hca::new(HcaConfig::default());
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(8).unwrap();
    let qpn = hca
        .create_qp(&QpInit {
            cap: Default::default(),
            signal_all: false,
            ..QpInit::new(QpType::Rc, pd, cq)
        })
        .unwrap();
    let [one, two] = [MwType::Type1, MwType::Type2].map(|kind| hca.alloc_mw(pd, kind).unwrap());
    assert_eq!(hca.mws().collect::<Vec<_>>(), [one, two]);
    let wr = MwBindWr {
        wr_id: 0,
        flags: SendFlags::empty(),
        mr: None,
        va: 0,
        length: 0,
        access: AccessFlags::empty(),
    };
    let wrong = Err(VerbsError::WrongMwType);
    assert_eq!(hca.bind_mw(qpn, two.id, &wr), wrong);
    let bind = MwBind {
        rkey: one.rkey,
        lkey: 0,
        va: 0,
        length: 1,
        access: AccessFlags::empty(),
        zero_based: false,
    };
    let post = hca.post_send(qpn, local(0, SendFlags::empty(), SendOp::BindMw(bind)));
    assert_eq!(post, Err(VerbsError::WrongMwType));
    // Not in RESET; the key that was not returned is drawn again.
    assert!(matches!(
        hca.bind_mw(qpn, one.id, &wr),
        Err(VerbsError::Post(_))
    ));
    assert_eq!(hca.query_mw(one.id).unwrap(), one);
    let dead = PdId(99);
    let (object, handle) = (Object::Pd, 99);
    assert_eq!(
        hca.alloc_mw(dead, MwType::Type1).map(drop),
        Err(VerbsError::NoSuch { object, handle })
    );
    hca.destroy_qp(qpn).unwrap();
    let (object, users) = (Object::Pd, 2);
    assert_eq!(hca.dealloc_pd(pd), Err(VerbsError::Busy { object, users }));
    for id in [one.id, two.id] {
        hca.dealloc_mw(id).unwrap();
    }
    hca.dealloc_pd(pd).unwrap();
}

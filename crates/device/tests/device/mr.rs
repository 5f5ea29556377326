//! Memory regions: flags, changed properties under the same keys, regions without memory.

use ferroce_device::{
    AccessFlags, Buffer, Memory, MrInfo, MrKey, MrModify, Object, PdId, QpState, RecvWr, RegFlags,
    SendOp, SendWr, Sge, Sges, VerbsError, WcStatus,
};

use ferroce_testing::{A, B, SEND, World, attr};

#[test]
fn access_flags_are_read_bit_by_bit() {
    let all = AccessFlags::all();
    let flags = RegFlags::from_bits(0x1f).unwrap();
    assert_eq!(flags.access, all);
    assert!(!flags.zero_based && !flags.on_demand);
    let flags = RegFlags::from_bits(1 << 5 | 1 << 6 | 1 << 7).unwrap();
    assert!(flags.zero_based && flags.on_demand && flags.access.is_empty());
    for bit in 0..32 {
        let bits = 1 << bit;
        match RegFlags::from_bits(bits) {
            Ok(_) => assert!(matches!(bit, 0..=7 | 20..=29), "{bit}"),
            Err(error @ VerbsError::NotSupported { .. }) => {
                assert!(matches!(bit, 8 | 9), "{bit}");
                assert_eq!(error.errno(), 95);
            }
            Err(error) => {
                assert!(matches!(bit, 10..=19 | 30 | 31), "{bit}");
                assert_eq!(error, VerbsError::UnknownAccess { bits });
                assert_eq!(error.errno(), 22);
            }
        }
    }
}

#[test]
fn the_whole_address_space_is_for_regions_on_demand() {
    let on_demand = RegFlags::from_bits(1 << 6).unwrap();
    let plain = RegFlags::default();
    assert_eq!(on_demand.is_implicit(0, u64::MAX), Ok(true));
    assert_eq!(on_demand.is_implicit(0, 4096), Ok(false));
    assert_eq!(plain.is_implicit(0, 4096), Ok(false));
    let refused = Err(VerbsError::NeedsOnDemand);
    assert_eq!(plain.is_implicit(0, u64::MAX), refused);
    assert_eq!(on_demand.is_implicit(1, u64::MAX), refused);
}

/// A pair, B's region of 100 bytes, and the result of a WRITE of A to all of it.
struct Regions {
    pair: World,
    info: MrInfo,
}

impl Regions {
    fn new(access: AccessFlags) -> Self {
        let mut pair = World::pair(ferroce_testing::config());
        let info = pair.sides[B].register(100, access).info;
        Self { pair, info }
    }

    fn rereg(&mut self, change: MrModify) -> Result<MrInfo, VerbsError> {
        self.pair.sides[B].hca.rereg_mr(self.info.key, change)
    }

    fn write(&mut self, va: u64, len: u32) -> WcStatus {
        let qpns = [A, B].map(|id| self.pair.sides[id].create_qp());
        self.pair.connect(qpns, attr());
        let own = self.pair.sides[A].register(1000, AccessFlags::empty());
        own.fill(3);
        let op = SendOp::Write {
            va,
            rkey: self.info.key.rkey(),
            imm: None,
        };
        self.pair
            .post(A, qpns[A], SendWr::new(1, op, own.sge(0, len)));
        self.pair.run();
        self.pair.sides[A].completions.pop().unwrap().status
    }
}

#[test]
fn a_region_gets_other_permissions_under_its_key() {
    let read_only = AccessFlags::REMOTE_READ;
    let mut world = Regions::new(read_only);
    let va = world.info.va;
    assert_eq!(world.write(va, 1), WcStatus::RemAccessErr);
    let open = MrModify {
        access: Some(AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE),
        ..MrModify::default()
    };
    let info = world.rereg(open).unwrap();
    assert_eq!((info.key, info.va, info.len), (world.info.key, va, 100));
    assert_eq!(world.write(va, 100), WcStatus::Success);
    let close = MrModify {
        access: Some(AccessFlags::LOCAL_WRITE),
        ..MrModify::default()
    };
    world.rereg(close).unwrap();
    assert_eq!(world.write(va, 1), WcStatus::RemAccessErr);
}

#[test]
fn a_region_gets_other_memory_under_its_key() {
    let mut world = Regions::new(AccessFlags::all());
    let old = world.info.va;
    let buffer = Buffer::zeroed(500);
    let change = MrModify {
        translation: Some((Memory::Buffer(buffer.clone()), 0x7000)),
        ..MrModify::default()
    };
    let info = world.rereg(change).unwrap();
    assert_eq!((info.key, info.va, info.len), (world.info.key, 0x7000, 500));
    assert_eq!(world.write(old, 1), WcStatus::RemAccessErr);
    assert_eq!(world.write(0x7000, 500), WcStatus::Success);
    let mut bytes = [0; 500];
    buffer.read(0, &mut bytes);
    assert!(bytes.iter().any(|byte| *byte != 0));
    assert_eq!(world.write(0x7000 + 500, 1), WcStatus::RemAccessErr);
}

#[test]
fn a_region_moves_to_another_domain_and_back() {
    let mut world = Regions::new(AccessFlags::all());
    let (va, own) = (world.info.va, world.pair.sides[B].pd);
    let other = world.pair.sides[B].hca.alloc_pd().unwrap();
    let to = |pd| MrModify {
        pd: Some(pd),
        ..MrModify::default()
    };
    world.rereg(to(other)).unwrap();
    world.pair.sides[B].hca.audit();
    assert_eq!(world.write(va, 1), WcStatus::RemAccessErr);
    let busy = world.pair.sides[B].hca.dealloc_pd(other);
    let (object, users) = (Object::Pd, 1);
    assert_eq!(busy, Err(VerbsError::Busy { object, users }));
    world.rereg(to(own)).unwrap();
    assert_eq!(world.write(va, 1), WcStatus::Success);
    world.pair.sides[B].hca.dealloc_pd(other).unwrap();
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut world = Regions::new(AccessFlags::all());
    let memory = Memory::Phantom {
        addr: 0,
        len: 1 << 20,
    };
    let good = MrModify {
        translation: Some((memory.clone(), 5)),
        pd: Some(world.pair.sides[B].pd),
        access: Some(AccessFlags::empty()),
    };
    let refused = [
        MrModify {
            pd: Some(PdId(77)),
            ..good.clone()
        },
        MrModify {
            access: Some(AccessFlags::REMOTE_ATOMIC),
            ..good.clone()
        },
        MrModify {
            translation: Some((memory, u64::MAX - 5)),
            ..good.clone()
        },
    ];
    let before = world.info;
    for change in refused {
        assert!(world.rereg(change).is_err());
        assert!(world.pair.sides[B].hca.mrs().any(|info| *info == before));
        world.pair.sides[B].hca.audit();
    }
    let key = MrKey(before.key.0 + 1);
    let (object, handle) = (Object::Mr, key.0);
    assert_eq!(
        world.pair.sides[B].hca.rereg_mr(key, good).map(drop),
        Err(VerbsError::NoSuch { object, handle })
    );
}

#[test]
fn a_null_region_reads_as_zeros_and_discards_writes() {
    let (mut pair, [a, b]) = World::connected();
    let null = [A, B].map(|id| {
        let side = &mut pair.sides[id];
        side.hca.alloc_null_mr(side.pd).unwrap()
    });
    let nowhere = |info: &MrInfo, length| Sge {
        addr: 0xdead_beef_0000,
        length,
        lkey: info.key.lkey(),
    };
    let own = pair.sides[A].register(64, AccessFlags::empty());
    own.fill(1);
    let sink = pair.sides[B].register(32, AccessFlags::LOCAL_WRITE);
    sink.fill(2);
    // 16 bytes of zeros, then 16 of ours; of these 32, the middle part is discarded.
    let wr = SendWr {
        sges: Sges::from_vec(vec![nowhere(&null[A], 16), own.sge(0, 16)]),
        ..SendWr::new(1, SEND, own.whole())
    };
    let recv = RecvWr {
        wr_id: 2,
        sges: Sges::from_vec(vec![sink.sge(0, 8), nowhere(&null[B], 16), sink.sge(8, 8)]),
    };
    pair.sides[B].hca.post_recv(b, recv).unwrap();
    pair.post(A, a, wr);
    pair.run();
    for id in [A, B] {
        assert_eq!(pair.sides[id].completions[0].status, WcStatus::Success);
    }
    let bytes = sink.bytes();
    assert_eq!(bytes[..8], [0; 8]);
    assert_eq!(bytes[8..16], own.bytes()[8..16]);
    // It cannot be accessed by a peer.
    let op = SendOp::Read {
        va: 0,
        rkey: null[B].key.rkey(),
    };
    pair.post(A, a, SendWr::new(3, op, nowhere(&null[A], 1)));
    pair.run();
    assert_eq!(pair.sides[A].completions[1].status, WcStatus::RemAccessErr);
    assert_eq!(pair.sides[B].state(b), QpState::Err);
}

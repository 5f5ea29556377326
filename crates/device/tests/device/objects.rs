//! Objects: creation, use by others, destruction.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use ferroce_device::{
    AccessFlags, Attr, Buffer, CqId, Hca, HcaConfig, Limits, Memory, ModifyError, MrKey, MwType,
    Notify, Object, Path, PdId, PostError, QpAttr, QpCap, QpInit, QpModify, QpState, QpType,
    RecvWr, SendWr, Sge, Sges, SrqId, VerbsError, limits,
};
use ferroce_wire::Qpn;

use ferroce_testing::{SEND, srq_limit};

fn device() -> (Hca, QpInit) {
    let mut hca = Hca::new(HcaConfig::default());
    let pd = hca.alloc_pd().unwrap();
    let [send_cq, recv_cq] = [0; 2].map(|_| hca.create_cq(16).unwrap());
    let init = QpInit {
        recv_cq,
        signal_all: false,
        ..QpInit::new(QpType::Rc, pd, send_cq)
    };
    (hca, init)
}

fn busy(object: Object, users: u32) -> Result<(), VerbsError> {
    Err(VerbsError::Busy { object, users })
}

fn gone<T>(object: Object, handle: u32) -> Result<T, VerbsError> {
    Err(VerbsError::NoSuch { object, handle })
}

#[test]
fn objects_in_use_cannot_be_destroyed() {
    let (mut hca, init) = device();
    let QpInit {
        pd,
        send_cq,
        recv_cq,
        ..
    } = init;
    let srq = hca.create_srq(pd, 4, 1).unwrap();
    let memory = Memory::Buffer(Buffer::zeroed(10));
    let mr = hca.reg_mr(pd, memory, AccessFlags::empty()).unwrap();
    let with_srq = QpInit {
        srq: Some(srq),
        ..init
    };
    let one_cq = QpInit {
        recv_cq: send_cq,
        ..init
    };
    let qps = [init, with_srq, one_cq].map(|init| hca.create_qp(&init).unwrap());
    hca.audit();
    assert_eq!(hca.qps().count(), 3);
    assert_eq!(hca.dealloc_pd(pd), busy(Object::Pd, 5));
    assert_eq!(hca.destroy_cq(send_cq), busy(Object::Cq, 3));
    assert_eq!(hca.destroy_cq(recv_cq), busy(Object::Cq, 2));
    assert_eq!(hca.destroy_srq(srq), busy(Object::Srq, 1));
    for qpn in qps {
        hca.destroy_qp(qpn).unwrap();
        hca.audit();
        assert_eq!(hca.destroy_qp(qpn), gone(Object::Qp, qpn.value()));
    }
    assert_eq!(hca.dealloc_pd(pd), busy(Object::Pd, 2));
    hca.destroy_srq(srq).unwrap();
    assert_eq!(hca.dealloc_pd(pd), busy(Object::Pd, 1));
    hca.dereg_mr(mr.key).unwrap();
    hca.dealloc_pd(pd).unwrap();
    hca.destroy_cq(send_cq).unwrap();
    hca.destroy_cq(recv_cq).unwrap();
    hca.audit();
    assert_eq!(hca.dealloc_pd(pd), gone(Object::Pd, pd.0));
    assert_eq!(hca.destroy_cq(send_cq), gone(Object::Cq, send_cq.0));
    assert_eq!(hca.destroy_srq(srq), gone(Object::Srq, srq.0));
    assert_eq!(hca.dereg_mr(mr.key), gone(Object::Mr, mr.key.0));
}

#[test]
fn a_creation_that_is_refused_uses_nothing() {
    let (mut hca, init) = device();
    let QpInit { pd, send_cq, .. } = init;
    let other_pd = hca.alloc_pd().unwrap();
    let no_qp: &[(QpInit, VerbsError)] = &[
        (
            QpInit {
                pd: PdId(99),
                ..init
            },
            gone::<()>(Object::Pd, 99).unwrap_err(),
        ),
        (
            QpInit {
                send_cq: CqId(98),
                ..init
            },
            gone::<()>(Object::Cq, 98).unwrap_err(),
        ),
        (
            QpInit {
                recv_cq: CqId(u32::MAX),
                ..init
            },
            gone::<()>(Object::Cq, u32::MAX).unwrap_err(),
        ),
        (
            QpInit {
                srq: Some(SrqId(97)),
                ..init
            },
            gone::<()>(Object::Srq, 97).unwrap_err(),
        ),
    ];
    for (init, expected) in no_qp {
        assert_eq!(hca.create_qp(init), Err(*expected));
    }
    let full = QpCap {
        max_send_wr: limits::MAX_WR,
        max_recv_wr: limits::MAX_WR,
        max_send_sge: limits::MAX_SGE,
        max_recv_sge: limits::MAX_SGE,
        max_inline_data: limits::MAX_INLINE,
    };
    let mut too_much = [full; 5];
    too_much[0].max_send_wr += 1;
    too_much[1].max_recv_wr += 1;
    too_much[2].max_send_sge += 1;
    too_much[3].max_recv_sge += 1;
    too_much[4].max_inline_data = u32::MAX;
    let names = [
        "max_send_wr",
        "max_recv_wr",
        "max_send_sge",
        "max_recv_sge",
        "max_inline_data",
    ];
    for (cap, name) in too_much.into_iter().zip(names) {
        match hca.create_qp(&QpInit { cap, ..init }) {
            Err(VerbsError::OutOfRange { field, .. }) => assert_eq!(field, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    for cqe in [0, limits::MAX_CQE + 1, u32::MAX] {
        assert!(matches!(
            hca.create_cq(cqe),
            Err(VerbsError::OutOfRange { .. })
        ));
    }
    for (max_wr, max_sge) in [(0, 1), (1, 0), (limits::MAX_WR + 1, 1), (1, 31)] {
        let result = hca.create_srq(pd, max_wr, max_sge);
        assert!(matches!(result, Err(VerbsError::OutOfRange { .. })));
    }
    assert_eq!(hca.create_srq(PdId(9), 1, 1), gone(Object::Pd, 9));
    hca.audit();
    hca.destroy_cq(send_cq).unwrap();
    hca.dealloc_pd(pd).unwrap();
    // The limits themselves are allowed.
    let pd = other_pd;
    let send_cq = hca.create_cq(limits::MAX_CQE).unwrap();
    let cap = full;
    let largest = QpInit {
        pd,
        send_cq,
        cap,
        ..init
    };
    hca.create_qp(&largest).unwrap();
    hca.audit();
}

#[test]
fn there_are_as_many_queue_pairs_as_there_are_numbers() {
    for (wanted, expected) in [(3, 3), (0, 0), (1 << 20, 0xfffd)] {
        let mut hca = Hca::new(HcaConfig {
            slot: 0xff,
            limits: Limits {
                max_qp: wanted,
                ..Limits::MAX
            },
            ..HcaConfig::default()
        });
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(1).unwrap();
        let (_, template) = device();
        let init = QpInit {
            pd,
            send_cq: cq,
            recv_cq: cq,
            ..template
        };
        let mut numbers = HashSet::new();
        for _ in 0..expected {
            let qpn = hca.create_qp(&init).unwrap();
            assert_eq!(qpn.value() >> 16, 0xff);
            assert!(hca.qp(qpn).is_some() && numbers.insert(qpn));
        }
        assert_eq!(
            hca.create_qp(&init),
            Err(VerbsError::TooMany {
                object: Object::Qp,
                max: expected
            })
        );
        hca.audit();
        // A freed number is used again when there is no other.
        if let Some(qpn) = numbers.into_iter().next() {
            hca.destroy_qp(qpn).unwrap();
            assert_eq!(hca.create_qp(&init), Ok(qpn));
        }
    }
}

/// Creates objects until the device refuses; returns them and the error.
fn fill<T>(mut make: impl FnMut() -> Result<T, VerbsError>) -> (Vec<T>, VerbsError) {
    let mut made = Vec::new();
    loop {
        match make() {
            Ok(object) => made.push(object),
            Err(error) => return (made, error),
        }
    }
}

/// For every limit on objects that `ibv_query_device` reports: that number can be created, one more
/// is refused with ENOMEM, and destroying one makes room for another.
#[test]
fn each_kind_of_object_has_the_limit_that_is_reported() {
    let limits = Limits {
        max_qp: 5,
        max_pd: 3,
        max_xrcd: 4,
        max_mr: 6,
        max_mw: 7,
        max_cq: 9,
        max_srq: 8,
        max_mcast_grp: 3,
        max_mcast_qp_attach: 2,
    };
    let mut hca = Hca::new(HcaConfig {
        limits,
        ..HcaConfig::default()
    });
    assert_eq!(hca.config().limits, limits);
    let full = |object, max| VerbsError::TooMany { object, max };
    macro_rules! check {
        ($object:ident, $max:expr, $make:expr, $destroy:ident) => {{
            let (made, error) = fill(|| $make);
            assert_eq!(made.len(), $max as usize, "{}", Object::$object);
            assert_eq!(error, full(Object::$object, $max));
            assert_eq!(error.errno(), 12, "ENOMEM");
            hca.$destroy(made[1]).unwrap();
            assert_eq!(fill(|| $make).0.len(), 1, "{}", Object::$object);
            hca.audit();
            made
        }};
    }
    let pd = check!(Pd, limits.max_pd, hca.alloc_pd(), dealloc_pd)[0];
    let cq = check!(Cq, limits.max_cq, hca.create_cq(4), destroy_cq)[0];
    check!(Xrcd, limits.max_xrcd, hca.alloc_xrcd(), dealloc_xrcd);
    check!(Srq, limits.max_srq, hca.create_srq(pd, 1, 1), destroy_srq);
    // Regions and windows share the keys, not the limits.
    let window = |hca: &mut Hca, kind| hca.alloc_mw(pd, kind).map(|info| info.id);
    let region = |hca: &mut Hca| {
        let memory = Memory::Buffer(Buffer::zeroed(8));
        let info = hca.reg_mr(pd, memory, AccessFlags::empty());
        info.map(|info| info.key)
    };
    check!(
        Mw,
        limits.max_mw,
        window(&mut hca, MwType::Type2),
        dealloc_mw
    );
    check!(Mr, limits.max_mr, region(&mut hca), dereg_mr);
    assert_eq!(
        window(&mut hca, MwType::Type1),
        Err(full(Object::Mw, limits.max_mw))
    );
    let null = hca.alloc_null_mr(pd);
    assert_eq!(null, Err(full(Object::Mr, limits.max_mr)));

    let init = QpInit::new(QpType::Ud, pd, cq);
    let mut qpns = check!(Qp, limits.max_qp, hca.create_qp(&init), destroy_qp);
    qpns[1] = hca.qps().last().map(|qp| qp.qpn()).unwrap();
    let group = |number| Ipv4Addr::new(239, 1, 1, number).to_ipv6_mapped().octets();
    for number in 0..limits.max_mcast_grp as u8 {
        hca.attach_mcast(qpns[0], group(number)).unwrap();
    }
    let beyond = hca.attach_mcast(qpns[0], group(77));
    assert_eq!(beyond, Err(full(Object::Group, limits.max_mcast_grp)));
    hca.attach_mcast(qpns[2], group(0)).unwrap();
    let max = limits.max_mcast_qp_attach;
    let refused = hca.attach_mcast(qpns[3], group(0)).unwrap_err();
    assert!(matches!(refused, VerbsError::GroupFull { max: m, .. } if m == max));
    assert_eq!(refused.errno(), 12, "ENOMEM");
    hca.attach_mcast(qpns[0], group(0)).unwrap(); // it is in already
    hca.detach_mcast(qpns[0], group(0)).unwrap();
    hca.attach_mcast(qpns[3], group(0)).unwrap();
    assert_eq!(limits.max_total_mcast_qp_attach(), 6);
    assert_eq!(limits.max_res_rd_atomic(), 80);
    hca.audit();
}

#[test]
fn configured_limits_are_capped_at_the_maximum() {
    let limits = Limits {
        max_qp: u32::MAX,
        max_mr: u32::MAX,
        max_mw: u32::MAX,
        ..Limits::MAX
    };
    let hca = Hca::new(HcaConfig {
        limits,
        ..HcaConfig::default()
    });
    assert_eq!(hca.config().limits, Limits::MAX);
}

#[test]
fn memory_regions_need_valid_arguments_and_a_domain() {
    let (mut hca, QpInit { pd, .. }) = device();
    let memory = || Memory::Buffer(Buffer::zeroed(100));
    for access in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        let result = hca.reg_mr(pd, memory(), access);
        assert_eq!(result, Err(VerbsError::NeedsLocalWrite));
    }
    let result = hca.reg_mr(PdId(7), memory(), AccessFlags::empty());
    assert_eq!(result, gone(Object::Pd, 7));
    let beyond = hca.reg_mr_iova(pd, memory(), u64::MAX - 99, AccessFlags::empty());
    assert!(matches!(
        beyond,
        Err(VerbsError::OutOfRange {
            field: "length",
            ..
        })
    ));
    hca.reg_mr_iova(pd, memory(), u64::MAX - 100, AccessFlags::empty())
        .unwrap();
    let empty = Memory::Buffer(Buffer::zeroed(0));
    let info = hca.reg_mr(pd, empty, AccessFlags::all()).unwrap();
    assert_eq!(hca.mrs().count(), 2);
    for key in [0, 1, info.key.0 ^ 1, info.key.0 + 0x100, u32::MAX] {
        assert_eq!(hca.dereg_mr(MrKey(key)), gone(Object::Mr, key));
    }
    hca.audit();
}

#[test]
fn bad_handles_are_refused_by_every_verb() {
    let (mut hca, _) = device();
    let qpn = Qpn::new(0x4242);
    let sge = Sge {
        addr: 0,
        length: 1,
        lkey: 0,
    };
    let recv = RecvWr {
        wr_id: 0,
        sges: Sges::from_buf([sge]),
    };
    let change = QpModify::init(QpAttr::default());
    let no_qp = || gone(Object::Qp, 0x4242);
    assert_eq!(hca.post_send(qpn, SendWr::new(0, SEND, sge)), no_qp());
    assert_eq!(hca.post_recv(qpn, recv.clone()), no_qp());
    assert_eq!(hca.modify_qp(qpn, &change, None), no_qp());
    assert_eq!(hca.destroy_qp(qpn), no_qp());
    assert_eq!(hca.query_qp(qpn), gone(Object::Qp, 0x4242));
    assert!(hca.qp(qpn).is_none());
    let below = Qpn::new(1);
    assert_eq!(hca.destroy_qp(below), gone(Object::Qp, 1));
    assert_eq!(hca.post_srq_recv(SrqId(5), recv), gone(Object::Srq, 5));
    assert_eq!(
        hca.modify_srq(SrqId(5), &srq_limit(1)),
        gone(Object::Srq, 5)
    );
    let cq = CqId(9);
    assert_eq!(hca.poll_completion(cq), gone(Object::Cq, 9));
    assert_eq!(hca.req_notify_cq(cq, Notify::Any), gone(Object::Cq, 9));
    hca.audit();
}

/// A peer has the address of a single host; a datagram's path may lead to a group.
#[test]
fn a_connected_queue_pair_has_one_host_as_its_peer() {
    let several = ["0.0.0.0", "::", "255.255.255.255", "239.1.2.3", "ff0e::1"];
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend] {
        let (mut hca, init) = device();
        let qpn = hca.create_qp(&QpInit { qp_type, ..init }).unwrap();
        let attr = QpAttr::default();
        let step = |from, to| QpModify::step(qp_type, from, to, attr);
        let change = step(QpState::Reset, QpState::Init);
        hca.modify_qp(qpn, &change, None).unwrap();
        let before = hca.query_qp(qpn).unwrap();
        let to = |dest| Path {
            dest,
            traffic_class: 0,
            sl: 0,
            port: 1,
        };
        let rtr = step(QpState::Init, QpState::Rtr);
        for dest in several {
            let dest = dest.parse().unwrap();
            let refused = hca.modify_qp(qpn, &rtr, Some(to(dest)));
            assert_eq!(refused, Err(VerbsError::NotUnicast { dest }));
            assert_eq!(hca.query_qp(qpn).unwrap(), before);
        }
        hca.modify_qp(qpn, &rtr, Some(to([10, 0, 0, 2].into())))
            .unwrap();
    }
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let (mut hca, init) = device();
    let qpn = hca.create_qp(&init).unwrap();
    let path = Path {
        dest: [10, 0, 0, 2].into(),
        traffic_class: 0,
        sl: 0,
        port: 1,
    };
    let attr = QpAttr::default();
    let before = hca.query_qp(qpn).unwrap();
    assert_eq!(before.0, QpState::Reset);
    let with_path = hca.modify_qp(qpn, &QpModify::init(attr), Some(path));
    assert_eq!(with_path, Err(VerbsError::AddressMismatch));
    let early = hca.modify_qp(qpn, &QpModify::rts(attr), None);
    assert!(matches!(
        early,
        Err(VerbsError::Modify(ModifyError::NoTransition { .. }))
    ));
    assert_eq!(hca.query_qp(qpn).unwrap(), before);
    hca.modify_qp(qpn, &QpModify::init(attr), None).unwrap();
    let before = hca.query_qp(qpn).unwrap();
    let rtr = QpModify::rtr(attr);
    let without_path = hca.modify_qp(qpn, &rtr, None);
    assert_eq!(without_path, Err(VerbsError::AddressMismatch));
    let greedy = QpModify::rtr(QpAttr {
        max_dest_rd_atomic: limits::MAX_RD_ATOMIC + 1,
        ..attr
    });
    let refused = hca.modify_qp(qpn, &greedy, Some(path));
    assert!(matches!(refused, Err(VerbsError::OutOfRange { .. })));
    assert_eq!(hca.query_qp(qpn).unwrap(), before);
    hca.modify_qp(qpn, &rtr, Some(path)).unwrap();
    assert_eq!(hca.query_qp(qpn).unwrap().2, Some(path));
    let wrong = QpModify::to(QpState::Rtr, Attr::AV, attr);
    let again = hca.modify_qp(
        qpn,
        &wrong,
        Some(Path {
            traffic_class: 9,
            ..path
        }),
    );
    assert!(again.is_err());
    assert_eq!(hca.query_qp(qpn).unwrap().2, Some(path));
    let early = SendWr::new(
        0,
        SEND,
        Sge {
            addr: 0,
            length: 0,
            lkey: 0,
        },
    );
    let result = hca.post_send(qpn, early);
    assert!(matches!(
        result,
        Err(VerbsError::Post(PostError::WrongState { .. }))
    ));
    hca.audit();
}

#[test]
fn numbers_and_keys_come_back_late() {
    let (mut hca, init) = device();
    let first = hca.create_qp(&init).unwrap();
    hca.destroy_qp(first).unwrap();
    for _ in 0..4000 {
        let qpn = hca.create_qp(&init).unwrap();
        assert_ne!(qpn, first);
        hca.destroy_qp(qpn).unwrap();
    }
    let mut keys = HashSet::new();
    for _ in 0..20_000 {
        let memory = Memory::Phantom { addr: 0, len: 1 };
        let info = hca.reg_mr(init.pd, memory, AccessFlags::empty()).unwrap();
        assert!(keys.insert(info.key), "{:?} again", info.key);
        hca.dereg_mr(info.key).unwrap();
    }
}

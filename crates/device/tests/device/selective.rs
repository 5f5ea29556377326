//! Selective repeat of a device: which queue pairs have it, and how much they keep.

use ferroce_device::{
    AccessFlags, Attr, Card, Data, DeviceState, Ece, Hca, Personality, QpInit, QpModify, QpState,
    QpType, Received, SendWr, Settings, WcStatus,
};
use ferroce_testing::{A, B, World, attr, config};
use ferroce_wire::{ExtensionValues, Headers, Opcode, Psn, Qpn};

fn repeats(world: &World, id: usize, qpn: Qpn) -> bool {
    world.sides[id].hca.qp(qpn).unwrap().repeats_selectively()
}

#[test]
fn queue_pairs_have_it_that_are_created_after_the_write() {
    let mut world = World::new([config(), config()]);
    let before = world.sides[A].create_qp();
    world.sides[A].repeat_selectively(true);
    let after = world.sides[A].create_qp();
    world.sides[A].hca.reset_registers().unwrap();
    let later = world.sides[A].create_qp();
    let all = [before, after, later].map(|qpn| repeats(&world, A, qpn));
    assert_eq!(all, [false, true, false]);
}

#[test]
fn both_ends_agree_by_ece() {
    let mut world = World::new([config(), config()]);
    let qpns = [A, B].map(|id| world.sides[id].create_qp());
    let offered = world.sides[A].hca.query_ece(qpns[A]).unwrap();
    assert_eq!((offered.vendor_id, offered.options), (0x15b3, 0x3000_0001));
    // As libraries do: the passive side takes the offer and answers with what is left of it.
    world.sides[B].hca.set_ece(qpns[B], offered).unwrap();
    let chosen = world.sides[B].hca.query_ece(qpns[B]).unwrap();
    world.sides[A].hca.set_ece(qpns[A], chosen).unwrap();
    world.connect(qpns, attr());
    assert!([A, B].iter().all(|id| repeats(&world, *id, qpns[*id])));
    let error = world.sides[A].hca.set_ece(qpns[A], Ece::default());
    let text = error.unwrap_err().to_string();
    assert!(
        text.ends_with("is in state Rts: set its ECE options before RTS"),
        "{text}"
    );

    let source = world.sides[A].register(8, AccessFlags::empty());
    let sink = world.sides[B].register(8, AccessFlags::all());
    source.fill(1);
    world.post(A, qpns[A], SendWr::new(1, sink.write(), source.whole()));
    world.run();
    assert_eq!(world.sides[A].completions[0].status, WcStatus::Success);
}

#[test]
fn a_reset_ends_what_was_agreed_and_offers_it_again() {
    let mut world = World::new([config(), config()]);
    let qpn = world.sides[A].create_qp();
    world.sides[A].hca.set_ece(qpn, Ece::default()).unwrap();
    let options = |world: &World| world.sides[A].hca.query_ece(qpn).unwrap().options;
    assert_eq!(options(&world), 0x3000_0000);
    let reset = QpModify::to(QpState::Reset, Attr::STATE, attr());
    world.sides[A].hca.modify_qp(qpn, &reset, None).unwrap();
    assert_eq!(options(&world), 0x3000_0001);
}

#[test]
fn options_of_others_are_none() {
    let mut world = World::new([config(), config()]);
    for (vendor_id, options, expected) in [
        (0x15b3, 0x3000_0001, 0x3000_0001),
        (0x15b3, 0x3fff_fffe, 0x3000_0000),
        (0x15b3, 0x2000_0001, 0x3000_0001),
        (0x15b3, 0x1000_0001, 0x3000_0000),
        (0x1dd8, 0x3000_0001, 0x3000_0000),
        (0, 0, 0x3000_0000),
    ] {
        let qpn = world.sides[A].create_qp();
        let ece = Ece { vendor_id, options };
        world.sides[A].hca.set_ece(qpn, ece).unwrap();
        let found = world.sides[A].hca.query_ece(qpn).unwrap();
        assert_eq!(found.options, expected, "{ece:?}");
    }
}

#[test]
fn a_card_without_it_offers_nothing() {
    let card: Card = "cx5".parse().unwrap();
    let settings = Settings::new(Personality::default());
    let state = DeviceState::local(settings.into(), card.into());
    let mut hca = Hca::with_state(config(), state);
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(16).unwrap();
    let qpn = hca.create_qp(&QpInit::new(QpType::Rc, pd, cq)).unwrap();
    assert_eq!(hca.query_ece(qpn).unwrap().options, 0x3000_0000);
    let offered = Ece {
        vendor_id: 0x15b3,
        options: 0x3000_0001,
    };
    hca.set_ece(qpn, offered).unwrap();
    assert_eq!(hca.query_ece(qpn).unwrap().options, 0x3000_0000);
}

/// Queue pairs with a gap each keep no more together than a device has room for.
#[test]
fn kept_bytes_have_a_bound() {
    const QPS: usize = 80;
    const KEPT_MAX: u32 = 64 << 20;
    let mut world = World::new([config(), config()]);
    world.sides[B].repeat_selectively(true);
    let connections: Vec<_> = (0..QPS)
        .map(|_| {
            let qpns = [A, B].map(|id| world.sides[id].create_qp());
            world.connect(qpns, attr());
            qpns
        })
        .collect();
    let bytes = [0_u8; 1024];
    for qpns in &connections {
        for ahead in 1..=1100 {
            let values = ExtensionValues::default();
            let start = world.sides[B].hca.qp(qpns[B]).unwrap().expected_psn();
            let psn: Psn = start.wrapping_add(ahead);
            let headers = Headers::with_values(Opcode::RcWriteOnly, &values).to(qpns[B], psn);
            let (source, dest) = (world.sides[A].address, world.sides[B].address);
            let received = Received {
                source,
                dest,
                traffic_class: 0,
                sl: 0,
                headers: &headers,
                data: Data::Bytes(&bytes),
                port: 1,
            };
            let now = world.now;
            world.sides[B].hca.handle_packet(now, &received);
        }
    }
    let kept = |world: &World| -> u32 {
        let of_qp = |qpns: &[Qpn; 2]| world.sides[B].hca.qp(qpns[B]).unwrap().kept_bytes();
        connections.iter().map(of_qp).sum()
    };
    assert_eq!(kept(&world), (QPS as u32 * 1024 * 1024).min(KEPT_MAX));
    world.sides[B].hca.audit();
    for qpns in &connections {
        world.sides[B].hca.destroy_qp(qpns[B]).unwrap();
        world.sides[B].hca.audit();
    }
    assert_eq!(world.sides[A].state(connections[0][A]), QpState::Rts);
}

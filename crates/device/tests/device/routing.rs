//! Adaptive routing of a device: which queue pairs have it, and what tells switches their packets apart.

use ferroce_device::{
    AccessFlags, Card, DeviceState, Hca, HcaConfig, Personality, QpType, SendWr, Settings, Span,
};
use ferroce_testing::{A, B, World, attr, card, config};
use ferroce_wire::Qpn;

/// Packets of a WRITE.
const PACKETS: u32 = 64;

fn routed(world: &World, id: usize, qpn: Qpn) -> bool {
    world.sides[id].hca.qp(qpn).unwrap().uses_many_paths()
}

#[test]
fn queue_pairs_have_it_that_are_created_after_the_write() {
    let mut world = World::new([config(), config()]);
    let before = world.sides[A].create_qp();
    world.sides[A].route_adaptively(true);
    let after = world.sides[A].create_qp();
    world.sides[A].hca.reset_registers().unwrap();
    let later = world.sides[A].create_qp();
    let all = [before, after, later].map(|qpn| routed(&world, A, qpn));
    assert_eq!(all, [false, true, false]);
}

#[test]
fn one_queue_pair_can_have_it() {
    let mut world = World::new([config(), config()]);
    let hca = &mut world.sides[A].hca;
    assert!(hca.can_route_adaptively(QpType::Rc) && !hca.can_route_adaptively(QpType::Uc));
    let [qpn, other] = [(), ()].map(|()| world.sides[A].create_qp());
    world.sides[A].hca.route_adaptively(qpn).unwrap();
    assert!(routed(&world, A, qpn) && !routed(&world, A, other));
    assert!(
        world.sides[A]
            .hca
            .route_adaptively(Qpn::new(0xabcdef))
            .is_err()
    );
}

/// The entropy of each packet of a WRITE.
fn entropies(config: HcaConfig, routed: bool) -> Vec<u16> {
    let mut world = World::new([config.clone(), config]);
    for side in &mut world.sides {
        side.route_adaptively(routed);
    }
    let qpns = [A, B].map(|id| world.sides[id].create_qp());
    world.connect(qpns, attr());
    let in_order = |id: usize| world.sides[id].hca.lands_in_order(qpns[id]).unwrap();
    assert_eq!([A, B].map(in_order), [!routed; 2]);
    let bytes = (PACKETS * attr().path_mtu.bytes()) as usize;
    let source = world.sides[A].register(bytes, AccessFlags::empty());
    let sink = world.sides[B].register(bytes, AccessFlags::all());
    world.post(A, qpns[A], SendWr::new(1, sink.write(), source.whole()));
    let (hca, now) = (&mut world.sides[A].hca, world.now);
    // One after the other, as a link takes them.
    (0..PACKETS)
        .filter_map(|us| hca.poll_transmit(now.after(Span::from_micros(us.into()))))
        .map(|packet| packet.entropy)
        .collect()
}

#[test]
fn packets_of_one_path_are_not_told_apart() {
    let all = entropies(card(400_000), false);
    assert!(
        !all.is_empty() && all.iter().all(|entropy| *entropy == 0),
        "{all:?}"
    );
}

/// Cards send each packet by another path; hosts send batches, each with one system call.
#[test]
fn packets_of_many_paths_change_them() {
    for (config, batch) in [(card(400_000), 1), (config(), 16)] {
        let all = entropies(config, true);
        assert!(all.len() > batch, "{all:?}");
        let mut batches: Vec<_> = all.chunk_by(|a, b| a == b).collect();
        batches.pop();
        assert!(
            batches.iter().all(|it| it.len() == batch && it[0] != 0),
            "{all:?}"
        );
    }
}

#[test]
fn older_cards_have_none() {
    for (name, can) in [("cx6dx", false), ("cx7:28.45.1020", false), ("cx7", true)] {
        let card: Card = name.parse().unwrap();
        let settings = Settings::new(Personality::default());
        let state = DeviceState::local(settings.into(), card.into());
        let hca = Hca::with_state(config(), state);
        assert_eq!(hca.can_route_adaptively(QpType::Rc), can, "{name}");
    }
}

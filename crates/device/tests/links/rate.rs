//! Links with a rate: each sends for itself.

use ferroce_device::{
    Counter, HcaConfig, HostProfile, Pairing, QpState, Rate, SendWr, Span, WcStatus,
};
use ferroce_testing::{A, Dice, World, seeds};
use ferroce_wire::Qpn;

use super::{config, connected, count, memories, pair_of, set};

const RATE: Rate = Rate::from_mbps(10_000);
const BYTES: usize = 100_000;

fn cards(pairing: Pairing) -> World {
    let config = HcaConfig {
        host: HostProfile::card(RATE).into(),
        ..config()
    };
    pair_of(config, pairing)
}

/// Two queue pairs of A, one on each link.
fn on_both(world: &mut World, pairing: Pairing) -> [Qpn; 2] {
    [1, 2].map(|link| match pairing {
        Pairing::Ports => connected(world, link)[A],
        Pairing::Bond => {
            let qpns = connected(world, 1);
            world.sides[A].hca.set_lag_port(qpns[A], link).unwrap();
            qpns[A]
        }
    })
}

#[test]
fn links_send_at_the_same_time() {
    for pairing in [Pairing::Ports, Pairing::Bond] {
        let mut world = cards(pairing);
        let [source, sink] = memories(&mut world, BYTES);
        let qpns = on_both(&mut world, pairing);
        let mut send = |qpns: &[Qpn]| {
            let began = world.now;
            for qpn in qpns {
                world.post(A, *qpn, SendWr::new(1, sink.write(), source.whole()));
            }
            world.run();
            world.now.since(began)
        };
        let alone = send(&qpns[..1]);
        let both = send(&qpns);
        assert!(
            both < alone + alone / 10,
            "{pairing:?}: {alone:?}, {both:?}"
        );
        assert_eq!(world.sides[A].completions.len(), 3);
    }
}

#[test]
fn a_pause_is_of_one_link() {
    let mut world = cards(Pairing::Ports);
    let [source, sink] = memories(&mut world, BYTES);
    let qpns = on_both(&mut world, Pairing::Ports);
    let now = world.now;
    world.sides[A].hca.set_paused(now, 1, 0xff);
    let paused = [1, 2].map(|link| world.sides[A].hca.paused(link));
    assert_eq!(paused, [0xff, 0]);
    for qpn in qpns {
        world.post(A, qpn, SendWr::new(1, sink.write(), source.whole()));
    }
    world.run();
    let done: Vec<_> = world.sides[A].completions.iter().map(|it| it.qpn).collect();
    assert_eq!(done, [qpns[1]]);
    assert!(!world.sides[A].hca.wants_transmit(), "it would spin");
    let now = world.now;
    world.sides[A].hca.set_paused(now, 1, 0);
    world.run();
    assert_eq!(world.sides[A].completions.len(), 2);
}

#[test]
fn waiting_queue_pairs_change_links() {
    let mut world = cards(Pairing::Bond);
    let [source, sink] = memories(&mut world, BYTES);
    let qpns = on_both(&mut world, Pairing::Bond);
    let now = world.now;
    world.sides[A].hca.set_paused(now, 1, 0xff);
    for qpn in qpns {
        world.post(A, qpn, SendWr::new(1, sink.write(), source.whole()));
    }
    world.run_for(1_000);
    set(&mut world, A, 1, false);
    world.run();
    assert_eq!(world.sides[A].completions.len(), 2, "both by the second");
    assert_eq!(count(&world, A, 1, Counter::RdmaTxPackets), 0);
}

/// Whatever is paused and goes down, nothing is forgotten: in the end everything has been sent.
#[test]
fn nothing_waits_for_a_link_that_is_gone() {
    seeds::each(50, |seed| {
        let mut dice = Dice::new(seed);
        let pairing = dice.pick(&[Pairing::Ports, Pairing::Bond]);
        let mut world = cards(pairing);
        let [source, sink] = memories(&mut world, BYTES);
        let qpns = [on_both(&mut world, pairing), on_both(&mut world, pairing)].concat();
        let mut posted = 0;
        for _ in 0..40 {
            let qpn = dice.pick(&qpns);
            if world.sides[A].state(qpn) == QpState::Rts {
                world.post(A, qpn, SendWr::new(1, sink.write(), source.whole()));
                posted += 1;
            }
            let link = dice.within(1..=2) as u8;
            let now = world.now;
            match dice.below(4) {
                0 => world.sides[A].hca.set_paused(now, link, dice.next() as u8),
                1 => set(&mut world, A, link, false),
                _ => set(&mut world, A, link, true),
            }
            world.run_for(dice.below(50_000));
        }
        for link in [1, 2] {
            let now = world.now;
            world.sides[A].hca.set_paused(now, link, 0);
            set(&mut world, A, link, true);
        }
        world.run();
        let done = &world.sides[A].completions;
        assert_eq!(done.len(), posted, "seed {seed}");
        let all_well = done.iter().all(|it| it.status == WcStatus::Success);
        assert!(all_well || world.now.as_nanos() > Span::from_secs(1).as_nanos());
        world.sides[A].hca.audit();
    });
}

//! The world itself: more than two devices, and what its links do.

use ferroce_device::{AccessFlags, Counter, QpAttr, SendWr, Time, WcStatus};
use ferroce_testing::{Dice, Fate, Receiver, Socket, World, attr, config};
use ferroce_wire::Psn;

const LEN: usize = 20_000;

/// All devices but the last write to that over a bad link, and what they wrote is there.
fn incast(devices: usize, seed: u64) -> (World, Time) {
    let mut world = World::new((0..devices).map(|_| config()));
    world.sockets = (0..devices)
        .map(|_| Socket::new(Receiver::default()))
        .collect();
    let mut dice = Dice::new(seed);
    world.net().rules.add(move |_| match dice.below(10) {
        0 => Some(Fate::Lost),
        1 => Some(Fate::Twice(3_000)),
        2 => Some(Fate::Late(7_000)),
        _ => None,
    });
    let last = devices - 1;
    let mut pairs = Vec::new();
    for from in 0..last {
        let qpns = [from, last].map(|id| world.sides[id].create_qp());
        for (id, qpn, peer, dest_qpn) in [
            (from, qpns[0], last, qpns[1]),
            (last, qpns[1], from, qpns[0]),
        ] {
            let psn = Psn::new(7);
            let attr = QpAttr {
                dest_qpn,
                rq_psn: psn,
                sq_psn: psn,
                ..attr()
            };
            let dest = world.sides[peer].address;
            world.sides[id].connect(qpn, dest, attr);
        }
        let own = world.sides[from].register(LEN, AccessFlags::empty());
        own.fill(from as u64);
        let remote = world.sides[last].register(LEN, AccessFlags::all());
        world.post(from, qpns[0], SendWr::new(1, remote.write(), own.whole()));
        pairs.push((own, remote));
    }
    world.run();
    for (from, (own, remote)) in pairs.iter().enumerate() {
        let [done] = world.sides[from].completions[..] else {
            panic!("{:?}", world.sides[from].completions);
        };
        assert_eq!(done.status, WcStatus::Success);
        assert!(own.bytes() == remote.bytes());
    }
    let now = world.now;
    (world, now)
}

#[test]
fn any_number_of_devices_talk_over_a_bad_link() {
    for devices in 2..6 {
        let (world, _) = incast(devices, 1);
        let repeated = |id| world.count(id, Counter::RetransmittedPackets);
        assert!((0..devices).map(repeated).sum::<u64>() > 0, "it was bad");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let [first, second, other] = [1, 1, 2].map(|seed| incast(4, seed).1);
    assert_eq!(first, second);
    assert_ne!(first, other);
}

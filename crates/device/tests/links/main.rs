//! Devices with two links: cards with two ports, and bonds.

mod bond;
mod ports;
mod rate;

use ferroce_device::carrier::Schedule;
use ferroce_device::{
    AccessFlags, Counter, DeviceState, Event, Hca, HcaConfig, Pairing, Personality, QpAttr, SendWr,
    WcStatus,
};
use ferroce_testing::{A, B, Region, Side, World, attr, config};
use ferroce_wire::Qpn;

/// Two devices with two links each.
fn pair(pairing: Pairing) -> World {
    pair_of(config(), pairing)
}

fn pair_of(config: HcaConfig, pairing: Pairing) -> World {
    let sides = (1..=2).map(|number| {
        let state = DeviceState::new(Personality::default());
        let hca = Hca::new(config.clone()).with_second_link(pairing, state);
        Side::on(number, hca)
    });
    World::of(sides)
}

/// What a side was told of its ports since the last time.
fn of_ports(side: &mut Side) -> Vec<Event> {
    let is_of_port = |event: &Event| {
        matches!(
            event,
            Event::PortError { .. } | Event::PortActive { .. } | Event::GidChange { .. }
        )
    };
    std::mem::take(&mut side.events)
        .into_iter()
        .filter(is_of_port)
        .collect()
}

/// Takes a link down or up; the device notices with its next input.
fn set(world: &mut World, id: usize, link: u8, is_up: bool) {
    let schedule = match is_up {
        true => Schedule::default(),
        false => Schedule::down_from(world.now),
    };
    let now = world.now;
    let hca = &mut world.sides[id].hca;
    hca.link_state(link)
        .unwrap()
        .set_schedule(now, schedule)
        .unwrap();
    hca.handle_settings(now);
    world.settle();
}

/// A counter of a link.
fn count(world: &World, id: usize, link: u8, counter: Counter) -> u64 {
    world.sides[id]
        .hca
        .link_state(link)
        .unwrap()
        .counter(counter)
}

/// A connected queue pair on each side, on this port.
fn connected(world: &mut World, port: u8) -> [Qpn; 2] {
    let qpns = [A, B].map(|id| world.sides[id].create_qp());
    world.connect(qpns, QpAttr { port, ..attr() });
    qpns
}

/// Memory of this length on both sides, of A with a pattern.
fn memories(world: &mut World, len: usize) -> [Region; 2] {
    let source = world.sides[A].register(len, AccessFlags::empty());
    let sink = world.sides[B].register(len, AccessFlags::all());
    source.fill(7);
    [source, sink]
}

/// Writes from A to B until that is through; what it completes with.
fn write(world: &mut World, qpn: Qpn, [source, sink]: &[Region; 2]) -> WcStatus {
    let before = world.sides[A].completions.len();
    world.post(A, qpn, SendWr::new(1, sink.write(), source.whole()));
    world.run();
    assert_eq!(world.sides[A].completions.len(), before + 1);
    world.sides[A].completions[before].status
}

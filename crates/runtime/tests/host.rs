//! Ports that follow the user's settings and the host's interfaces, and GIDs that follow its
//! addresses (F21, F22).

mod common;

use std::process::Command;
use std::time::Instant;

use common::{
    Node, Other, PATIENCE, Place, address, attr, connect, hear, impatient_attr, in_namespace, role,
    tell, wait_until,
};
use ferroce_device::carrier::{Outages, Schedule};

use common::flaps::{flaps, next_event, watch_flaps};
use ferroce_device::{Event, Span, WcStatus};
use ferroce_os::Clock;
use ferroce_registry::{DeviceSpec, Registry};

/// No port event waits.
fn no_event(node: &Node) {
    while let Some(event) = node.device.poll_event() {
        let of_port = [
            Event::PortError { port: 1 },
            Event::PortActive { port: 1 },
            Event::GidChange { port: 1 },
        ];
        assert!(!of_port.contains(&event), "{event:?}");
    }
}

fn is_up(node: &Node) -> bool {
    let now = node.device.now();
    node.device.with(|hca| hca.port_is_up(now, 1))
}

/// Another process changes the setting; those that have the device open sleep.
#[test]
fn every_process_of_a_device_is_told_of_each_flap_in_order() {
    const FLAPS: u32 = 20;
    let test = "every_process_of_a_device_is_told_of_each_flap_in_order";
    let watch = |node: &Node| {
        watch_flaps(node, FLAPS);
        no_event(node);
    };
    if let Some(place) = role() {
        let registry = Registry::at(place[0].as_ref()).unwrap();
        let node = Node::attach(&registry, "a", 64);
        tell("open");
        watch(&node);
        tell("seen");
        hear();
        return;
    }
    let place = Place::with_device(address(77, 1, 1));
    let registry = place.registry();
    let node = Node::attach(&registry, "a", 64);
    let path = place.path().display().to_string();
    let mut others = [(); 2].map(|()| Other::start(test, &path));
    for other in &mut others {
        assert_eq!(other.hear(), "open");
    }
    let observer = registry.observe("a").unwrap();
    assert_eq!(observer.port().downed, 0);
    observer.set_schedule(flaps(FLAPS)).unwrap();
    watch(&node);
    for other in &mut others {
        assert_eq!(other.hear(), "seen");
    }
    let port = observer.port();
    assert_eq!((port.is_up, port.downed), (true, FLAPS.into()));
    assert_eq!(port.changes_in, None);
}

#[test]
fn a_write_outlasts_a_short_outage_and_fails_in_a_long_one() {
    let place = Place::with_device(address(77, 2, 1));
    let registry = place.registry();
    let spec = DeviceSpec {
        name: "b".to_owned(),
        address: address(77, 2, 2),
        ..registry.device("a").unwrap()
    };
    registry.add(&spec).unwrap();
    let [a, b] = ["a", "b"].map(|name| Node::attach(&registry, name, 1 << 16));
    let (at_a, _) = connect(&a, &b, &attr());
    let observer = registry.observe("a").unwrap();
    let short = Outages::once(Clock.now(), Span::from_millis(100));
    observer
        .set_schedule(Schedule::new(vec![short]).unwrap())
        .unwrap();
    assert_eq!(next_event(&a), Event::PortError { port: 1 });
    assert!(!is_up(&a) || next_event(&a) == Event::PortActive { port: 1 });
    a.post(at_a, 1, b.remote(0).write(), a.sge(0, 1 << 16));
    a.succeed(1);
    observer
        .set_schedule(Schedule::down_from(Clock.now()))
        .unwrap();
    let (at_a, _) = connect(&a, &b, &impatient_attr());
    a.post(at_a, 2, b.remote(0).write(), a.sge(0, 1 << 16));
    assert_eq!(a.completion().status, WcStatus::RetryExcErr);
    assert!(!observer.port().is_up);
    // A device that is opened now finds the port down, and gets no event.
    let late = Node::attach(&registry, "a", 64);
    assert!(!is_up(&late));
    no_event(&late);
    observer.set_schedule(Schedule::default()).unwrap();
    assert_eq!(next_event(&late), Event::PortActive { port: 1 });
    assert!(observer.port().is_up && is_up(&late));
    no_event(&b);
}

// On interfaces in a namespace.

const INTERFACES: &str = "ip link add v0 mtu 9000 type veth peer name v1 mtu 9000 && ip link set v0 up && \
    ip link set v1 up && ip addr add 10.9.0.1/24 dev v0 && ip addr add 10.9.0.2/24 dev v1 && \
    ip addr add fd09::1/64 dev v0 nodad";

fn ip(command: &str) {
    let words = command.split(' ');
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {command}: {output:?}");
}

fn on_interfaces() -> (Place, Registry, [Node; 2]) {
    let place = Place::with_device([10, 9, 0, 1].into());
    let registry = place.registry();
    let spec = DeviceSpec {
        name: "b".to_owned(),
        address: [10, 9, 0, 2].into(),
        ..registry.device("a").unwrap()
    };
    registry.add(&spec).unwrap();
    let nodes = ["a", "b"].map(|name| Node::attach(&registry, name, 1 << 16));
    (place, registry, nodes)
}

#[test]
fn the_port_goes_down_with_its_interface() {
    let test = "the_port_goes_down_with_its_interface";
    if !in_namespace(test, INTERFACES) {
        return;
    }
    let (_place, registry, [a, b]) = on_interfaces();
    let observer = registry.observe("a").unwrap();
    assert!(is_up(&a) && is_up(&b) && observer.port().is_up);
    let (at_a, _) = connect(&a, &b, &attr());
    a.post(at_a, 1, b.remote(0).write(), a.sge(0, 1 << 16));
    a.succeed(1);
    for times in 1..=3 {
        ip("link set v0 down");
        for node in [&a, &b] {
            // The other end of the cable loses the carrier as well.
            while next_event(node) != (Event::PortError { port: 1 }) {}
            assert!(!is_up(node));
        }
        assert!(!observer.port().is_up);
        a.post(at_a, 2, b.remote(0).write(), a.sge(0, 1 << 16));
        ip("link set v0 up");
        for node in [&a, &b] {
            while next_event(node) != (Event::PortActive { port: 1 }) {}
        }
        a.succeed(1);
        assert_eq!(observer.port().downed, times);
    }
}

#[test]
fn a_queue_pair_stays_bound_to_an_address_that_was_removed() {
    let test = "a_queue_pair_stays_bound_to_an_address_that_was_removed";
    if !in_namespace(test, INTERFACES) {
        return;
    }
    let (_place, registry, [a, b]) = on_interfaces();
    let own = [10, 9, 0, 1].into();
    let observer = registry.observe("a").unwrap();
    let table = a.device.gids(1);
    assert_eq!([0, 1].map(|index| table.address(index)), [Some(own); 2]);
    let other = table.index_of("fd09::1".parse().unwrap()).unwrap();
    assert!(other > 1);
    let (at_a, _) = connect(&a, &b, &impatient_attr());
    ip("addr del 10.9.0.1/24 dev v0");
    assert_eq!(next_event(&a), Event::GidChange { port: 1 });
    assert_eq!(a.device.gids(1).index_of(own), None);
    assert!(is_up(&a), "the cable is not concerned");
    ip("addr add 10.9.0.1/24 dev v0");
    assert_eq!(next_event(&a), Event::GidChange { port: 1 });
    let index = a.device.gids(1).index_of(own);
    assert!(index > Some(other), "{index:?}");
    assert_eq!(observer.gids(), a.device.gids(1));
    a.post(at_a, 1, b.remote(0).write(), a.sge(0, 64));
    assert_eq!(a.completion().status, WcStatus::RetryExcErr);
    // A new queue pair works.
    let (at_a, _) = connect(&a, &b, &attr());
    a.post(at_a, 2, b.remote(0).write(), a.sge(0, 64));
    a.succeed(1);
    // Changes of other addresses are reported, and do no harm.
    ip("addr add 10.9.0.77/24 dev v0");
    assert_eq!(next_event(&a), Event::GidChange { port: 1 });
    a.post(at_a, 3, b.remote(0).write(), a.sge(0, 64));
    a.succeed(1);
    no_event(&b);
}

#[test]
fn port_and_gids_disappear_with_their_interface() {
    let test = "port_and_gids_disappear_with_their_interface";
    if !in_namespace(test, INTERFACES) {
        return;
    }
    let (_place, _registry, [a, b]) = on_interfaces();
    ip("link del v0");
    for node in [&a, &b] {
        while next_event(node) != (Event::PortError { port: 1 }) {}
        assert!(!is_up(node));
    }
    let is_gone = |node: &Node| node.device.gids(1).used().count() == 0;
    wait_until("their GIDs are gone", || [&a, &b].into_iter().all(is_gone));
    ip("link add v0 mtu 9000 type veth peer name v1 mtu 9000");
    ip("link set v0 up");
    ip("link set v1 up");
    ip("addr add 10.9.0.1/24 dev v0");
    while next_event(&a) != (Event::PortActive { port: 1 }) {}
    assert!(is_up(&a));
}

/// Each port of a device hears of its removal, and its users once.
#[test]
fn users_of_two_ports_are_told_once_of_a_removal() {
    let place = Place::with_device(address(77, 4, 1));
    let registry = place.registry();
    let spec = DeviceSpec {
        second_address: Some(address(77, 4, 2)),
        ..registry.device("a").unwrap()
    };
    registry.replace(&spec).unwrap();
    let node = Node::attach(&registry, "a", 64);
    assert_eq!(node.device.ports(), 2);
    assert_eq!(node.device.port_at(address(77, 4, 2)), Some(2));
    assert!(registry.remove("a").is_err());
    registry.remove_by_force("a").unwrap();
    let mut told = Vec::new();
    wait_until("the removal", || {
        told.extend(node.device.poll_event());
        told.contains(&Event::DeviceFatal)
    });
    std::thread::sleep(PATIENCE / 100);
    told.extend(std::iter::from_fn(|| node.device.poll_event()));
    for event in [Event::DeviceRemoved, Event::DeviceFatal] {
        let times = told.iter().filter(|it| **it == event).count();
        assert_eq!(times, 1, "{told:?}");
    }
}

/// `ferroce dev del --force`: the device is removed while it is in use, and its name is free.
#[test]
fn users_of_a_forcibly_removed_device_are_told() {
    let place = Place::with_device(address(77, 3, 1));
    let registry = place.registry();
    let node = Node::attach(&registry, "a", 64);
    let spec = registry.device("a").unwrap();
    assert!(registry.remove("a").is_err());
    registry.remove_by_force("a").unwrap();
    let started = Instant::now();
    let mut told = Vec::new();
    while !told.contains(&Event::DeviceFatal) {
        told.extend(node.device.poll_event());
        assert!(started.elapsed() < PATIENCE, "{told:?}");
        std::thread::yield_now();
    }
    assert!(told.contains(&Event::DeviceRemoved));
    assert!(node.device.has_failed());
    assert!(registry.device("a").is_err());
    registry.add(&spec).unwrap();
    let again = Node::attach(&registry, "a", 64);
    let (qpn, peer) = connect(&again, &again, &attr());
    again.post(qpn, 1, again.remote(0).write(), again.sge(0, 64));
    again.succeed(1);
    assert_ne!(qpn, peer);
    drop(node);
    assert_eq!(registry.observe("a").unwrap().processes().unwrap().len(), 1);
}

//! Packets come to the process that they are for.

mod common;

use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use common::{
    Link, Node, Other, PATIENCE, Place, Remote, address, connect, connect_back, hear,
    nothing_was_missed, patient_attr, port_v6, role, share, tell,
};
use ferroce_hca::Counter;
use ferroce_udp::socket::{Options, ROCE_PORT, Routes, Socket};
use ferroce_udp::{DeviceSpec, Registry};
use ferroce_wire::Qpn;

const LEN: usize = 64 << 10;

fn attach(directory: &Path) -> Node {
    Node::attach(&Registry::at(directory).unwrap(), "a", LEN)
}

/// A process beside the test's own: attaches to the device, and lets others write and read.
fn target(role: &[String]) {
    let node = attach(Path::new(&role[0]));
    connect_back(&node, &patient_attr());
    tell("connected");
    while hear().is_some() {}
}

/// A process in that role, and what writes to it and reads from it.
struct Target {
    child: Other,
    qpn: Qpn,
    memory: Remote,
}

impl Target {
    fn start(test: &str, directory: &Path) -> Other {
        Other::start(test, &directory.display().to_string())
    }

    fn connect(node: &Node, mut child: Other) -> Self {
        let Link { qpn, memory, .. } = child.connect(node, &patient_attr());
        assert_eq!(child.hear(), "connected");
        Self { child, qpn, memory }
    }

    /// Packets to it and back.
    fn exchange(&self, node: &Node) {
        exchange(node, self.qpn, self.memory);
    }
}

/// Packets to that memory and back.
fn exchange(node: &Node, qpn: Qpn, memory: Remote) {
    node.post(qpn, 1, memory.write(), node.sge(0, LEN as u32));
    node.post(qpn, 2, memory.read(), node.sge(0, LEN as u32));
    node.succeed(2);
}

/// Two of a device, with a queue pair of the first to the second.
fn pair(place: &Place) -> ([Node; 2], Qpn) {
    let nodes = [(); 2].map(|()| attach(place.path()));
    let (qpn, _) = connect(&nodes[0], &nodes[1], &patient_attr());
    (nodes, qpn)
}

/// Waits until `exchange` goes its way with no packet handed on, whoever receives it.
fn settles(node: &Node, exchange: impl Fn()) {
    let state = node.device.state();
    let started = Instant::now();
    loop {
        let before = state.counter(Counter::RxForwarded);
        (0..20).for_each(|_| exchange());
        if state.counter(Counter::RxForwarded) == before {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "packets are still handed on");
    }
}

fn between_nodes(place: &Place) {
    let nodes = [(); 3].map(|()| attach(place.path()));
    let pairs = [(0, 1), (1, 2), (2, 0)];
    let pairs = pairs.map(|(a, b)| (&nodes[a], &nodes[b]));
    let pairs = pairs.map(|(a, b)| (a, b, connect(a, b, &patient_attr()).0));
    settles(&nodes[0], || {
        for (a, b, qpn) in pairs {
            exchange(a, qpn, b.remote(0));
        }
    });
    nodes.iter().for_each(nothing_was_missed);
    let malformed = nodes[0].device.state().counter(Counter::RxMalformed);
    assert_eq!(malformed, 0, "a probe was taken for a packet");
}

#[test]
fn nothing_is_handed_on_for_long() {
    between_nodes(&Place::with_device(address(16, 0, 0)));
}

#[test]
fn nor_with_ipv6() {
    let Some(port) = port_v6() else { return };
    let place = Place::new();
    let spec = DeviceSpec {
        port,
        ..DeviceSpec::new("a", Ipv6Addr::LOCALHOST.into())
    };
    place.registry().add(&spec).unwrap();
    between_nodes(&place);
}

/// The last socket takes the index of the first one.
#[test]
fn the_death_of_the_first_heals() {
    if let Some(role) = role() {
        return target(&role);
    }
    let place = Place::with_device(address(16, 1, 0));
    let start = || Target::start("the_death_of_the_first_heals", place.path());
    let mut first = start();
    let described = first.hear();
    let node = attach(place.path());
    let others = [(); 2].map(|()| Target::connect(&node, start()));
    let exchange = || others.iter().for_each(|other| other.exchange(&node));
    settles(&node, exchange);
    assert!(!described.is_empty());
    first.kill();
    settles(&node, exchange);
    nothing_was_missed(&node);
    others.into_iter().for_each(|other| other.child.finish());
}

#[test]
fn eight_processes() {
    if let Some(role) = role() {
        return target(&role);
    }
    let place = Place::with_device(address(16, 2, 0));
    let children = [(); 7].map(|()| Target::start("eight_processes", place.path()));
    let node = attach(place.path());
    let others = children.map(|child| Target::connect(&node, child));
    settles(&node, || {
        others.iter().for_each(|other| other.exchange(&node))
    });
    nothing_was_missed(&node);
    others.into_iter().for_each(|other| other.child.finish());
}

#[test]
fn a_wrong_program_heals() {
    let address = address(16, 3, 0);
    let place = Place::with_device(address);
    let ([a, b], qpn) = pair(&place);
    let exchange = || exchange(&a, qpn, b.remote(0));
    settles(&a, exchange);
    let other = share(SocketAddr::new(address, ROCE_PORT));
    let wrong = Routes {
        slots: vec![(a.device.slot(), 1), (b.device.slot(), 0)],
        ..Routes::default()
    };
    other.steer(&wrong).unwrap();
    drop(other);
    let before = a.device.state().counter(Counter::RxForwarded);
    exchange();
    assert!(a.device.state().counter(Counter::RxForwarded) > before);
    settles(&a, exchange);
    nothing_was_missed(&a);
}

/// A process that was busy reads probes of rounds that are over. Nobody else can send any.
#[test]
fn late_probes_do_no_harm() {
    let address = address(16, 5, 0);
    let place = Place::with_device(address);
    let ([a, b], qpn) = pair(&place);
    let exchange = || exchange(&a, qpn, b.remote(0));
    settles(&a, exchange);
    let device = SocketAddr::new(address, ROCE_PORT);
    let stranger = Socket::bind(SocketAddr::new(address, 0), &Options::default()).unwrap();
    // Its index would mislead the packets of both.
    let late = [0xfe, 7, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let foreign = || a.device.state().counter(Counter::RxForeignSource);
    for (from, counted) in [(share(device), 0), (stranger, 1)] {
        let _ = from.send(device, 0, &late, 0).unwrap();
        exchange();
        let started = Instant::now();
        while foreign() < counted {
            assert!(started.elapsed() < PATIENCE, "a stranger's is not counted");
            std::thread::yield_now();
        }
        drop(from);
        settles(&a, exchange);
        assert_eq!(foreign(), counted);
    }
    nothing_was_missed(&a);
}

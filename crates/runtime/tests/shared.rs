//! Several processes on one address.

mod common;

use std::path::Path;

use common::echo::{echo, exchange};
use common::{
    Link, Node, Other, Place, address, check_all_kinds, connect, connect_back, hear,
    nothing_was_missed, patient_attr, role, tell,
};
use ferroce_hca::WcStatus;
use ferroce_registry::Registry;

const LEN: usize = 1 << 20;

fn attach(directory: &Path) -> Node {
    Node::attach(&Registry::at(directory).unwrap(), "a", LEN)
}

/// A process beside the test's own: attaches to the device and does as its role says.
fn other(role: &[String]) {
    let node = attach(Path::new(&role[1]));
    match role[0].as_str() {
        "echo" => {
            echo(&node, &patient_attr());
            nothing_was_missed(&node);
            tell("done");
            while hear().is_some() {}
        }
        // Does nothing, until it is killed or its parent ends.
        "target" => {
            connect_back(&node, &patient_attr());
            tell("connected");
            while hear().is_some() {}
        }
        other => panic!("role {other}"),
    }
}

#[test]
fn two_on_one_address() {
    let place = Place::on_the_wire(address(14, 0, 0));
    let nodes = [(); 3].map(|()| attach(place.path()));
    for (a, b) in [(0, 1), (1, 2), (2, 0), (1, 1)] {
        let (a, b) = (&nodes[a], &nodes[b]);
        let qps = connect(a, b, &patient_attr());
        if std::ptr::eq(a, b) {
            continue; // one buffer for both ends
        }
        check_all_kinds(a, b, qps, 300_000, 1);
    }
    nodes.iter().for_each(nothing_was_missed);
}

#[test]
fn processes_on_one_address() {
    if let Some(role) = role() {
        return other(&role);
    }
    let place = Place::on_the_wire(address(14, 1, 0));
    let directory = place.path().display();
    let start = || Other::start("processes_on_one_address", &format!("echo {directory}"));
    let mut children = [(); 3].map(|()| start());
    let node = attach(place.path());
    for child in &mut children {
        exchange(&node, child, &patient_attr());
        assert_eq!(child.hear(), "done");
    }
    nothing_was_missed(&node);
    children.into_iter().for_each(Other::finish);
}

#[test]
fn a_peer_elsewhere_reaches_each_of_them() {
    let place = Place::on_the_wire(address(14, 2, 0));
    let nodes = [(); 4].map(|()| attach(place.path()));
    let peer = Node::with_config(common::patient(address(14, 2, 1)), LEN);
    for node in &nodes {
        let (at_peer, at_node) = connect(&peer, node, &patient_attr());
        check_all_kinds(&peer, node, (at_peer, at_node), 200_000, 3);
        check_all_kinds(node, &peer, (at_node, at_peer), 200_000, 5);
    }
    nothing_was_missed(&peer);
}

/// The one whose socket gets all packets dies amid them.
#[test]
fn the_death_of_one_is_no_harm_to_others() {
    if let Some(role) = role() {
        return other(&role);
    }
    let place = Place::on_the_wire(address(14, 3, 0));
    let directory = place.path().display();
    let test = "the_death_of_one_is_no_harm_to_others";
    let mut victims = [(); 3].map(|()| Other::start(test, &format!("target {directory}")));
    let [a, b] = [(); 2].map(|()| attach(place.path()));
    for victim in &mut victims {
        let Link { qpn, memory, .. } = victim.connect(&a, &common::impatient_attr());
        assert_eq!(victim.hear(), "connected");
        // Enough that the kill comes amid it.
        const WRITES: usize = 500;
        let write = |id| a.post(qpn, id, memory.write(), a.sge(0, LEN as u32));
        (0..WRITES as u64).for_each(write);
        a.succeed(3);
        victim.kill();
        // In case all of them were through before.
        write(WRITES as u64);
        let rest = a.completions(WRITES - 3 + 1);
        assert!(rest.iter().any(|c| c.status == WcStatus::RetryExcErr));
        let qps = connect(&a, &b, &common::attr());
        check_all_kinds(&a, &b, qps, 100_000, 1);
    }
}

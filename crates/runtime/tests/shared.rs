//! Several processes on one address.

mod common;

use common::echo::exchange;
use common::{
    Node, Other, Place, address, attr, check_all_kinds, check_both_ways, connect, impatient_attr,
    nothing_was_missed, patient, patient_attr,
};

const LEN: usize = 1 << 20;

#[test]
fn two_on_one_address() {
    let place = Place::on_the_wire(address(14, 0, 0));
    let nodes = [(); 3].map(|()| place.attach("a", LEN));
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
    let place = Place::on_the_wire(address(14, 1, 0));
    let mut children = [(); 3].map(|()| place.start("a", LEN, "echo-and-stay"));
    let node = place.attach("a", LEN);
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
    let nodes = [(); 4].map(|()| place.attach("a", LEN));
    let peer = Node::with_config(patient(address(14, 2, 1)), LEN);
    for node in &nodes {
        check_both_ways(&peer, node, &patient_attr(), 200_000);
    }
    nothing_was_missed(&peer);
}

/// The process whose socket gets all packets dies during traffic.
#[test]
fn the_death_of_one_process_does_not_harm_others() {
    let place = Place::on_the_wire(address(14, 3, 0));
    let mut victims = [(); 3].map(|()| place.start("a", LEN, "target"));
    let [a, b] = [(); 2].map(|()| place.attach("a", LEN));
    for victim in &mut victims {
        victim.meet_and_die(&a, &impatient_attr(), LEN as u32, || {});
        check_all_kinds(&a, &b, connect(&a, &b, &attr()), 100_000, 1);
    }
}

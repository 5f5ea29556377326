//! Ports of the connection manager on a device that several processes share.

mod common;

use std::time::{Duration, Instant};

use common::services::{PATIENTLY, SOON, ask, outcome, qpn_at};
use common::{Node, Other, Place, address, hear, role, tell};
use ferroce_hca::{Hca, cm::CmEventKind};
use ferroce_registry::{ServiceError, ServiceScope};
use ferroce_wire::cm::{PortSpace, ServiceId};

fn attach(place: &Place) -> Node {
    Node::attach(&place.registry(), "a", 4096)
}

#[test]
fn requests_find_whoever_serves_the_port() {
    let place = Place::with_device(address(15, 0, 0));
    let nodes = [(); 3].map(|()| attach(&place));
    for (port, server) in (1000..).zip(&nodes) {
        let claim = server
            .device
            .claim_service(PortSpace::Udp, port, ServiceScope::Device)
            .unwrap();
        let service = claim.service();
        server
            .device
            .with(|hca| hca.cm_mut().listen(service, 8))
            .unwrap();
        for client in &nodes {
            ask(client, service, PATIENTLY, 15);
            let kind = outcome(&nodes.each_ref());
            let CmEventKind::SidrReply { rep } = kind else {
                panic!("{kind:?}");
            };
            assert_eq!((rep.status, rep.qpn, rep.qkey), (0, qpn_at(server), 7));
        }
    }
    // Nobody serves it, and somebody says so.
    for client in &nodes {
        ask(client, ServiceId::new(PortSpace::Udp, 999), PATIENTLY, 15);
        let kind = outcome(&nodes.each_ref());
        assert!(matches!(kind, CmEventKind::SidrReply { ref rep } if rep.status != 0));
    }
}

/// What other processes pass on to one that does not share the port yet finds no listener there. An
/// answer would bind its socket to another port, and it could not join any more.
#[test]
fn a_request_that_comes_before_its_process_has_joined_keeps_it_from_nothing() {
    let place = Place::with_device(address(15, 4, 0));
    let [server, client] = [(); 2].map(|()| attach(&place));
    let claim = server
        .device
        .claim_service(PortSpace::Udp, 7, ServiceScope::Device)
        .unwrap();
    claim.publish();
    ask(&client, claim.service(), SOON, 15);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        server.device.progress();
        client.device.progress();
    }
    server.device.join().unwrap();
    let listen = |hca: &mut Hca| hca.cm_mut().listen(claim.service(), 8);
    server.device.with(listen).unwrap();
    let kind = outcome(&[&server, &client]);
    let CmEventKind::SidrReply { rep } = kind else {
        panic!("{kind:?}");
    };
    assert_eq!((rep.status, rep.qpn), (0, qpn_at(&server)));
}

#[test]
fn a_port_has_one_owner_until_it_is_dropped() {
    let place = Place::with_device(address(15, 1, 0));
    let [a, b] = [(); 2].map(|()| attach(&place));
    let claim = |node: &Node, port| {
        node.device
            .claim_service(PortSpace::Tcp, port, ServiceScope::Device)
    };
    let held = claim(&a, 18515).unwrap();
    for node in [&a, &b] {
        let error = claim(node, 18515).unwrap_err();
        assert!(
            matches!(error, ServiceError::InUse { port: 18515, .. }),
            "{error}"
        );
    }
    // Port spaces are apart.
    b.device
        .claim_service(PortSpace::Udp, 18515, ServiceScope::Device)
        .unwrap();
    drop(held);
    let _held = claim(&b, 18515).unwrap();

    let any: Vec<_> = (0..1000)
        .map(|n| claim([&a, &b][n % 2], 0).unwrap())
        .collect();
    let mut ports: Vec<_> = any
        .iter()
        .map(ferroce_registry::ServiceClaim::port)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 1000);
    assert!(ports.iter().all(|port| *port >= 32768));
}

/// Linux answers a conflict with a wildcard otherwise than one of two addresses.
#[test]
fn whoever_finds_a_port_in_use_learns_on_which_addresses() {
    let place = Place::with_device(address(15, 3, 0));
    let [a, b] = [(); 2].map(|()| attach(&place));
    for scope in [ServiceScope::Device, ServiceScope::Host] {
        let held = a.device.claim_service(PortSpace::Tcp, 7471, scope).unwrap();
        let claim = || {
            let wanted = ServiceScope::Device;
            b.device.claim_service(PortSpace::Tcp, 7471, wanted)
        };
        let error = claim().unwrap_err();
        assert!(
            matches!(error, ServiceError::InUse { scope: found, .. } if found == scope),
            "{error:?}"
        );
        drop(held);
        drop(claim().unwrap());
    }
}

#[test]
fn the_ports_of_a_killed_process_are_free() {
    if let Some(role) = role() {
        let node = Node::attach(
            &ferroce_registry::Registry::at(role[1].as_ref()).unwrap(),
            "a",
            4096,
        );
        let _claim = node
            .device
            .claim_service(PortSpace::Tcp, 7471, ServiceScope::Device)
            .unwrap();
        tell("claimed");
        while hear().is_some() {}
        return;
    }
    let place = Place::with_device(address(15, 2, 0));
    let node = attach(&place);
    let claim = || {
        node.device
            .claim_service(PortSpace::Tcp, 7471, ServiceScope::Device)
    };
    let test = "the_ports_of_a_killed_process_are_free";
    let mut child = Other::start(test, &format!("claim {}", place.path().display()));
    assert_eq!(child.hear(), "claimed");
    let error = claim().unwrap_err();
    assert!(matches!(error, ServiceError::InUse { .. }), "{error}");
    child.kill();
    let _held = claim().unwrap();
}

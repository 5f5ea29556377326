//! Ports of the connection manager on a device that several processes share.

mod common;

use std::time::{Duration, Instant};

use common::services::{PATIENTLY, SOON, ask, outcome, qpn_at};
use common::{Node, Other, Place, address, hear, role, tell};
use ferroce_device::{Hca, cm::CmEventKind};
use ferroce_registry::{Registry, ServiceClaim, ServiceError, ServiceScope};
use ferroce_wire::cm::{PortSpace, ServiceId};

fn claim(node: &Node, space: PortSpace, port: u16) -> Result<ServiceClaim, ServiceError> {
    let device = &node.device;
    device.claim_service(space, port, ServiceScope::Device)
}

fn listen(node: &Node, service: ServiceId) {
    let listen = |hca: &mut Hca| hca.cm_mut().listen(service, 8);
    node.device.with(listen).unwrap();
}

#[test]
fn requests_reach_the_process_that_serves_the_port() {
    let place = Place::with_device(address(15, 0, 0));
    let nodes = [(); 3].map(|()| place.attach("a", 4096));
    for (port, server) in (1000..).zip(&nodes) {
        let claim = claim(server, PortSpace::Udp, port).unwrap();
        let service = claim.service();
        listen(server, service);
        for client in &nodes {
            ask(client, service, PATIENTLY, 15);
            let kind = outcome(&nodes.each_ref());
            let CmEventKind::SidrReply { rep } = kind else {
                panic!("{kind:?}");
            };
            assert_eq!((rep.status, rep.qpn, rep.qkey), (0, qpn_at(server), 7));
        }
    }
    // The service is not offered, and one of the processes says so.
    for client in &nodes {
        ask(client, ServiceId::new(PortSpace::Udp, 999), PATIENTLY, 15);
        let kind = outcome(&nodes.each_ref());
        assert!(matches!(kind, CmEventKind::SidrReply { ref rep } if rep.status != 0));
    }
}

/// Messages that other processes forward to one that does not share the port yet find no listener
/// there. An answer would bind its socket to another port, and it could not join any more.
#[test]
fn a_request_before_its_process_has_joined_does_no_harm() {
    let place = Place::with_device(address(15, 4, 0));
    let [server, client] = [(); 2].map(|()| place.attach("a", 4096));
    let claim = claim(&server, PortSpace::Udp, 7).unwrap();
    claim.publish();
    ask(&client, claim.service(), SOON, 15);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        server.device.progress();
        client.device.progress();
    }
    server.device.join().unwrap();
    listen(&server, claim.service());
    let kind = outcome(&[&server, &client]);
    let CmEventKind::SidrReply { rep } = kind else {
        panic!("{kind:?}");
    };
    assert_eq!((rep.status, rep.qpn), (0, qpn_at(&server)));
}

#[test]
fn a_port_has_one_owner_until_it_is_dropped() {
    let place = Place::with_device(address(15, 1, 0));
    let [a, b] = [(); 2].map(|()| place.attach("a", 4096));
    let tcp = |node: &Node, port| claim(node, PortSpace::Tcp, port);
    let held = tcp(&a, 18515).unwrap();
    for node in [&a, &b] {
        let error = tcp(node, 18515).unwrap_err();
        assert!(
            matches!(error, ServiceError::InUse { port: 18515, .. }),
            "{error}"
        );
    }
    // The port spaces are separate.
    claim(&b, PortSpace::Udp, 18515).unwrap();
    drop(held);
    let _held = tcp(&b, 18515).unwrap();

    let any: Vec<_> = (0..1000)
        .map(|n| tcp([&a, &b][n % 2], 0).unwrap())
        .collect();
    let mut ports: Vec<_> = any.iter().map(ServiceClaim::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 1000);
    assert!(ports.iter().all(|port| *port >= 32768));
}

/// Linux reports a conflict with a wildcard differently from one of two addresses.
#[test]
fn a_port_in_use_is_reported_with_its_addresses() {
    let place = Place::with_device(address(15, 3, 0));
    let [a, b] = [(); 2].map(|()| place.attach("a", 4096));
    for scope in [ServiceScope::Device, ServiceScope::Host] {
        let held = a.device.claim_service(PortSpace::Tcp, 7471, scope).unwrap();
        let claim = || claim(&b, PortSpace::Tcp, 7471);
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
        let registry = Registry::at(role[0].as_ref()).unwrap();
        let node = Node::attach(&registry, "a", 4096);
        let _claim = claim(&node, PortSpace::Tcp, 7471).unwrap();
        tell("claimed");
        while hear().is_some() {}
        return;
    }
    let place = Place::with_device(address(15, 2, 0));
    let node = place.attach("a", 4096);
    let claim = || claim(&node, PortSpace::Tcp, 7471);
    let test = "the_ports_of_a_killed_process_are_free";
    let mut child = Other::start(test, &place.path().display().to_string());
    assert_eq!(child.hear(), "claimed");
    let error = claim().unwrap_err();
    assert!(matches!(error, ServiceError::InUse { .. }), "{error}");
    child.kill();
    let _held = claim().unwrap();
}

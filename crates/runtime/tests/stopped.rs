//! A process of the device is stopped (SIGSTOP, a debugger, a freezer): the others do not notice.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::services::{PATIENTLY, SOON, ask, outcome};
use common::{
    Link, Node, Other, PATIENCE, Place, address, attr, check_all_kinds, connect, cpu_time, hear,
    role, share, tell,
};
use ferroce_device::{Counter, Hca, cm::CmEventKind};
use ferroce_registry::{Registry, ServiceScope};
use ferroce_sockets::Routes;
use ferroce_wire::cm::{PortSpace, ServiceId};
use ferroce_wire::{Connection, Headers, IcrcFlow, IpPair, Psn, ROCE_V2_PORT};

const LEN: usize = 64 << 10;

/// A process that has a queue pair and is stopped at some time.
fn victim(place: &Place) -> Other {
    place.start("a", LEN, "target")
}

/// Starts it and connects it with a node, whose socket is the first.
fn start(place: &Place, node: &Node) -> (Other, Link) {
    node.device.join().unwrap();
    let mut child = victim(place);
    let link = child.meet(node, &attr());
    (child, link)
}

#[test]
fn new_connections_do_not_need_a_third_process() {
    let place = Place::on_the_wire(address(65, 0, 0));
    let server = place.attach("a", LEN);
    let (child, _) = start(&place, &server);
    let claim = server
        .device
        .claim_service(PortSpace::Udp, 7471, ServiceScope::Device)
        .unwrap();
    let service = claim.service();
    claim.publish();
    let listen = |hca: &mut Hca| hca.cm_mut().listen(service, 64);
    server.device.with(listen).unwrap();
    server.device.expect_requests();
    child.stop();
    for nth in 0..8 {
        // A process that comes while another is stopped.
        let client = place.attach("a", LEN);
        client.device.join().unwrap();
        ask(&client, service, PATIENTLY, 2);
        let kind = outcome(&[&server, &client]);
        let good = matches!(&kind, CmEventKind::SidrReply { rep } if rep.status == 0);
        assert!(good, "request {nth}: {kind:?}");
        // No process listens on this service, and one of them says so; the stopped one does not, so
        // the request is repeated.
        ask(&client, ServiceId::new(PortSpace::Udp, 999), SOON, 15);
        let kind = outcome(&[&server, &client]);
        let refused = matches!(&kind, CmEventKind::SidrReply { rep } if rep.status != 0);
        assert!(refused, "request {nth}: {kind:?}");
        // Queue pairs of both get their packets.
        let qps = connect(&server, &client, &attr());
        check_all_kinds(&server, &client, qps, 10_000, nth);
    }
    child.resume();
    child.finish();
}

/// Packets that reached it through a detour would be overtaken by later direct ones.
#[test]
fn joining_waits_for_the_socket_of_a_busy_process() {
    let place = Place::on_the_wire(address(65, 3, 0));
    let mut child = victim(&place);
    // It shares the port; until now it was alone.
    child.hear();
    child.stop();
    let is_back = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            is_back.store(true, Ordering::Relaxed);
            child.resume();
        });
        let node = place.attach("a", LEN);
        let started = Instant::now();
        node.device.join().unwrap();
        // The wait ends then, because the process may be stopped permanently.
        let is_too_late = started.elapsed() >= Duration::from_millis(100);
        assert!(is_back.load(Ordering::Relaxed) || is_too_late);
    });
}

/// It may have been stopped before it was asked.
#[test]
fn a_silent_process_is_waited_for_once() {
    let place = Place::on_the_wire(address(65, 4, 0));
    let mut child = victim(&place);
    // It shares the port; until now it was alone.
    child.hear();
    child.stop();
    let nodes: Vec<Node> = (0..10).map(|_| place.attach("a", LEN)).collect();
    let join = |node: &Node| {
        let started = Instant::now();
        node.device.join().unwrap();
        started.elapsed()
    };
    let waits: Vec<_> = nodes.iter().map(join).collect();
    // At least one gets a processor in time.
    let shortest = waits[1..].iter().min().unwrap();
    assert!(*shortest < Duration::from_millis(50), "{waits:?}");
    child.resume();
}

/// A process that is stopped while it finds out which process has which socket does not keep the
/// others from doing so.
#[test]
fn a_stopped_process_loses_its_turn() {
    if let Some(role) = role() {
        let registry = Registry::at(role[0].as_ref()).unwrap();
        // Whatever it is doing when it is stopped.
        loop {
            let node = Node::attach(&registry, "a", 4096);
            node.qp();
            if role[1] == "once" {
                tell("there");
                while hear().is_some() {}
                return;
            }
        }
    }
    let test = "a_stopped_process_loses_its_turn";
    let place = Place::on_the_wire(address(65, 1, 0));
    let [a, b] = [(); 2].map(|()| place.attach("a", LEN));
    let qps = connect(&a, &b, &common::patient_attr());
    let role = |what: &str| format!("{} {what}", place.path().display());
    for _ in 0..4 {
        let child = Other::start(test, &role("again"));
        thread::sleep(Duration::from_millis(50));
        child.stop();
        check_all_kinds(&a, &b, qps, 10_000, 1);
        child.resume();
        drop(child);
    }
    let mut child = Other::start(test, &role("once"));
    assert_eq!(child.hear(), "there");
    check_all_kinds(&a, &b, qps, 10_000, 1);
    child.finish();
}

/// Packets that keep arriving for a stopped process are counted; no core offers them again and
/// again.
#[test]
fn packets_for_a_stopped_process_age() {
    let place = Place::on_the_wire(address(65, 2, 0));
    let node = place.attach("a", LEN);
    let (child, link) = start(&place, &node);
    child.stop();
    let mailbox = place.path().join(format!(
        "{}-{ROCE_V2_PORT}.{}",
        node.device.address().ip(),
        link.peer.qpn.value() >> 16
    ));
    let junk = UnixDatagram::unbound().unwrap();
    junk.set_nonblocking(true).unwrap();
    while junk.send_to(&[0], &mailbox).is_ok() {}

    // Its packets reach the node, until the node has found out that they should not.
    let own = SocketAddr::new(address(65, 2, 1), ROCE_V2_PORT);
    let sender = UdpSocket::bind(own).unwrap();
    let dest = node.device.address();
    let misled = share(dest);
    let ip = IpPair::new(own.ip(), dest.ip()).unwrap();
    let flow = IcrcFlow::new(ip, own.port(), dest.port());
    let middle = Headers::send(Connection::Rc, ferroce_wire::Place::Middle, None);
    let headers = middle.to(link.peer.qpn, Psn::new(5));
    let mut packet = vec![0; 5000];
    let len = headers
        .emit_packet(&[7; 4096], &flow, 0, &mut packet)
        .unwrap();
    let state = node.device.state();
    let send = || {
        let routes = Routes {
            slots: vec![((link.peer.qpn.value() >> 16) as u8, 0)],
            spread: vec![0],
            ..Routes::default()
        };
        misled.steer(&routes).unwrap();
        sender.send_to(&packet[..len], dest).unwrap();
        thread::sleep(Duration::from_millis(20));
    };
    let started = Instant::now();
    while state.counter(Counter::RxForwardDropped) == 0 {
        send();
        assert!(started.elapsed() < PATIENCE, "nothing is given up");
    }
    // A few packets for it cost next to nothing.
    let is_cheap = || {
        let (before, started) = (cpu_time(), Instant::now());
        while started.elapsed() < Duration::from_secs(1) {
            send();
        }
        cpu_time() - before < started.elapsed() / 20
    };
    assert!((0..10).any(|_| is_cheap()), "a core is busy with it");
    drop(misled);
    child.resume();
    node.post(link.qpn, 1, link.memory.write(), node.sge(0, 4096));
    node.succeed(1);
    child.finish();
}

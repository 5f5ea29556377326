//! Packets reach the process that they are for.

mod common;

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Instant;

use common::services::{PATIENTLY, ask, outcome, qpn_at};
use common::{
    Link, Node, Other, PATIENCE, Place, Remote, address, connect, connect_back, hear,
    nothing_was_missed, patient_attr, port_v6, role, share, tell, wait_until,
};
use ferroce_device::{Counter, Hca, cm::CmEventKind};
use ferroce_registry::{DeviceSpec, Registry, ServiceScope};
use ferroce_sockets::{Options, Routes, Socket};
use ferroce_wire::{Qpn, ROCE_V2_PORT, cm::PortSpace};

const LEN: usize = 64 << 10;

fn target(place: &Place) -> Other {
    place.start("a", LEN, "target")
}

/// A process beside the test's own, and the link to it.
type Target = (Other, Link);

fn meet(node: &Node, mut child: Other) -> Target {
    let link = child.meet(node, &patient_attr());
    (child, link)
}

/// Packets to each process and back.
fn exchange_with(node: &Node, others: &[Target]) {
    for (_, link) in others {
        exchange(node, link.qpn, link.memory);
    }
}

fn finish(others: impl IntoIterator<Item = Target>) {
    others.into_iter().for_each(|(other, _)| other.finish());
}

/// Packets to this memory and back.
fn exchange(node: &Node, qpn: Qpn, memory: Remote) {
    node.post(qpn, 1, memory.write(), node.sge(0, LEN as u32));
    node.post(qpn, 2, memory.read(), node.sge(0, LEN as u32));
    node.succeed(2);
}

/// Two nodes of a device, with a queue pair of the first to the second.
fn pair(place: &Place) -> ([Node; 2], Qpn) {
    let nodes = [(); 2].map(|()| place.attach("a", LEN));
    let (qpn, _) = connect(&nodes[0], &nodes[1], &patient_attr());
    (nodes, qpn)
}

/// Waits until `exchange` works without any forwarded packet, whichever process receives it.
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
    let nodes = [(); 3].map(|()| place.attach("a", LEN));
    let pairs = [(0, 1), (1, 2), (2, 0)];
    let pairs = pairs.map(|(a, b)| (&nodes[a], &nodes[b]));
    let pairs = pairs.map(|(a, b)| (a, b, connect(a, b, &patient_attr()).0));
    settles(&nodes[0], || {
        for (a, b, qpn) in pairs {
            exchange(a, qpn, b.remote(0));
        }
    });
    nodes.iter().for_each(nothing_was_missed);
    let malformed = nodes[0].count(Counter::RxMalformed);
    assert_eq!(malformed, 0, "a probe was taken for a packet");
}

#[test]
fn packets_are_soon_steered_without_forwarding() {
    between_nodes(&Place::on_the_wire(address(16, 0, 0)));
}

#[test]
fn packets_are_soon_steered_without_forwarding_over_ipv6() {
    let Some(port) = port_v6("packets_are_soon_steered_without_forwarding_over_ipv6") else {
        return;
    };
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
fn steering_recovers_from_the_death_of_the_first_process() {
    let place = Place::on_the_wire(address(16, 1, 0));
    let mut first = target(&place);
    let described = first.hear();
    let node = place.attach("a", LEN);
    let others = [(); 2].map(|()| meet(&node, target(&place)));
    let exchange = || exchange_with(&node, &others);
    settles(&node, exchange);
    assert!(!described.is_empty());
    first.kill();
    settles(&node, exchange);
    nothing_was_missed(&node);
    finish(others);
}

#[test]
fn eight_processes() {
    let place = Place::on_the_wire(address(16, 2, 0));
    let children = [(); 7].map(|()| target(&place));
    let node = place.attach("a", LEN);
    let others = children.map(|child| meet(&node, child));
    settles(&node, || exchange_with(&node, &others));
    nothing_was_missed(&node);
    finish(others);
}

#[test]
fn steering_recovers_from_a_wrong_program() {
    let address = address(16, 3, 0);
    let place = Place::on_the_wire(address);
    let ([a, b], qpn) = pair(&place);
    let exchange = || exchange(&a, qpn, b.remote(0));
    settles(&a, exchange);
    let other = share(SocketAddr::new(address, ROCE_V2_PORT));
    let wrong = Routes {
        slots: vec![(a.device.slot(), 1), (b.device.slot(), 0)],
        ..Routes::default()
    };
    other.steer(&wrong).unwrap();
    drop(other);
    let before = a.count(Counter::RxForwarded);
    exchange();
    assert!(a.count(Counter::RxForwarded) > before);
    settles(&a, exchange);
    nothing_was_missed(&a);
}

/// A busy process reads probes of rounds that are over. No other user can send any.
#[test]
fn late_probes_do_no_harm() {
    let address = address(16, 5, 0);
    let place = Place::on_the_wire(address);
    let ([a, b], qpn) = pair(&place);
    let exchange = || exchange(&a, qpn, b.remote(0));
    settles(&a, exchange);
    let device = SocketAddr::new(address, ROCE_V2_PORT);
    let stranger = Socket::bind(SocketAddr::new(address, 0), &Options::default()).unwrap();
    // Its index would misdirect the packets of both.
    let late = [0xfe, 7, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let foreign = || a.count(Counter::RxForeignSource);
    for (from, counted) in [(share(device), 0), (stranger, 1)] {
        let _ = from.send(device, 0, &late, 0).unwrap();
        exchange();
        wait_until("a stranger's is counted", || foreign() >= counted);
        drop(from);
        settles(&a, exchange);
        assert_eq!(foreign(), counted);
    }
    nothing_was_missed(&a);
}

/// Makes the kernel refuse `refused` to this thread and those that it starts: numbers of system
/// calls, each with the values that its second and third arguments must have, if any.
fn sandbox(refused: &[(libc::c_long, Option<[libc::c_int; 2]>)]) {
    let op = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = |offset| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    let unless = |value, over| op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, over);
    let answer = |value| op(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    // The lower halves of arguments in `struct seccomp_data`, after number, architecture and
    // instruction pointer.
    let argument = |nth: u32| 16 + 8 * nth + if cfg!(target_endian = "big") { 4 } else { 0 };
    let eperm = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let mut filter = Vec::new();
    for (call, arguments) in refused {
        let call = *call as u32;
        filter.push(load(0));
        match arguments {
            None => filter.extend([unless(call, 1), eperm]),
            Some([second, third]) => filter.extend([
                unless(call, 5),
                load(argument(1)),
                unless(*second as u32, 3),
                load(argument(2)),
                unless(*third as u32, 1),
                eperm,
            ]),
        }
    }
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the options of prctl(2); the program has as many instructions as it says, and the
    // kernel copies it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(installed, "{}", std::io::Error::last_os_error());
}

/// The system calls for steering that a sandbox may refuse: attaching the kernel's program, leaving
/// the port, and waiting for packets in flight then.
const STEERING: [(libc::c_long, Option<[libc::c_int; 2]>); 3] = [
    (
        libc::SYS_setsockopt,
        Some([libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF]),
    ),
    (
        libc::SYS_setsockopt,
        Some([libc::SOL_SOCKET, 62 /* SO_BINDTOIFINDEX */]),
    ),
    (libc::SYS_membarrier, None),
];

/// A process that may not attach a program gets its packets from others, and forwards theirs.
#[test]
fn a_sandbox_that_refuses_programs_costs_a_detour_only() {
    if let Some(role) = role() {
        sandbox(&STEERING);
        let registry = Registry::at(role[0].as_ref()).unwrap();
        let node = Node::attach(&registry, "a", LEN);
        connect_back(&node, &patient_attr());
        tell("connected");
        while hear().is_some() {}
        return;
    }
    let test = "a_sandbox_that_refuses_programs_costs_a_detour_only";
    let place = Place::on_the_wire(address(16, 6, 0));
    // The first process has the first socket.
    let directory = place.path().display().to_string();
    let children = [(); 3].map(|()| Other::start(test, &directory));
    let observer = place.registry().observe("a").unwrap();
    wait_until("they have started", || {
        observer.processes().unwrap().len() == children.len()
    });
    let (nodes, qpn) = pair(&place);
    let others = children.map(|child| meet(&nodes[0], child));
    for _ in 0..20 {
        exchange(&nodes[0], qpn, nodes[1].remote(0));
        exchange_with(&nodes[0], &others);
    }
    nodes.iter().for_each(nothing_was_missed);
    for (other, _) in others {
        other.finish();
        exchange(&nodes[0], qpn, nodes[1].remote(0));
    }
    nodes.iter().for_each(nothing_was_missed);
}

/// If no process may attach a program, services are still found.
#[test]
fn in_a_sandbox_packets_and_requests_find_their_processes() {
    let address = address(16, 7, 0);
    // A sandbox applies to a thread and to those that it starts.
    let sandboxed = std::thread::spawn(move || {
        sandbox(&STEERING);
        let refused = share(SocketAddr::new(address, ROCE_V2_PORT)).steer(&Routes::default());
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
        let place = Place::on_the_wire(address);
        let nodes = [(); 3].map(|()| place.attach("a", LEN));
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let (a, b) = (&nodes[a], &nodes[b]);
            let (qpn, _) = connect(a, b, &patient_attr());
            (0..20).for_each(|_| exchange(a, qpn, b.remote(0)));
        }
        for (port, server) in (1000..).zip(&nodes) {
            let claim = server
                .device
                .claim_service(PortSpace::Udp, port, ServiceScope::Device)
                .unwrap();
            let service = claim.service();
            let listen = |hca: &mut Hca| hca.cm_mut().listen(service, 8);
            server.device.with(listen).unwrap();
            claim.publish();
            server.device.expect_requests();
            for client in &nodes {
                ask(client, service, PATIENTLY, 15);
                let kind = outcome(&nodes.each_ref());
                let CmEventKind::SidrReply { rep } = kind else {
                    panic!("{kind:?}");
                };
                assert_eq!((rep.status, rep.qpn), (0, qpn_at(server)));
            }
        }
        nodes.iter().for_each(nothing_was_missed);
    });
    sandboxed.join().unwrap();
}

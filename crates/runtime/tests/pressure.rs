//! Sockets and links that take less than the device could send.

mod common;

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use common::{
    Node, PATIENCE, address, attr, check_all_kinds, check_both_ways, connect, impatient,
    impatient_attr, in_namespace, nothing_was_lost, nothing_was_missed, patient, patient_attr,
    pattern, port_v6,
};
use ferroce_admission::Bounds;
use ferroce_device::{Counter, Event, HcaConfig, Mtu, QpAttr, Refusal, WcStatus};
use ferroce_runtime::DeviceConfig;
use ferroce_sockets::{Options, SendError, Socket};
use ferroce_wire::ROCE_V2_PORT;

const LEN: usize = 1 << 20;
const BYTES: usize = 400_000;

fn config(test: u8, host: u8, socket: Options) -> DeviceConfig {
    DeviceConfig {
        socket,
        ..patient(address(47, test, host))
    }
}

/// Traffic of all kinds in both directions between two devices with these socket options, at
/// addresses that no other round of the test has used: programs that other tests start keep sockets
/// for a while.
fn exchange(test: u8, round: u8, socket: &Options) -> (Node, Node) {
    let node = |host| Node::with_config(config(test, 2 * round + host, socket.clone()), LEN);
    let (a, b) = (node(0), node(1));
    check_both_ways(&a, &b, &patient_attr(), BYTES);
    (a, b)
}

fn check((a, b): (Node, Node)) {
    nothing_was_lost(&a);
    nothing_was_lost(&b);
}

#[test]
fn without_segmentation_or_coalescing() {
    let variants = [(false, true), (true, false), (false, false)];
    for ((segmentation, coalescing), round) in variants.into_iter().zip(0..) {
        let options = Options {
            segmentation,
            coalescing,
            ..Options::default()
        };
        check(exchange(0, round, &options));
    }
}

#[test]
fn one_end_without_segmentation() {
    let plain = Options {
        segmentation: false,
        coalescing: false,
        ..Options::default()
    };
    let a = Node::with_config(config(1, 0, plain), LEN);
    let b = Node::with_config(config(1, 1, Options::default()), LEN);
    check_both_ways(&a, &b, &patient_attr(), BYTES);
    check((a, b));
}

/// The kernel grants a few kilobytes, less than one batch.
#[test]
fn a_tiny_send_buffer() {
    let options = Options {
        send_buffer_bytes: 1,
        ..Options::default()
    };
    check(exchange(2, 0, &options));
}

/// A device that knows its peers' buffers are small keeps little in flight.
#[test]
fn a_tiny_receive_buffer() {
    let options = Options {
        receive_buffer_bytes: 1,
        ..Options::default()
    };
    let node = |host| {
        let hca = HcaConfig {
            window_bytes: 8 << 10,
            ..HcaConfig::default()
        };
        let bounds = Bounds {
            peer_bytes: 8 << 10,
            ..Bounds::default()
        };
        let config = DeviceConfig::new(address(47, 3, host));
        let socket = options.clone();
        let config = DeviceConfig {
            hca,
            bounds,
            socket,
            ..config
        };
        Node::with_config(config, LEN)
    };
    let (a, b) = (node(0), node(1));
    let qps = connect(&a, &b, &attr());
    check_all_kinds(&a, &b, qps, 50_000, 1);
}

/// The kernel grants the usual size. The window is no larger, and so nothing is lost.
#[test]
fn an_ordinary_receive_buffer() {
    let options = Options {
        receive_buffer_bytes: 200 << 10,
        ..Options::default()
    };
    let mtus = [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096];
    for (path_mtu, round) in mtus.into_iter().zip(0_u8..) {
        let node = |host| Node::with_config(config(4, 2 * round + host, options.clone()), LEN);
        let (a, b) = (node(0), node(1));
        let attr = QpAttr {
            path_mtu,
            ..patient_attr()
        };
        check_both_ways(&a, &b, &attr, BYTES);
        check((a, b));
    }
}

/// Packets that arrive while no thread reads, more than the buffer takes: they are counted, and
/// reported once.
#[test]
fn kernel_drops_are_counted_and_reported() {
    let socket = Options {
        receive_buffer_bytes: 64 << 10,
        ..Options::default()
    };
    let node = Node::with_config(config(9, 0, socket), LEN);
    let flood = || {
        let own = UdpSocket::bind((address(47, 9, 1), 0)).unwrap();
        node.device.with(|_| {
            for _ in 0..2_000 {
                own.send_to(&[0; 1024], node.device.address()).unwrap();
            }
        });
    };
    let counted = || node.count(Counter::RxSocketOverflow);
    for _ in 0..2 {
        let before = counted();
        flood();
        let started = Instant::now();
        while counted() == before || Some(counted()) != node.device.receive_drops().map(u64::from) {
            assert!(started.elapsed() < PATIENCE, "{} counted", counted());
            node.device.progress();
        }
    }
    let told = std::iter::from_fn(|| node.device.poll_event());
    assert_eq!(told.filter(|it| *it == Event::ReceiveOverflow).count(), 1);
}

/// A buffer that is smaller than the peer assumes loses packets, but nothing permanently.
#[test]
fn a_receive_buffer_smaller_than_the_peers_window() {
    let node = |host, receive_buffer_bytes| {
        let socket = Options {
            receive_buffer_bytes,
            ..Options::default()
        };
        let config = DeviceConfig::new(address(47, 8, host));
        Node::with_config(DeviceConfig { socket, ..config }, LEN)
    };
    let (a, b) = (node(0, 4 << 20), node(1, 32 << 10));
    check_both_ways(&a, &b, &attr(), BYTES);
}

#[test]
fn over_ipv6() {
    for path_mtu in [Mtu::Mtu256, Mtu::Mtu4096] {
        let Some(port) = port_v6("over_ipv6") else {
            return;
        };
        let config = DeviceConfig::new(Ipv6Addr::LOCALHOST.into());
        let node = Node::with_config(DeviceConfig { port, ..config }, LEN);
        let attr = QpAttr { path_mtu, ..attr() };
        let (here, _) = connect(&node, &node, &attr);
        node.buffer.write(0, &pattern(BYTES, 1));
        let (half, len) = (LEN / 2, BYTES as u32);
        node.post(here, 1, node.remote(half).write(), node.sge(0, len));
        node.succeed(1);
        assert_eq!(node.bytes(half, BYTES), pattern(BYTES, 1));
        node.buffer.write(0, &pattern(BYTES, 2));
        node.post(here, 1, node.remote(0).read(), node.sge(half, len));
        node.succeed(1);
        assert_eq!(node.bytes(half, BYTES), pattern(BYTES, 2));
    }
}

/// The program is told once, before the queue pair gives up, when there is no route to the peer.
#[test]
fn a_peer_of_another_family_is_reported() {
    let node = Node::with_config(impatient(address(47, 5, 0)), LEN);
    let qpn = node.qp();
    let peer = ferroce_runtime::Endpoint {
        address: "::1".parse().unwrap(),
        ..node.endpoint(qpn)
    };
    node.device
        .connect(node.endpoint(qpn), peer, &impatient_attr())
        .unwrap();
    node.post(qpn, 1, node.remote(0).write(), node.sge(0, 100));
    assert_eq!(node.completion().status, WcStatus::RetryExcErr);
    let errno = libc::EAFNOSUPPORT;
    let refused = Event::SendRefused {
        dest: peer.address,
        reason: Refusal::Os { errno },
    };
    let events: Vec<_> = std::iter::from_fn(|| node.device.poll_event()).collect();
    let told = events.iter().filter(|event| **event == refused);
    assert_eq!(told.count(), 1, "{events:?}");
    assert_eq!(node.count(Counter::TxDropped), 4);
}

// Links of a network namespace.

/// A link of 400 Mbit/s whose queue is longer than the send buffer: the socket blocks all the time,
/// and still no packet is lost.
#[test]
fn a_slow_link_blocks_the_socket() {
    let slow = "tc qdisc add dev lo root tbf rate 400mbit burst 64k limit 100m";
    if !in_namespace("a_slow_link_blocks_the_socket", slow) {
        return;
    }
    for (segmentation, round) in [(true, 0), (false, 1)] {
        let options = Options {
            send_buffer_bytes: 16 << 10,
            segmentation,
            ..Options::default()
        };
        let port = SocketAddr::new(address(47, 6, 8), ROCE_V2_PORT);
        let socket = Socket::bind(port, &options).unwrap();
        let sent = (0..1000).map(|_| socket.send(port, 0, &[0; 4000], 0));
        let blocked = |outcome| matches!(outcome, Err(SendError::WouldBlock));
        assert!(sent.into_iter().any(blocked), "the link does not block");
        drop(socket);
        // The queue is emptied on the core where its timer expires, so packets may overtake others
        // on a busy machine.
        let (a, b) = exchange(6, round, &options);
        [a, b].iter().for_each(nothing_was_missed);
    }
}

/// A path MTU that the interface cannot carry: the queue pair fails, and the program is told why.
#[test]
fn an_interface_smaller_than_the_path_mtu_is_reported() {
    let test = "an_interface_smaller_than_the_path_mtu_is_reported";
    if !in_namespace(test, "ip link set lo mtu 1500") {
        return;
    }
    let a = Node::with_config(impatient(address(47, 7, 0)), LEN);
    let b = Node::open(address(47, 7, 1), LEN);
    let (at_a, _) = connect(&a, &b, &impatient_attr());
    let write = b.remote(0).write();
    for (length, datagram) in [(4096, 4096 + 32), (3 * 4096, 4096 + 32)] {
        a.post(at_a, 1, write, a.sge(0, length));
        let status = a.completions(1)[0].status;
        assert!(status != WcStatus::Success, "{datagram}");
    }
    let events: Vec<_> = std::iter::from_fn(|| a.device.poll_event()).collect();
    let told = events.iter().filter_map(|event| match event {
        Event::SendRefused { dest, reason } => Some((*dest, reason.to_string())),
        _ => None,
    });
    let told: Vec<_> = told.collect();
    let [(dest, text)] = &told[..] else {
        panic!("{events:?}")
    };
    assert_eq!(*dest, b.device.address().ip());
    assert!(text.contains("does not fit the path"), "{text}");
    assert!(a.count(Counter::TxDropped) >= 4);

    // A path MTU that fits.
    let fits = QpAttr {
        path_mtu: Mtu::Mtu1024,
        ..attr()
    };
    let qps = connect(&a, &b, &fits);
    check_all_kinds(&a, &b, qps, BYTES, 1);
}

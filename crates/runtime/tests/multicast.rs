//! IP multicast groups on real sockets.

mod common;

use std::net::IpAddr;
use std::time::{Duration, Instant};
use std::{path, thread};

use common::{Node, Other, PATIENCE, Place, address, attr, hear, in_namespace, role, tell};
use ferroce_device::{
    Counter, Event, GRH_BYTES, Path, QpAttr, QpInit, QpType, Refusal, SendOp, SendTo, SendWr,
    UdAddress, WcOpcode, WcStatus,
};
use ferroce_registry::{DeviceSpec, Registry};
use ferroce_testing::direct::ready;
use ferroce_wire::Qpn;

const QKEY: u32 = 0x2222;
const LEN: u32 = 100;
/// Receives posted on each queue pair.
const DEPTH: u64 = 64;

/// A group that no other test and no other run has.
fn group(test: u8) -> IpAddr {
    match address(50, test, 0) {
        IpAddr::V4(v4) => {
            let [_, file, run, test] = v4.octets();
            [239, file, run, test].into()
        }
        v6 => v6,
    }
}

fn mgid(group: IpAddr) -> [u8; 16] {
    match group {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A queue pair that is ready, with receives at numbered offsets.
fn datagram_qp(node: &Node) -> Qpn {
    let qpn = node.device.with(|hca| {
        let init = QpInit::new(QpType::Ud, node.pd, node.cq);
        let qpn = hca.create_qp(&init).unwrap();
        let attr = QpAttr {
            qkey: QKEY,
            ..attr()
        };
        ready(hca, qpn, QpType::Ud, attr, None);
        qpn
    });
    for n in 0..DEPTH {
        node.post_recv(qpn, n, slot(n), GRH_BYTES + LEN);
    }
    qpn
}

fn slot(n: u64) -> usize {
    4096 + n as usize * 256
}

fn member(node: &Node, group: IpAddr) -> Qpn {
    let qpn = datagram_qp(node);
    let attached = node.device.with(|hca| hca.attach_mcast(qpn, mgid(group)));
    attached.unwrap();
    qpn
}

fn send(node: &Node, from: Qpn, dest: IpAddr, to: Qpn, text: u8) {
    node.buffer.write(0, &[text; LEN as usize]);
    let path = Path {
        dest,
        traffic_class: 0x20,
        sl: 0,
        port: 1,
    };
    let request = SendWr {
        to: SendTo::Datagram(UdAddress {
            path,
            qpn: to,
            qkey: QKEY,
        }),
        ..SendWr::new(DEPTH, SendOp::Send { imm: None }, node.sge(0, LEN))
    };
    node.device.post_send(from, [request]).unwrap();
}

/// From `count` completions of a node: the queue pair, the first byte and the sender.
fn heard(node: &Node, count: usize) -> Vec<(Qpn, u8, Qpn)> {
    let done = node.succeed(count);
    let receives = done.iter().filter(|c| c.opcode == WcOpcode::Recv);
    receives
        .map(|c| {
            assert_eq!(c.byte_len, GRH_BYTES + LEN);
            let at = slot(c.wr_id) + GRH_BYTES as usize;
            (c.qpn, node.bytes(at, 1)[0], c.src_qp)
        })
        .collect()
}

fn attach(directory: &str) -> Node {
    let registry = Registry::at(path::Path::new(directory)).unwrap();
    Node::attach(&registry, "a", 64 << 10)
}

/// Another process of the device, which is in the group as well, and answers.
fn other(role: &[String]) {
    let node = attach(&role[0]);
    let group = role[1].parse().unwrap();
    let qpn = member(&node, group);
    tell(qpn.value());
    assert!(hear().is_some());
    let texts: Vec<u8> = heard(&node, 3).iter().map(|(_, text, _)| *text).collect();
    assert_eq!(texts, [1, 2, 3]);
    send(&node, qpn, group, Qpn::MULTICAST, 4);
    let own = heard(&node, 2);
    assert_eq!(own, [(qpn, 4, qpn)], "once, and nothing before it");
    tell("done");
    while hear().is_some() {}
}

#[test]
fn every_member_hears_a_group_once() {
    if let Some(role) = role() {
        return other(&role);
    }
    let place = Place::with_device(address(50, 0, 0));
    let directory = place.path().to_str().unwrap();
    let group = group(0);
    let test = "every_member_hears_a_group_once";
    let mut child = Other::start(test, &format!("{directory} {group}"));
    let far: u32 = child.hear().parse().unwrap();
    let near = attach(directory);
    let (one, two) = (member(&near, group), member(&near, group));
    let elsewhere = Node::open(address(50, 0, 1), 64 << 10);
    let three = member(&elsewhere, group);

    child.tell("go");
    for text in 1..=3 {
        send(&near, one, group, Qpn::MULTICAST, text);
    }
    assert_eq!(child.hear(), "done");
    // Three datagrams were sent, and four reach each member.
    let far = Qpn::new(far);
    let all = [(1, one), (2, one), (3, one), (4, far)];
    let heard_near = heard(&near, 3 + 2 * 4);
    for (node, qpn) in [
        (&heard_near, one),
        (&heard_near, two),
        (&heard(&elsewhere, 4), three),
    ] {
        let of = node.iter().filter(|(to, ..)| *to == qpn);
        let of: Vec<_> = of.map(|(_, text, from)| (*text, *from)).collect();
        assert_eq!(of, all);
    }
    child.finish();
}

#[test]
fn a_group_is_heard_until_it_is_left() {
    let nodes = [0, 1].map(|host| Node::open(address(50, 1, host), 64 << 10));
    let group = group(1);
    let from = datagram_qp(&nodes[0]);
    let to = member(&nodes[1], group);
    send(&nodes[0], from, group, Qpn::MULTICAST, 1);
    // No thread polls: the helper thread receives it.
    let started = Instant::now();
    let completion = loop {
        let next = nodes[1].device.with(|hca| hca.poll_completion(nodes[1].cq));
        if let Some(completion) = next.unwrap() {
            break completion;
        }
        assert!(started.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(completion.status, WcStatus::Success);
    let grh = nodes[1].bytes(slot(completion.wr_id), GRH_BYTES as usize);
    assert_eq!(grh[21], 0x20, "traffic class");
    let IpAddr::V4(v4) = group else {
        unreachable!()
    };
    assert_eq!(grh[36..40], v4.octets(), "destination");

    let left = |hca: &mut ferroce_device::Hca| hca.detach_mcast(to, mgid(group));
    nodes[1].device.with(left).unwrap();
    send(&nodes[0], from, group, Qpn::MULTICAST, 2);
    send(&nodes[0], from, nodes[1].device.address().ip(), to, 3);
    assert_eq!(heard(&nodes[1], 1), [(to, 3, from)]);
    let state = nodes[1].device.state();
    assert_eq!(state.counter(Counter::RxUnknownQp), 0);
}

#[test]
fn a_group_of_the_other_family_is_told() {
    let node = Node::open(address(50, 2, 0), 64 << 10);
    let group = "ff0e::50:2".parse().unwrap();
    member(&node, group);
    let errno = libc::EAFNOSUPPORT;
    let reason = Refusal::Os { errno };
    let event = node.device.poll_event();
    assert_eq!(event, Some(Event::GroupRefused { group, reason }));
}

/// The kernel's loopback interface has no IPv6 groups.
#[test]
fn groups_of_ipv6() {
    let setup = "ip link add v0 type veth peer name v1 && ip link set v0 up && \
                 ip link set v1 up && ip addr add fd00::1/64 dev v0 nodad && \
                 ip addr add fd00::2/64 dev v0 nodad";
    if !in_namespace("groups_of_ipv6", setup) {
        return;
    }
    let place = Place::new();
    let spec = DeviceSpec::new("a", "fd00::1".parse().unwrap());
    place.registry().add(&spec).unwrap();
    let nodes = [attach(place.path().to_str().unwrap()), {
        Node::open("fd00::2".parse().unwrap(), 64 << 10)
    }];
    for group in ["ff0e::50:3", "ff02::50:3"] {
        let group = group.parse().unwrap();
        let [a, b] = nodes.each_ref().map(|node| member(node, group));
        send(&nodes[0], a, group, Qpn::MULTICAST, 1);
        assert_eq!(heard(&nodes[0], 2), [(a, 1, a)]);
        assert_eq!(heard(&nodes[1], 1), [(b, 1, a)]);
    }
}

//! Thousands of queue pairs that all send into one socket, without any retransmission.

mod common;

use std::env;
use std::path::Path;

use common::{Node, Other, Place, address, attr, connect_back, hear, role, tell};
use ferroce_device::{Counter, Mtu, QpAttr};
use ferroce_registry::Registry;
use ferroce_runtime::DeviceConfig;
use ferroce_wire::Qpn;

const LEN: usize = 64 << 10;

/// Number of queue pairs; `./test soak` takes more.
fn queue_pairs() -> usize {
    let wanted = env::var("FERROCE_CROWD").ok();
    wanted.map_or(1_000, |wanted| wanted.parse().unwrap())
}

fn without_timeout() -> QpAttr {
    QpAttr {
        timeout: 0,
        path_mtu: Mtu::Mtu1024,
        ..attr()
    }
}

/// Queue pairs that are connected to themselves.
fn selves(node: &Node, count: usize) -> Vec<Qpn> {
    let qpns: Vec<Qpn> = (0..count).map(|_| node.qp()).collect();
    for qpn in &qpns {
        let own = node.endpoint(*qpn);
        let device = &node.device;
        device.connect(own, own, &without_timeout()).unwrap();
    }
    qpns
}

/// All of them write at once, and all complete.
fn write(node: &Node, qpns: &[Qpn]) {
    for (qpn, wr_id) in qpns.iter().zip(0..) {
        let (source, target) = (node.sge(0, LEN as u32), node.remote(LEN));
        node.post(*qpn, wr_id, target.write(), source);
    }
    node.succeed(qpns.len());
    let repeated = node.count(Counter::RetransmittedPackets);
    assert_eq!((repeated, node.device.receive_drops()), (0, Some(0)));
}

#[test]
fn one_process_does_not_overload_itself() {
    let config = DeviceConfig::new(address(61, 0, 0));
    let node = Node::with_config(config, 2 * LEN);
    let qpns = selves(&node, queue_pairs());
    for _ in 0..2 {
        write(&node, &qpns);
        node.device.with(|hca| hca.audit());
    }
}

/// The receive buffer of an ordinary machine.
#[test]
fn a_small_buffer_is_enough_for_a_crowd() {
    let mut config = DeviceConfig::new(address(61, 1, 0));
    config.socket.receive_buffer_bytes = 200 << 10;
    let node = Node::with_config(config, 2 * LEN);
    let qpns = selves(&node, queue_pairs() / 4);
    write(&node, &qpns);
}

/// Each of them alone could fill the buffer.
const PROCESSES: usize = 8;

/// One process of the crowd: it has the queue pairs that its role says, and writes on each.
fn member(role: &[String]) {
    let registry = Registry::at(Path::new(&role[0])).unwrap();
    let node = Node::attach(&registry, "a", LEN);
    let count: usize = role[1].parse().unwrap();
    let links: Vec<_> = (0..count)
        .map(|_| connect_back(&node, &without_timeout()))
        .collect();
    tell("connected");
    hear();
    for (link, wr_id) in links.iter().zip(0..) {
        node.post(
            link.qpn,
            wr_id,
            link.memory.write(),
            node.sge(0, LEN as u32),
        );
    }
    node.succeed(count);
    let repeated = node.count(Counter::RetransmittedPackets);
    assert_eq!((repeated, node.device.receive_drops()), (0, Some(0)));
    node.device.with(|hca| hca.audit());
    tell("done");
    while hear().is_some() {}
}

#[test]
fn many_processes_do_not_overload_one() {
    if let Some(role) = role() {
        return member(&role);
    }
    let place = Place::on_the_wire(address(61, 2, 0));
    let node = Node::attach(&place.registry(), "a", LEN);
    let each = queue_pairs().div_ceil(PROCESSES);
    let role = format!("{} {each}", place.path().display());
    let start = || Other::start("many_processes_do_not_overload_one", &role);
    let mut members = [(); PROCESSES].map(|()| start());
    for member in &mut members {
        for _ in 0..each {
            member.connect(&node, &without_timeout());
        }
        assert_eq!(member.hear(), "connected");
    }
    members.iter_mut().for_each(|member| member.tell("go"));
    for member in &mut members {
        assert_eq!(member.hear(), "done");
    }
    assert_eq!(node.device.receive_drops(), Some(0));
    members.into_iter().for_each(Other::finish);
}

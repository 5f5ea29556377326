//! Thousands of queue pairs that all send into one socket, and nothing that repeats what is lost.

mod common;

use std::env;

use common::{Node, address, attr};
use ferroce_hca::{Counter, Mtu, QpAttr};
use ferroce_udp::DeviceConfig;
use ferroce_wire::Qpn;

const LEN: usize = 64 << 10;

/// How many there are; `./test soak` wants more.
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

/// All of them write at once, and all are done.
fn write(node: &Node, qpns: &[Qpn]) {
    for (qpn, wr_id) in qpns.iter().zip(0..) {
        let (source, target) = (node.sge(0, LEN as u32), node.remote(LEN));
        node.post(*qpn, wr_id, target.write(), source);
    }
    node.succeed(qpns.len());
    let repeated = node.device.state().counter(Counter::RetransmittedPackets);
    assert_eq!((repeated, node.device.receive_drops()), (0, Some(0)));
}

#[test]
fn one_process_does_not_drown_itself() {
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

//! Unreliable services on real sockets. Loopback loses nothing while the sockets have room.

mod common;

use std::time::Instant;

use common::{Node, PATIENCE, address, attr, pattern};
use ferroce_dcqcn::Params;
use ferroce_device::{
    Counter, Direction, GRH_BYTES, Path, QpAttr, QpInit, QpType, RecvWr, SendOp, SendTo, SendWr,
    Sges, UdAddress, WcFlags, WcOpcode, WriteLockError, XrcObjects,
};
use ferroce_testing::direct;
use ferroce_wire::Qpn;

const SEND: SendOp = SendOp::Send { imm: None };

fn create(node: &Node, qp_type: QpType) -> Qpn {
    let init = QpInit::new(qp_type, node.pd, node.cq);
    node.device.with(|hca| hca.create_qp(&init)).unwrap()
}

/// From RESET to RTS.
fn ready(node: &Node, qpn: Qpn, qp_type: QpType, attr: QpAttr, path: Option<Path>) {
    let device = &node.device;
    device.with(|hca| direct::ready(hca, qpn, qp_type, attr, path));
}

/// DSCP 26, and "able to mark congestion".
const CLASS: u8 = 0x6a;

fn path_to(node: &Node) -> Path {
    Path {
        dest: node.device.address().ip(),
        traffic_class: CLASS,
        sl: 0,
        port: 1,
    }
}

#[test]
fn datagrams_in_both_directions() {
    let nodes = [0, 1].map(|host| Node::open(address(11, 0, host), 64 << 10));
    let qkey = 0x1111_1111;
    let qpns = [0, 1].map(|i| {
        let qpn = create(&nodes[i], QpType::Ud);
        ready(&nodes[i], qpn, QpType::Ud, QpAttr { qkey, ..attr() }, None);
        qpn
    });
    for (from, to) in [(0, 1), (1, 0)] {
        for len in [0, 1, 1000, 4096] {
            let bytes = pattern(len as usize, 7);
            nodes[from].buffer.write(0, &bytes);
            nodes[to].post_recv(qpns[to], 7, 32 << 10, GRH_BYTES + len);
            let request = SendWr {
                to: SendTo::Datagram(UdAddress {
                    path: path_to(&nodes[to]),
                    qpn: qpns[to],
                    qkey,
                }),
                ..SendWr::new(1, SEND, nodes[from].sge(0, len))
            };
            nodes[from].device.post_send(qpns[from], [request]).unwrap();
            assert_eq!(nodes[from].succeed(1)[0].opcode, WcOpcode::Send);
            let got = nodes[to].succeed(1)[0];
            assert_eq!((got.byte_len, got.src_qp), (GRH_BYTES + len, qpns[from]));
            assert_eq!(got.flags, WcFlags::GRH);
            let ip_header = nodes[to].bytes((32 << 10) + 20, 2);
            assert_eq!(ip_header, [0x45, CLASS]);
            let payload = (32 << 10) + GRH_BYTES as usize;
            assert!(
                nodes[to].bytes(payload, len as usize) == bytes,
                "{len} bytes"
            );
        }
    }
}

/// Queue pairs of an unreliable connection.
fn connected(a: &Node, b: &Node) -> [Qpn; 2] {
    let [qa, qb] = [a, b].map(|node| create(node, QpType::Uc));
    for (node, own, peer, to) in [(a, qa, qb, b), (b, qb, qa, a)] {
        let attr = QpAttr {
            dest_qpn: peer,
            ..attr()
        };
        ready(node, own, QpType::Uc, attr, Some(path_to(to)));
    }
    [qa, qb]
}

#[test]
fn unreliable_connections_write_and_send() {
    const LEN: u32 = 20_000;
    let [a, b] = [0, 1].map(|host| Node::open(address(11, 1, host), 64 << 10));
    let [qa, qb] = connected(&a, &b);
    let bytes = pattern(LEN as usize, 3);
    a.buffer.write(0, &bytes);
    b.post_recv(qb, 1, 0, 0);
    b.post_recv(qb, 2, 0, LEN);
    a.post(qa, 1, b.remote(32 << 10).write_imm(5), a.sge(0, LEN));
    a.post(qa, 2, SEND, a.sge(0, LEN));
    a.succeed(2);
    let got = b.succeed(2);
    assert_eq!([got[0].wr_id, got[1].wr_id], [1, 2]);
    assert!(b.bytes(0, LEN as usize) == bytes);
    assert!(b.bytes(32 << 10, LEN as usize) == bytes);
}

/// The sender's completions need no answer, so it never notices that there is none.
#[test]
fn a_program_that_always_finds_completions_hears_of_congestion() {
    let [a, b] = [0, 1].map(|host| Node::open(address(11, 4, host), 64 << 10));
    let [qa, _] = connected(&a, &b);
    for (node, assignment) in [
        (&a, "rpg_min_dec_fac=100"),
        (&b, "min_time_between_cnps=1000"),
    ] {
        let change = |params: &mut Params| {
            params.assign(assignment).unwrap();
            Ok::<_, WriteLockError>(())
        };
        node.device.state().change_congestion(change).unwrap();
    }
    let marks = ferroce_registry::impairment::parse("ecn=100%").unwrap();
    let state = b.device.state();
    state.set_impairment(Direction::Ingress, marks).unwrap();

    let post = || a.post(qa, 1, b.remote(0).write(), a.sge(0, 4096));
    post();
    // The number of polls until it learns of a CNP that was sent.
    let (mut waits, mut polls, mut out) = (Vec::new(), 0, Vec::new());
    let started = Instant::now();
    while waits.len() < 50 {
        assert!(started.elapsed() < PATIENCE, "{waits:?} and {polls} polls");
        post();
        assert_eq!(a.device.poll(a.cq, 1, &mut out), Ok(1));
        let sent = state.counter(Counter::NpCnpSent);
        let count = |counter| a.count(counter);
        if count(Counter::RpCnpHandled) - count(Counter::RoceSlowRestartCnps) < sent {
            polls += 1;
        } else if polls > 0 {
            waits.push(polls);
            polls = 0;
        }
    }
    // Polls during which a thread lost its processor take longer.
    waits.sort_unstable();
    assert!(waits[waits.len() / 2] < 100, "{waits:?}");
}

/// A SEND to a shared receive queue that it names, and a WRITE.
#[test]
fn extended_reliable_connections() {
    const LEN: u32 = 20_000;
    let [a, b] = [0, 1].map(|host| Node::open(address(11, 2, host), 64 << 10));
    let sender = create(&a, QpType::XrcSend);
    let (receiver, srq, number) = b.device.with(|hca| {
        let xrcd = hca.alloc_xrcd().unwrap();
        let objects = XrcObjects { xrcd, cq: b.cq };
        let srq = hca.create_xrc_srq(b.pd, objects, 4, 1).unwrap();
        let number = hca.srq_number(srq).unwrap();
        (hca.create_xrc_recv_qp(xrcd).unwrap(), srq, number)
    });
    for (node, own, qp_type, peer, to) in [
        (&a, sender, QpType::XrcSend, receiver, &b),
        (&b, receiver, QpType::XrcRecv, sender, &a),
    ] {
        let attr = QpAttr {
            dest_qpn: peer,
            ..attr()
        };
        ready(node, own, qp_type, attr, Some(path_to(to)));
    }
    let bytes = pattern(LEN as usize, 3);
    a.buffer.write(0, &bytes);
    let wr = RecvWr {
        wr_id: 7,
        sges: Sges::from_buf([b.sge(0, LEN)]),
    };
    b.device.with(|hca| hca.post_srq_recv(srq, wr).unwrap());
    let to_srq = |wr_id, op| SendWr {
        to: SendTo::Srq(number),
        ..SendWr::new(wr_id, op, a.sge(0, LEN))
    };
    let write = to_srq(1, b.remote(32 << 10).write());
    a.device
        .post_send(sender, [write, to_srq(2, SEND)])
        .unwrap();
    a.succeed(2);
    let got = b.succeed(1)[0];
    assert_eq!((got.wr_id, got.qpn, got.byte_len), (7, receiver, LEN));
    assert!(b.bytes(0, LEN as usize) == bytes);
    assert!(b.bytes(32 << 10, LEN as usize) == bytes);
}

//! Processes leave a device that others use: packets for the others always reach them directly, so
//! that no packet overtakes another, which a UC queue pair would take for a loss.

mod common;

use std::fs;
use std::net::{SocketAddr, UdpSocket};

use common::{Node, Place, address, wait_until};
use ferroce_device::Counter;
use ferroce_wire::{Connection, Headers, IcrcFlow, IpPair, Psn, Qpn, ROCE_V2_PORT};

/// Hosts that send. Without a program, the kernel picks a socket by the sender.
const SENDERS: u8 = 9;

/// A process that shares the port, from the others' point of view.
fn join(place: &Place) -> Node {
    let node = Node::attach(&place.registry(), "a", 4096);
    node.device.join().unwrap();
    node
}

struct Senders {
    sockets: Vec<UdpSocket>,
    dest: SocketAddr,
}

impl Senders {
    fn new(test: u8, dest: SocketAddr) -> Self {
        let bind = |host| UdpSocket::bind((address(69, test, host), ROCE_V2_PORT)).unwrap();
        Self {
            sockets: (1..=SENDERS).map(bind).collect(),
            dest,
        }
    }

    /// Each sends a packet to each of these nodes, which have no such queue pair; returns the
    /// number that had to be forwarded.
    fn send(&self, nodes: &[Node]) -> u64 {
        let state = nodes[0].device.state();
        let count = |counter| state.counter(counter);
        let forwarded = count(Counter::RxForwarded);
        let all = count(Counter::RxUnknownQp) + u64::from(SENDERS) * nodes.len() as u64;
        for node in nodes {
            let qpn = Qpn::new(u32::from(node.device.slot()) << 16 | 5);
            for socket in &self.sockets {
                self.send_one(socket, qpn);
            }
        }
        nodes[0].wait_for_count(Counter::RxUnknownQp, all);
        count(Counter::RxForwarded) - forwarded
    }

    /// Waits until nothing has to be forwarded: on a busy machine, a new process does not find out
    /// in time which process has which socket.
    fn settle(&self, nodes: &[Node]) {
        wait_until("packets take no detour", || self.send(nodes) == 0);
    }

    fn send_one(&self, socket: &UdpSocket, qpn: Qpn) {
        let (own, dest) = (socket.local_addr().unwrap(), self.dest);
        let ip = IpPair::new(own.ip(), dest.ip()).unwrap();
        let flow = IcrcFlow::new(ip, own.port(), dest.port());
        let headers = Headers::send(Connection::Uc, ferroce_wire::Place::Only, None);
        let mut packet = [0; 100];
        let len = headers
            .to(qpn, Psn::new(5))
            .emit_packet(&[7; 8], &flow, 0, &mut packet)
            .unwrap();
        socket.send_to(&packet[..len], dest).unwrap();
    }
}

#[test]
fn leaving_moves_no_other_process() {
    let place = Place::on_the_wire(address(69, 0, 0));
    let mut nodes: Vec<Node> = (0..5).map(|_| join(&place)).collect();
    let senders = Senders::new(0, nodes[0].device.address());
    senders.settle(&nodes);
    // A middle one; the one that keeps its place; the last one.
    for leaves in [1, 0, 2] {
        drop(nodes.remove(leaves));
        assert_eq!(senders.send(&nodes), 0, "{leaves} has left");
    }
    for leaves in [0, 1, 0] {
        nodes.push(join(&place));
        senders.settle(&nodes);
        drop(nodes.remove(leaves));
        assert_eq!(senders.send(&nodes), 0, "{leaves} has left");
    }
}

/// How many sockets have this address.
fn sockets(at: SocketAddr) -> usize {
    let SocketAddr::V4(at) = at else {
        panic!("an IPv4 address")
    };
    // In the byte order that the kernel prints.
    let ip = u32::from_ne_bytes(at.ip().octets());
    let local = format!(" {ip:08X}:{:04X} ", at.port());
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    table.lines().filter(|line| line.contains(&local)).count()
}

/// Waits until at most `limit` sockets have this address.
fn await_at_most(limit: usize, at: SocketAddr) {
    wait_until("there are no more sockets", || sockets(at) <= limit);
}

/// A new process always joins before the previous one leaves.
#[test]
fn the_number_of_kept_places_is_limited() {
    const KEPT_MAX: usize = 16;
    let place = Place::on_the_wire(address(69, 1, 0));
    let first = join(&place);
    let at = first.device.address();
    let mut last = join(&place);
    let mut most = 0;
    for _ in 0..30 {
        last = join(&place);
        most = most.max(sockets(at));
        // A keeper on a busy machine may have sockets in its mailbox that it has not read.
        await_at_most(2 + KEPT_MAX, at);
    }
    assert!(most > 3, "no place is kept");
    drop(last);
    await_at_most(1, at);
}

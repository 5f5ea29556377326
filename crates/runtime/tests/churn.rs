//! Processes attach to and leave a device, and the others lose no packet.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Node, Other, Over, PATIENCE, Place, address, connect, connect_back, hear, role, tell,
};
use ferroce_device::{Counter, QpAttr, QpInit, QpType, SendOp};
use ferroce_registry::Registry;
use ferroce_runtime::{AttachOptions, Device, OpenError};
use ferroce_sockets::BindError;
use ferroce_wire::{Qpn, ROCE_V2_PORT};

const BYTES: u32 = 64;
const PAIRS: usize = 64;
const SEND: SendOp = SendOp::Send { imm: None };

/// A lost packet is never retransmitted.
fn no_timeout() -> QpAttr {
    QpAttr {
        timeout: 0,
        ..common::attr()
    }
}

/// How long processes come and go.
const DURATION: Duration = Duration::from_secs(3);

/// Queue pairs of one node, each with one message outstanding in each direction.
struct PingPong {
    node: Node,
    qpns: Vec<Qpn>,
    /// By queue pair: completions of the present exchange, which has two at each end.
    done: Vec<u32>,
    /// By queue pair: exchanges so far.
    exchanges: Vec<u64>,
}

impl PingPong {
    fn new(node: Node) -> Self {
        Self {
            node,
            qpns: Vec::new(),
            done: Vec::new(),
            exchanges: Vec::new(),
        }
    }

    fn add(&mut self, qpn: Qpn) {
        // The peer may be one exchange ahead.
        (0..2).for_each(|_| self.node.post_recv(qpn, 0, 0, BYTES));
        self.qpns.push(qpn);
        self.done.push(0);
        self.exchanges.push(0);
    }

    fn begin(&self, qpn: Qpn) {
        self.node.post(qpn, 0, SEND, self.node.sge(0, BYTES));
    }

    /// Continues the exchanges that are complete. Returns how many ended.
    fn step(&mut self) -> u64 {
        let mut out = Vec::new();
        self.node.device.poll(self.node.cq, 64, &mut out).unwrap();
        let mut ended = 0;
        for completion in out {
            assert_eq!(completion.status, ferroce_device::WcStatus::Success);
            let at = self
                .qpns
                .iter()
                .position(|qpn| *qpn == completion.qpn)
                .unwrap();
            self.done[at] += 1;
            if self.done[at] == 2 {
                self.done[at] = 0;
                self.exchanges[at] += 1;
                ended += 1;
                self.node.post_recv(self.qpns[at], 0, 0, BYTES);
                self.begin(self.qpns[at]);
            }
        }
        ended
    }
}

/// A process that attaches to the device and leaves it, again and again.
fn comer(role: &[String]) {
    let registry = Registry::at(role[0].as_ref()).unwrap();
    while hear().is_some() {
        // As a program that only queries: opens, queries, closes.
        let look = Device::attach(&registry, "a", AttachOptions::default()).unwrap();
        look.with(|hca| hca.alloc_pd().unwrap());
        drop(look);
        // As a program that works.
        let node = Node::attach(&registry, "a", 4096);
        let link = connect_back(&node, &no_timeout());
        node.post(link.qpn, 1, link.memory.write(), node.sge(0, BYTES));
        node.succeed(1);
        drop(node);
        tell("gone");
    }
}

/// Starts and ends a process beside `PAIRS` pairs until the time is over. Returns the number of packets that were
/// retransmitted.
fn churn(test: &str, place: &Place) -> u64 {
    let attach = || Node::attach(&place.registry(), "a", 4096);
    let mut ends = [(); 4].map(|()| PingPong::new(attach()));
    for pair in 0..PAIRS {
        let (one, other) = (pair % 4, (pair + 1) % 4);
        let (a, b) = connect(&ends[one].node, &ends[other].node, &no_timeout());
        ends[one].add(a);
        ends[other].add(b);
    }
    for end in &ends {
        end.qpns.iter().for_each(|qpn| end.begin(*qpn));
    }
    let over = AtomicBool::new(false);
    let (rounds, exchanges) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let _over = Over(&over);
        let visitors: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let home = attach();
                    let role = place.path().display().to_string();
                    let mut other = Other::start(test, &role);
                    while !over.load(Ordering::Relaxed) {
                        other.tell("once more");
                        other.connect(&home, &no_timeout());
                        assert_eq!(other.hear(), "gone");
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                    other.finish();
                })
            })
            .collect();
        let started = Instant::now();
        let mut last = Instant::now();
        while started.elapsed() < DURATION || rounds.load(Ordering::Relaxed) < 10 {
            let steps: u64 = ends.iter_mut().map(PingPong::step).sum();
            exchanges.fetch_add(steps, Ordering::Relaxed);
            if steps > 0 {
                last = Instant::now();
            }
            assert!(last.elapsed() < PATIENCE, "the pairs hang");
            assert!(!visitors.iter().any(|it| it.is_finished()));
        }
        // Every pair still makes progress.
        let before: Vec<_> = ends.iter().map(|end| end.exchanges.clone()).collect();
        let goes_on = |(end, before): (&PingPong, &Vec<u64>)| {
            end.exchanges
                .iter()
                .zip(before)
                .all(|(now, then)| now > then)
        };
        let last = Instant::now();
        while !ends.iter().zip(&before).all(goes_on) {
            ends.iter_mut().map(PingPong::step).for_each(drop);
            assert!(last.elapsed() < PATIENCE, "some of the pairs hang");
        }
    });
    let [rounds, exchanges] = [rounds, exchanges].map(AtomicU64::into_inner);
    let state = ends[0].node.device.state();
    let repeated = state.counter(Counter::RetransmittedPackets);
    println!("{rounds} came and went beside {exchanges} exchanges; {repeated} packets repeated");
    repeated
}

#[test]
fn opening_and_closing_loses_no_packet_of_others() {
    if let Some(role) = role() {
        return comer(&role);
    }
    let test = "opening_and_closing_loses_no_packet_of_others";
    let place = Place::on_the_wire(address(61, 0, 0));
    assert_eq!(churn(test, &place), 0);
}

/// An observer does not bind the port, so packets of others cannot reach it.
#[test]
fn observers_take_no_part_in_the_port() {
    let address = address(61, 1, 0);
    let place = Place::on_the_wire(address);
    let looker = Device::attach(&place.registry(), "a", AttachOptions::default()).unwrap();
    let (pd, cq) = looker.with(|hca| (hca.alloc_pd().unwrap(), hca.create_cq(16).unwrap()));
    let port = SocketAddr::new(address, ROCE_V2_PORT);
    drop(UdpSocket::bind(port).expect("the port is free"));
    let init = QpInit::new(QpType::Rc, pd, cq);
    looker.with(|hca| hca.create_qp(&init).unwrap());
    let refused = UdpSocket::bind(port).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
}

/// An error of the port is also reported when the port is needed later.
#[test]
fn a_port_that_is_taken_meanwhile_is_an_error() {
    let address = address(61, 2, 0);
    let place = Place::on_the_wire(address);
    let looker = Device::attach(&place.registry(), "a", AttachOptions::default()).unwrap();
    let taken = UdpSocket::bind(SocketAddr::new(address, ROCE_V2_PORT)).unwrap();
    let error = looker.join().unwrap_err();
    assert!(
        matches!(error, OpenError::Bind(BindError::AddressInUse { .. })),
        "{error}"
    );
    drop(taken);
    looker.join().unwrap();
}

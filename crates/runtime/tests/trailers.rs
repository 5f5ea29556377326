//! Packets of one length for peers that take trailers, and what becomes of peers that only say so.

mod common;

use std::time::{Duration, Instant};

use common::stranger::Stranger;
use common::{Node, PATIENCE, Remote, address, attr, impatient, pattern};
use ferroce_device::{Counter, Mtu, QpAttr};
use ferroce_runtime::Endpoint;
use ferroce_wire::{
    Aeth, Connection, CreditCode, Headers, Hello, Opcode, Packet, Place, Psn, Qpn, ROCE_V2_PORT,
    Reth, Syndrome, fill_trailer, strip_trailer,
};

const FILE: u8 = 142;
const MESSAGE: usize = 16 << 10;
const OWN: Qpn = Qpn::new(0x05_0011);

/// What a peer makes of trailers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It takes them.
    Ferroce,
    /// It does not know them, and drops what it does not know.
    Stranger,
    /// It says that it takes them, and drops packets with one.
    Liar,
    /// It sends back what it does not know.
    Echo,
    /// It is of another version, and says so.
    Newer,
}

/// The passive end of a queue pair, made by hand.
struct Peer {
    kind: Kind,
    stranger: Stranger,
    expected: Psn,
    received: Vec<u8>,
    /// Lengths of the datagrams of WRITEs.
    lens: Vec<usize>,
    with_trailer: usize,
    questions: usize,
}

impl Peer {
    /// Takes what has arrived.
    fn serve(&mut self, to: Qpn) {
        let mut bytes = [0; 1 << 16];
        let wait = Duration::from_millis(1);
        self.stranger.socket.set_read_timeout(Some(wait)).unwrap();
        while let Ok(len) = self.stranger.socket.recv(&mut bytes) {
            let bytes = &bytes[..len];
            match Hello::read(bytes) {
                Some(hello) => self.greet(hello, bytes),
                None => self.take(bytes, to),
            }
        }
    }

    fn greet(&mut self, hello: Hello, bytes: &[u8]) {
        assert!(!hello.is_answer, "nothing was asked");
        self.questions += 1;
        let mut answer = Hello {
            is_answer: true,
            to: hello.from,
            from: hello.to,
            nonce: hello.nonce,
        }
        .bytes();
        match self.kind {
            Kind::Ferroce | Kind::Liar => self.stranger.send(&answer),
            Kind::Newer => {
                answer[1] += 1;
                self.stranger.send(&answer);
            }
            Kind::Echo => self.stranger.send(bytes),
            Kind::Stranger => {}
        }
    }

    fn take(&mut self, bytes: &[u8], to: Qpn) {
        self.lens.push(bytes.len());
        let bare = strip_trailer(bytes);
        self.with_trailer += usize::from(bare.is_some());
        let bytes = match bare {
            Some(bare) if self.kind == Kind::Ferroce => bare,
            Some(_) => return,
            None => bytes,
        };
        let packet = Packet::new_checked(bytes).unwrap();
        let headers = packet.headers();
        match headers.psn.since(self.expected) {
            0 => {
                self.expected = headers.psn.next();
                self.received.extend(packet.payload());
            }
            // One that is missing comes first.
            1..0x80_0000 => return,
            _ => {}
        }
        if headers.asks_for_ack() {
            let aeth = Aeth {
                syndrome: Syndrome::Ack {
                    credit: CreditCode::INVALID,
                },
                ..Aeth::default()
            };
            let headers = Headers::acknowledge(aeth).to(to, self.expected.wrapping_sub(1));
            self.stranger.send(&self.stranger.packet(headers, &[]));
        }
    }
}

/// A device, its queue pair, and the peer of that.
fn connected(test: u8, kind: Kind) -> (Node, Qpn, Peer) {
    let node = Node::with_config(impatient(address(FILE, test, 0)), MESSAGE);
    let host = address(FILE, test, 1);
    let stranger = Stranger::new(host, ROCE_V2_PORT, &node);
    let at_node = node.qp();
    let own = node.endpoint(at_node);
    let peer = Endpoint {
        address: host,
        qpn: OWN,
        psn: Psn::new(77),
    };
    let attr = QpAttr {
        path_mtu: Mtu::Mtu1024,
        ..attr()
    };
    node.device.connect(own, peer, &attr).unwrap();
    let peer = Peer {
        kind,
        stranger,
        expected: own.psn,
        received: Vec::new(),
        lens: Vec::new(),
        with_trailer: 0,
        questions: 0,
    };
    (node, at_node, peer)
}

/// Writes a message and returns how many packets went again; the peer has its bytes exactly.
fn write(node: &Node, at_node: Qpn, peer: &mut Peer, seed: u64) -> u64 {
    let before = node.count(Counter::RetransmittedPackets);
    let bytes = pattern(MESSAGE, seed);
    node.buffer.write(0, &bytes);
    let remote = Remote { va: 0, rkey: 1 };
    node.post(at_node, seed, remote.write(), node.sge(0, MESSAGE as u32));
    peer.received.clear();
    peer.lens.clear();
    peer.with_trailer = 0;
    let started = Instant::now();
    while peer.received.len() < MESSAGE {
        assert!(started.elapsed() < PATIENCE, "{:?}", peer.kind);
        peer.serve(at_node);
    }
    peer.serve(at_node);
    assert_eq!(peer.received, bytes, "{:?}", peer.kind);
    node.succeed(1);
    node.count(Counter::RetransmittedPackets) - before
}

#[test]
fn a_peer_that_takes_trailers_gets_packets_of_one_length() {
    let (node, at_node, mut peer) = connected(0, Kind::Ferroce);
    let started = Instant::now();
    for seed in 0.. {
        write(&node, at_node, &mut peer, seed);
        if peer.with_trailer == 15 {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{:?}", peer.lens);
        std::thread::sleep(Duration::from_millis(1));
    }
    // The first has none: it is the longest.
    assert_eq!(peer.lens, [12 + 16 + 1024 + 4; 16]);
}

#[test]
fn packets_with_trailers_are_taken() {
    let (node, at_node, peer) = connected(1, Kind::Ferroce);
    let bytes = pattern(3 << 10, 1);
    for (index, payload) in (0..).zip(bytes.chunks(1024)) {
        let place = Place::new(index == 0, index == 2);
        let Remote { va, rkey } = node.remote(0);
        let length = bytes.len() as u32;
        let reth = Reth { va, rkey, length };
        let headers = Headers::write(Connection::Rc, place, reth, None);
        let headers = headers.to(at_node, Psn::new(77 + index));
        let mut packet = peer.stranger.packet(headers, payload);
        let len = packet.len();
        packet.resize(len + 4 * (1 + index as usize), 0);
        fill_trailer(&mut packet[len..]);
        peer.stranger.send(&packet);
    }
    common::wait_until("all is written", || node.bytes(0, bytes.len()) == bytes);
    for counter in [Counter::RxIcrcEncapsulated, Counter::RxMalformed] {
        assert_eq!(node.count(counter), 0, "{}", counter.name());
    }
}

/// Nothing is lost, and soon nothing goes again.
#[test]
fn peers_that_only_say_that_they_take_trailers_lose_nothing() {
    let (node, at_node, mut peer) = connected(2, Kind::Liar);
    let mut again = 0;
    for seed in 0..40 {
        again += write(&node, at_node, &mut peer, seed);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(peer.questions > 0);
    let last = write(&node, at_node, &mut peer, 41);
    assert_eq!((last, peer.with_trailer), (0, 0), "{again} before");
    assert!(again >= 15, "it was never tried: {again}");
    assert!(again < 200, "{again}");
}

#[test]
fn other_peers_get_no_trailers() {
    for (test, kind) in [(3, Kind::Stranger), (4, Kind::Echo), (5, Kind::Newer)] {
        let (node, at_node, mut peer) = connected(test, kind);
        for seed in 0..20 {
            let again = write(&node, at_node, &mut peer, seed);
            assert_eq!((again, peer.with_trailer), (0, 0), "{kind:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!((1..10).contains(&peer.questions), "{}", peer.questions);
        assert_eq!(Opcode::from_u8(ferroce_wire::HELLO), None);
    }
}

//! Packets that no correct peer sends, over the wire. Each is dropped and counted by its cause, and
//! other traffic is not affected.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use common::stranger::Stranger;
use common::{
    Node, Over, PATIENCE, Remote, address, attr, check_all_kinds, connect, nothing_was_lost,
    patient, patient_attr, pattern, wait_until,
};
use ferroce_device::{Counter, Hca, QpAttr, QpModify};
use ferroce_runtime::Endpoint;
use ferroce_wire::{
    Aeth, AtomicEth, BthFlags, CreditCode, DcConnect, Dceth, Deth, ExtensionValues, Headers,
    ICRC_LEN, NakCode, Opcode, PKEY_DEFAULT, Packet, Psn, Qpn, ROCE_V2_PORT, Reth, Service, Srqn,
    Syndrome, cnp,
};

const LEN: usize = 256 << 10;

/// Headers with the extensions of the opcode.
fn headers(opcode: Opcode, dest: Qpn, psn: Psn, remote: Remote) -> Headers {
    let Remote { va, rkey } = remote;
    let credit = CreditCode::from_credits(1);
    let values = ExtensionValues {
        reth: Reth {
            va,
            rkey,
            length: 64,
        },
        aeth: Aeth {
            syndrome: Syndrome::Ack { credit },
            msn: 1,
        },
        atomic: AtomicEth {
            va,
            rkey,
            swap_or_add: 1,
            compare: 0,
        },
        atomic_ack: 1,
        imm: 1,
        ieth: rkey,
        deth: Deth {
            qkey: 1,
            src_qp: dest,
        },
        xrceth: Srqn::new(1),
        dceth: Dceth {
            connection: 1,
            initiator: dest,
        },
        dc_connect: DcConnect {
            key: 0x1234,
            incarnation: 1,
        },
    };
    let mut headers = Headers::with_values(opcode, &values).to(dest, psn);
    headers.flags.set(BthFlags::ACK_REQ, opcode.is_request());
    headers
}

/// Waits until the counter has reached `count`, and checks that it is not above.
fn counted(node: &Node, counter: Counter, count: u64) {
    node.wait_for_count(counter, count);
    assert_eq!(node.count(counter), count, "{}", counter.name());
}

/// Two devices at work, and an outsider at a third address.
struct Scene {
    a: Node,
    b: Node,
    qps: (Qpn, Qpn),
    stranger: Stranger,
}

impl Scene {
    fn new(test: u8) -> Self {
        let [a, b] = [0, 1].map(|host| Node::with_config(patient(address(45, test, host)), LEN));
        let qps = connect(&a, &b, &patient_attr());
        let stranger = Stranger::new(address(45, test, 2), ROCE_V2_PORT, &b);
        Self {
            a,
            b,
            qps,
            stranger,
        }
    }

    fn packet(&self, opcode: Opcode, dest: Qpn, psn: Psn) -> Vec<u8> {
        let headers = headers(opcode, dest, psn, self.b.remote(LEN - 64));
        self.stranger.packet(headers, payload(opcode))
    }

    fn send(&self, opcode: Opcode, dest: Qpn, psn: Psn) {
        self.stranger.send(&self.packet(opcode, dest, psn));
    }

    /// Waits until this number of damaged packets has been dropped.
    fn drops(&self, count: u64) {
        let counters = [Counter::RxIcrcEncapsulated, Counter::RxMalformed];
        let dropped = || counters.iter().map(|it| self.b.count(*it)).sum::<u64>();
        wait_until("all of them are dropped", || dropped() >= count);
        assert_eq!(dropped(), count);
    }
}

impl Drop for Scene {
    /// Checks that the other traffic was not affected.
    fn drop(&mut self) {
        if !thread::panicking() {
            check_all_kinds(&self.a, &self.b, self.qps, 20_000, 1);
            nothing_was_lost(&self.a);
        }
    }
}

fn rc() -> impl Iterator<Item = Opcode> {
    let all = Opcode::ALL.iter().copied();
    all.filter(|opcode| opcode.service() == Service::Rc)
}

fn payload(opcode: Opcode) -> &'static [u8] {
    if opcode.has_payload() {
        &[0xee; 64]
    } else {
        &[]
    }
}

#[test]
fn packets_of_an_outsider() {
    let scene = Scene::new(0);
    let own = scene.qps.1;
    for opcode in rc() {
        scene.send(opcode, own, scene.b.endpoint(own).psn);
        scene.send(opcode, own, Psn::new(5));
    }
    counted(&scene.b, Counter::RxWrongPeer, 2 * rc().count() as u64);
    assert_eq!(scene.b.bytes(LEN - 64, 64), [0; 64]);
}

#[test]
fn packets_that_no_queue_pair_takes() {
    let scene = Scene::new(1);
    let own = scene.qps.1;
    let numbers = [0, 2, 0xff, own.value() + 1, 0xff_fffe, 0xff_ffff];
    for number in numbers {
        scene.send(Opcode::RcWriteOnly, Qpn::new(number), Psn::ZERO);
    }
    counted(&scene.b, Counter::RxUnknownQp, numbers.len() as u64);

    let is_other = |it: &&Opcode| it.service() != Service::Rc && **it != Opcode::Cnp;
    let others = Opcode::ALL.iter().filter(is_other);
    let sent = others.map(|opcode| scene.send(*opcode, own, Psn::ZERO));
    let sent = sent.count() as u64;
    assert!(sent > 10);
    counted(&scene.b, Counter::RxWrongService, sent);

    let fresh = scene.b.qp();
    scene.send(Opcode::RcSendOnly, fresh, Psn::ZERO);
    counted(&scene.b, Counter::RxWrongState, 1);
    let init = QpModify::init(QpAttr::default());
    let modify = |hca: &mut Hca| hca.modify_qp(fresh, &init, None);
    scene.b.device.with(modify).unwrap();
    scene.send(Opcode::RcSendOnly, fresh, Psn::ZERO);
    counted(&scene.b, Counter::RxWrongState, 2);
}

/// One flipped bit at any place, except where a switch may change it.
#[test]
fn damaged_packets() {
    let scene = Scene::new(4);
    let good = scene.packet(Opcode::RcWriteOnly, scene.qps.1, Psn::ZERO);
    let mut sent = 0;
    // Byte 4 holds the congestion bits, which the ICRC does not cover.
    for byte in (0..good.len()).filter(|&byte| byte != 4) {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[byte] ^= 1 << bit;
            scene.stranger.send(&bad);
            sent += 1;
        }
        scene.drops(sent);
    }
    assert!(scene.b.count(Counter::RxIcrcEncapsulated) > sent / 2);
    scene.stranger.send(&good);
    counted(&scene.b, Counter::RxWrongPeer, 1);
}

#[test]
fn truncated_packets_and_garbage() {
    let scene = Scene::new(5);
    let mut sent = 0;
    let mut send = |bytes: &[u8]| {
        scene.stranger.send(bytes);
        sent += 1;
        // No more at a time than the socket has room for.
        if sent % 64 == 0 {
            scene.drops(sent);
        }
    };
    for opcode in rc() {
        let packet = scene.packet(opcode, scene.qps.1, Psn::ZERO);
        (0..packet.len()).for_each(|len| send(&packet[..len]));
    }
    (0..600).for_each(|len| send(&pattern(len, 1 + len as u64)));
    send(&[0xff; 65_000]);
    scene.drops(sent);
    assert!(scene.b.count(Counter::RxMalformed) > 0);
}

/// A hand-made peer, at the peer's address, whose packets the queue pair accepts.
struct Forger {
    stranger: Stranger,
    victim: Node,
    qpn: Qpn,
    psn: Psn,
}

impl Forger {
    fn new(test: u8) -> Self {
        let victim = Node::open(address(46, test, 0), LEN);
        let stranger = Stranger::new(address(46, test, 1), ROCE_V2_PORT, &victim);
        stranger.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let (qpn, psn) = (victim.qp(), Psn::new(0xff_fffe));
        let peer = Endpoint {
            address: stranger.socket.local_addr().unwrap().ip(),
            qpn: Qpn::new(0x77),
            psn,
        };
        let own = victim.endpoint(qpn);
        victim.device.connect(own, peer, &attr()).unwrap();
        Self {
            stranger,
            victim,
            qpn,
            psn,
        }
    }

    fn packet(&self, opcode: Opcode, psn: u32, remote: Remote) -> Vec<u8> {
        let headers = headers(opcode, self.qpn, self.psn.wrapping_add(psn), remote);
        self.stranger.packet(headers, payload(opcode))
    }

    fn send(&self, opcode: Opcode, psn: u32, remote: Remote) {
        self.stranger.send(&self.packet(opcode, psn, remote));
    }

    /// The next answer: its PSN, counted from the first, and its syndrome.
    fn answer(&self) -> (u32, Syndrome) {
        let mut bytes = [0; 5000];
        let len = self.stranger.socket.recv(&mut bytes).unwrap();
        let packet = Packet::new_checked(&bytes[..len]).unwrap();
        let headers = packet.headers();
        let psn = headers.psn.since(self.psn);
        (psn, headers.aeth().unwrap().syndrome)
    }
}

#[test]
fn replayed_packets_take_effect_only_once() {
    let forger = Forger::new(0);
    let (victim, remote) = (&forger.victim, forger.victim.remote(0));
    let write = forger.packet(Opcode::RcWriteOnly, 0, remote);
    forger.stranger.send(&write);
    assert!(matches!(forger.answer(), (0, Syndrome::Ack { .. })));
    assert_eq!(victim.bytes(0, 64), [0xee; 64]);
    let add = forger.packet(Opcode::RcFetchAdd, 1, victim.remote(128));
    forger.stranger.send(&add);
    assert!(matches!(forger.answer(), (1, Syndrome::Ack { .. })));

    victim.buffer.write(0, &[0x11; 64]);
    for _ in 0..100 {
        forger.stranger.send(&write);
        forger.stranger.send(&add);
    }
    counted(victim, Counter::DuplicateRequest, 200);
    assert_eq!(victim.bytes(0, 64), [0x11; 64]);
    assert_eq!(victim.buffer.load(128), 1);
}

#[test]
fn packets_out_of_turn_are_refused() {
    let forger = Forger::new(1);
    let (victim, remote) = (&forger.victim, forger.victim.remote(0));
    let early = forger.packet(Opcode::RcWriteOnly, 3, remote);
    forger.stranger.send(&early);
    let code = NakCode::SequenceError;
    assert_eq!(forger.answer(), (0, Syndrome::Nak(code)));
    forger.stranger.send(&early);
    counted(victim, Counter::OutOfSequence, 2);
    assert_eq!(victim.bytes(0, 64), [0; 64]);
    // The queue pair waits for the right packet.
    forger.send(Opcode::RcWriteOnly, 0, remote);
    assert!(matches!(forger.answer(), (0, Syndrome::Ack { .. })));
}

#[test]
fn packets_cannot_access_memory_without_permission() {
    for (test, outside) in [(2, false), (3, true)] {
        let forger = Forger::new(test);
        let victim = &forger.victim;
        let mut remote = victim.remote(0);
        if outside {
            remote.va = remote.va + LEN as u64 - 63;
        } else {
            remote.rkey ^= 1;
        }
        forger.send(Opcode::RcWriteOnly, 0, remote);
        let code = NakCode::RemoteAccess;
        assert_eq!(forger.answer(), (0, Syndrome::Nak(code)));
        counted(victim, Counter::RxWriteRequests, 1);
        assert!(victim.bytes(0, LEN).iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_wrong_partition_is_refused() {
    let forger = Forger::new(4);
    let opcode = Opcode::RcWriteOnly;
    let mut headers = headers(opcode, forger.qpn, forger.psn, forger.victim.remote(0));
    headers.pkey = 0x8123;
    let packet = forger.stranger.packet(headers, payload(opcode));
    forger.stranger.send(&packet);
    counted(&forger.victim, Counter::RxWrongPkey, 1);
}

/// Answers to requests that were never sent.
#[test]
fn answers_to_nothing() {
    let forger = Forger::new(5);
    let mut sent = 0;
    for opcode in rc().filter(|opcode| !opcode.is_request()) {
        for psn in [0, 1, 0x40_0000, 0x80_0000, 0xff_ffff] {
            forger.send(opcode, psn, forger.victim.remote(0));
            sent += 1;
        }
    }
    forger.victim.wait_for_count(Counter::RdmaRxPackets, sent);
    forger.send(Opcode::RcWriteOnly, 0, forger.victim.remote(0));
    assert!(matches!(forger.answer(), (0, Syndrome::Ack { .. })));
}

/// Garbage of every kind, as fast as a socket sends it. The kernel drops good packets as well when
/// the buffer is full, so this is a bad link, but no more than that.
#[test]
fn honest_traffic_survives_a_flood() {
    let a = Node::open(address(45, 6, 0), LEN);
    let b = Node::open(address(45, 6, 1), LEN);
    let qps = connect(&a, &b, &attr());
    let stranger = Stranger::new(address(45, 6, 2), ROCE_V2_PORT, &b);
    let opcode = Opcode::RcWriteOnly;
    let write = headers(opcode, qps.1, Psn::ZERO, b.remote(0));
    let good = stranger.packet(write, payload(opcode));
    let mut damaged = good.clone();
    damaged[good.len() - ICRC_LEN] ^= 1;
    let garbage = [good, damaged, pattern(1400, 9), pattern(3, 9)];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                for packet in &garbage {
                    stranger.send(packet);
                    sent += 1;
                }
            }
            sent
        });
        let over = Over(&stop);
        for seed in 0..5 {
            check_all_kinds(&a, &b, qps, 100_000, seed);
        }
        drop(over);
        let sent = flood.join().unwrap();
        let causes = [
            Counter::RxWrongPeer,
            Counter::RxIcrcEncapsulated,
            Counter::RxMalformed,
        ];
        let dropped = causes.map(|counter| b.count(counter));
        eprintln!("{sent} packets of garbage, taken and dropped: {dropped:?}");
        assert!(dropped.iter().all(|&count| count > 0));
    });
}

/// CNPs of an outsider, forged and damaged ones, as fast as a socket sends them: no rate falls, and
/// messages arrive. The CNPs come to the same socket as the sender's acknowledgements.
#[test]
fn a_flood_of_forged_cnps_slows_no_queue_pair_down() {
    let a = Node::open(address(45, 7, 0), LEN);
    let b = Node::open(address(45, 7, 1), LEN);
    let (qpn, _) = connect(&a, &b, &attr());
    let stranger = Stranger::new(address(45, 7, 2), ROCE_V2_PORT, &a);
    let forge = |qpn| stranger.packet(cnp::headers(qpn, PKEY_DEFAULT), &[]);
    let mut damaged = forge(qpn);
    *damaged.last_mut().unwrap() ^= 1;
    let unknown = Qpn::new(qpn.value() ^ 0x12_0000);
    let forged = [forge(qpn), forge(unknown), forge(Qpn::GSI), damaged];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                forged.iter().for_each(|packet| stranger.send(packet));
            }
        });
        let over = Over(&stop);
        let started = Instant::now();
        let mut messages = 0;
        // The kernel drops acknowledgements as well when the buffer is full, and then a timer has
        // to expire.
        while messages < 20 || a.count(Counter::RpCnpIgnored) < 1_000 {
            a.post(qpn, 1, b.remote(0).write(), a.sge(0, 64 << 10));
            a.succeed(1);
            messages += 1;
            assert!(started.elapsed() < PATIENCE, "{messages} messages");
        }
        drop(over);
        let ignored = a.count(Counter::RpCnpIgnored);
        eprintln!("{messages} messages beside {ignored} CNPs and more");
        assert!(a.count(Counter::RxIcrcEncapsulated) > 0);
        //= F13: timeouts count in this counter as well.
        let timeouts = a.count(Counter::RoceSlowRestartCnps);
        assert_eq!(a.count(Counter::RpCnpHandled), timeouts);
    });
    let now = a.device.now();
    assert_eq!(a.device.with(|hca| hca.rate_limit(qpn, now)), None);
}

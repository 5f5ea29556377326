//! Processes that share a port share the time of its last CNP.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_device::{
    AccessFlags, Counter, CounterSlab, Data, DeviceState, Function, Hca, HcaConfig, Identity,
    LocalSettings, MappedState, Outgoing, Personality, Received, SendWr, Settings, Span, Time,
    VfBlock,
};
use ferroce_wire::{Deth, Headers, Opcode, Psn, Qpn};

use super::{mark, set};
use ferroce_testing::{A, B, Side, World, attr};

const QKEY: u32 = 0x1234_5678;
const INTERVAL_US: u64 = 50;

/// A card as its processes map it.
struct Card {
    memory: MappedState,
    store: &'static LocalSettings,
}

impl Card {
    fn new() -> Self {
        let settings = Arc::new(Settings::new(Personality::default()));
        let store: &'static LocalSettings = Box::leak(Box::new(LocalSettings::new(settings)));
        let memory = MappedState {
            generation: store.generation_cell(),
            block: Box::leak(Box::default()),
            vfs: Box::leak(Box::new([VfBlock::default()])),
            slabs: slabs(),
            errors: Box::leak(Box::default()),
        };
        Self { memory, store }
    }

    fn state(&self, slot: u8) -> DeviceState {
        self.function(slot, Function::default())
    }

    fn function(&self, slot: u8, function: Function) -> DeviceState {
        let (store, identity) = (Arc::new(self.store), Identity::default());
        DeviceState::mapped(self.memory, store, function, slot, identity).unwrap()
    }

    /// The device of a process.
    fn process(&self, slot: u8) -> Hca {
        Hca::with_state(HcaConfig::default(), self.state(slot))
    }
}

fn slabs() -> &'static [CounterSlab] {
    Vec::leak((0..9).map(|_| CounterSlab::default()).collect())
}

/// A process's queue pair for datagrams.
struct Listener {
    side: Side,
    qpn: Qpn,
}

impl Listener {
    fn new(hca: Hca) -> Self {
        let mut side = Side::on(1, hca);
        let qpn = side.create_ud(QKEY);
        Self { side, qpn }
    }

    /// How many CNPs answer a marked datagram of a sender.
    fn hear(&mut self, now: Time, (source, src_qp): (IpAddr, Qpn)) -> usize {
        let headers = Headers::datagram(Deth { qkey: QKEY, src_qp }, None);
        let received = Received {
            source,
            dest: self.side.address,
            traffic_class: 0b11,
            sl: 0,
            headers: &headers.to(self.qpn, Psn::ZERO),
            data: Data::Length(0),
            port: 1,
        };
        let hca = &mut self.side.hca;
        hca.handle_packet(now, &received);
        let packets = std::iter::from_fn(|| hca.poll_transmit(now));
        let is_cnp = |packet: &Outgoing| packet.headers.opcode() == Opcode::Cnp;
        packets.filter(is_cnp).count()
    }
}

fn sender(last: u8) -> (IpAddr, Qpn) {
    ([10, 0, 0, last].into(), Qpn::new(0x100))
}

/// The CNPs that processes send in a millisecond in which each gets a marked packet every
/// microsecond.
fn cnps_of(processes: Vec<Hca>) -> usize {
    let mut listeners: Vec<_> = processes.into_iter().map(Listener::new).collect();
    set(
        &listeners[0].side.hca,
        &[&format!("min_time_between_cnps={INTERVAL_US}")],
    );
    let mut cnps = 0;
    for us in 0..1_000 {
        let now = Time::from_nanos(7_000_000 + us * 1_000);
        for (listener, last) in listeners.iter_mut().zip(1..) {
            cnps += listener.hear(now, sender(last));
        }
    }
    cnps
}

#[test]
fn many_processes_send_as_many_cnps_as_one() {
    let alone = cnps_of(vec![Hca::new(HcaConfig::default())]);
    assert_eq!(alone, 1_000 / INTERVAL_US as usize);
    for count in [1, 2, 8] {
        let card = Card::new();
        let processes = (1..=count).map(|slot| card.process(slot)).collect();
        assert_eq!(cnps_of(processes), alone, "{count} processes");
        let counted = card.state(0).counter(Counter::NpCnpSent);
        assert_eq!(counted, alone as u64, "{count} processes");
    }
}

/// A port is that of the card, whichever of its functions use it.
#[test]
fn functions_of_a_card_share_its_port() {
    let card = Card::new();
    let vf = Function::Vf {
        index: 0,
        pf: "fr1".to_owned(),
    };
    let states = [
        card.function(1, Function::Pf { vfs: 1 }),
        card.function(2, vf),
    ];
    let hcas = states.map(|state| Hca::with_state(HcaConfig::default(), state));
    assert_eq!(cnps_of(hcas.into()), 1_000 / INTERVAL_US as usize);
}

#[test]
fn a_process_that_ends_leaves_its_interval_and_no_lock() {
    let card = Card::new();
    let now = Time::from_nanos(1_000_000);
    let mut first = Listener::new(card.process(1));
    let mut second = Listener::new(card.process(2));
    assert_eq!(first.hear(now, sender(1)), 1);
    drop(first);
    let default = Span::from_micros(4);
    let early = now.after(default).before(Span::from_nanos(1));
    assert_eq!(second.hear(early, sender(1)), 0);
    assert_eq!(second.hear(now.after(default), sender(1)), 1);
}

/// A machine that has been started anew counts its time from the beginning.
#[test]
fn a_time_from_before_a_restart_does_not_hold_cnps_back() {
    let card = Card::new();
    let mut process = Listener::new(card.process(1));
    let before = Time::from_nanos(3_600_000_000_000);
    assert_eq!(process.hear(before, sender(1)), 1);
    let after = Time::from_nanos(30_000_000_000);
    assert_eq!(process.hear(after, sender(1)), 1);
    assert_eq!(process.hear(after, sender(1)), 0);
}

#[test]
fn per_flow_a_sender_s_interval_covers_all_processes() {
    let card = Card::new();
    let [mut a, mut b] = [1, 2].map(|slot| Listener::new(card.process(slot)));
    set(&a.side.hca, &["ROCE_CC_CNP_MODERATION=2"]);
    let now = Time::from_nanos(1_000_000);
    assert_eq!(a.hear(now, sender(1)), 1);
    assert_eq!(b.hear(now, sender(1)), 0);
    assert_eq!(b.hear(now, sender(2)), 1);
}

/// The CNPs of two processes' connected queue pairs in the time of one interval.
fn cnps_of_connections(moderation: &str) -> u64 {
    let card = Card::new();
    let mut sent = 0;
    for slot in [1, 2] {
        let sides = [
            Side::on(1, Hca::new(HcaConfig::default())),
            Side::on(2, card.process(slot)),
        ];
        let mut pair = World::of(sides);
        let hca = &pair.sides[B].hca;
        set(hca, &[moderation, "min_time_between_cnps=4095"]);
        mark(&mut pair, B, 1.0);
        let qpns = [A, B].map(|side| pair.sides[side].create_qp());
        pair.connect(qpns, attr());
        let region = pair.sides[B].register(4096, AccessFlags::all());
        let local = pair.sides[A].register(4096, AccessFlags::empty());
        for wr_id in 0..10 {
            let write = SendWr::new(wr_id, region.write(), local.whole());
            pair.post(A, qpns[A], write);
        }
        pair.run_for(100_000);
        assert!(pair.count(B, Counter::NpEcnMarkedRocePackets) >= 10);
        sent = pair.count(B, Counter::NpCnpSent);
    }
    sent
}

#[test]
fn connections_share_the_port_s_interval_but_no_flow_s() {
    assert_eq!(cnps_of_connections("ROCE_CC_CNP_MODERATION=1"), 1);
    assert_eq!(cnps_of_connections("ROCE_CC_CNP_MODERATION=2"), 2);
}

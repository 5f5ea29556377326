//! The wire between two devices, and time.

use std::collections::BTreeMap;

use ferroce_hca::{
    AccessFlags, Counter, Data, Mtu, Outgoing, QpAttr, QpState, QpType, Received, Span, Time,
};
use ferroce_wire::{ICRC_LEN, IcrcFlow, IcrcVerifier, IdPolicy, IpPair, Packet, Psn, ROCE_V2_PORT};

use super::side::{QKEY, Side};
use crate::Cursor;

/// From one side to the other.
const DELAY_NS: u64 = 2000;
/// Packets one input may set off. Real ones are bounded by window, responder resources and memory.
const DRAIN_MAX: usize = 50_000;
/// Moments lived through in one run, and in the end.
const MOMENTS_MAX: usize = 4_000;
/// Packets under way may be older by this many PSNs: a copy of one is still a duplicate, and no new one
/// is taken for it.
const OUTLIVED_MAX: u32 = (1 << 23) - (1 << 16);
/// How often a device may want attention at the same moment.
const CALLS_PER_MOMENT: usize = 64;

/// A packet on the wire.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) to: usize,
    pub(super) traffic_class: u8,
    pub(super) bytes: Vec<u8>,
}

/// What the wire does to the next packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mischief {
    pub(super) drop: u8,
    pub(super) duplicate: u8,
    pub(super) delay: u8,
    pub(super) delay_ns: u64,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) sides: [Side; 2],
    pub(super) flights: BTreeMap<(Time, u64), Flight>,
    order: u64,
    pub(super) mischief: Mischief,
    /// Nothing arrives at this side any more.
    pub(super) deaf: [bool; 2],
    /// The host of this side cannot send: it takes no packets from its device.
    pub(super) blocked: [bool; 2],
    /// By how many PSNs the connection was made older while packets were under way.
    outlived: u32,
    /// Forged packets, wrong keys, changes at any time: everything goes.
    pub(super) hostile: bool,
    moments_left: usize,
}

impl World {
    pub(super) fn new(input: &mut Cursor<'_>) -> Self {
        let first = input.u8();
        let hostile = first % 2 == 1;
        let types = types(first / 2 % 8);
        let sides = [0, 1].map(|index| Side::new(index, types[usize::from(index)], input));
        let mut world = Self {
            now: Time::from_nanos(1_000_000),
            sides,
            flights: BTreeMap::new(),
            order: 0,
            mischief: Mischief::default(),
            deaf: [false; 2],
            blocked: [false; 2],
            outlived: 0,
            hostile,
            moments_left: MOMENTS_MAX,
        };
        world.connect(input);
        world
    }

    /// Brings both queue pairs to RTS, towards each other.
    pub(super) fn connect(&mut self, input: &mut Cursor<'_>) {
        let psns = [0u32; 2].map(|_| {
            let psn = input.pick(&[0, 0x7f_fffe, 0x80_0000, 0xff_fff0]);
            Psn::new(psn)
        });
        let path_mtu = input.pick(&[Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096]);
        for own in 0..2 {
            let peer = 1 - own;
            // The first choice of each is the one that works.
            let mut some = |choices: [u8; 4]| match self.hostile {
                true => input.pick(&choices),
                false if input.one_in(8) => choices[1],
                false => choices[0],
            };
            let attr = QpAttr {
                path_mtu,
                qkey: QKEY,
                dest_qpn: self.sides[peer].qpn,
                rq_psn: psns[peer],
                sq_psn: psns[own],
                max_rd_atomic: some([16, 1, 2, 0]),
                max_dest_rd_atomic: some([16, 16, 16, 1]),
                min_rnr_timer: some([1, 12, 31, 0]),
                timeout: some([14, 1, 18, 0]),
                retry_cnt: some([7, 1, 3, 0]),
                rnr_retry: some([7, 6, 1, 0]),
                access: match some([0, 0, 0, 1]) {
                    0 => AccessFlags::all(),
                    _ => AccessFlags::REMOTE_READ,
                },
                ..QpAttr::default()
            };
            let dest = self.sides[peer].address;
            self.sides[own].connect(dest, &attr);
        }
    }

    /// Whether one of the queue pairs is in error.
    pub(super) fn has_failed(&self) -> bool {
        let failed = |side: &Side| {
            let qp = side.hca.qp(side.qpn);
            qp.is_some_and(|qp| matches!(qp.state(), QpState::Err | QpState::Sqe))
        };
        self.sides.iter().any(failed)
    }

    fn flow(&self, to: usize) -> IcrcFlow {
        let ip = IpPair::new(self.sides[1 - to].address, self.sides[to].address);
        IcrcFlow::new(ip.expect("of one family"), 0xc000, ROCE_V2_PORT)
    }

    /// Writes a right ICRC over whatever stands at the end.
    pub(super) fn seal(&self, to: usize, bytes: &mut [u8]) {
        let flow = self.flow(to);
        if let Some((body, icrc)) = bytes.split_last_chunk_mut::<ICRC_LEN>() {
            *icrc = flow.compute(0, body).to_le_bytes();
        }
    }

    pub(super) fn launch(&mut self, at: Time, flight: Flight) {
        self.order += 1;
        self.flights.insert((at, self.order), flight);
    }

    /// Sends everything that the devices have to send, and checks what must hold then.
    pub(super) fn settle(&mut self) {
        for from in 0..2 {
            self.transmit(from);
        }
        for index in 0..2 {
            let [a, b] = &mut self.sides;
            let (side, peer) = if index == 0 { (a, b) } else { (b, a) };
            side.poll_completions();
            side.check(self.now, self.blocked[index]);
            if !self.hostile {
                side.ledger.compare_arrivals(&peer.ledger, side.qp_type());
            }
        }
    }

    fn transmit(&mut self, from: usize) {
        if self.blocked[from] {
            return;
        }
        for _ in 0..DRAIN_MAX {
            let Some(packet) = self.sides[from].hca.poll_transmit(self.now) else {
                return;
            };
            self.send(from, &packet);
        }
        panic!("a device never stops sending");
    }

    fn send(&mut self, from: usize, packet: &Outgoing) {
        let to = 1 - from;
        let mut payload = vec![0; packet.transmit.payload_len as usize];
        assert!(
            self.sides[from].hca.gather(packet, &mut payload),
            "the payload of a packet just made is not there: {packet:?}"
        );
        let mut bytes =
            vec![0; packet.transmit.headers.header_len() + payload.len() + 3 + ICRC_LEN];
        let len = packet
            .transmit
            .headers
            .emit_packet(&payload, &self.flow(to), 0, &mut bytes)
            .expect("a device makes packets that can be written");
        bytes.truncate(len);
        if let Err(error) = Packet::new_checked(&bytes) {
            panic!("a device made a packet that does not parse: {error}");
        }
        if let Some(bit) = packet.corrupt_bit {
            let bit = bit as usize % (8 * len);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if self.deaf[to] || packet.path.dest != self.sides[to].address {
            return;
        }
        if take_one(&mut self.mischief.drop) {
            return;
        }
        let mut at = self.now.after(Span::from_nanos(DELAY_NS));
        let flight = Flight {
            to,
            traffic_class: packet.path.traffic_class,
            bytes,
        };
        if take_one(&mut self.mischief.duplicate) {
            self.launch(at, flight.clone());
        }
        if take_one(&mut self.mischief.delay) {
            at = at.after(Span::from_nanos(self.mischief.delay_ns));
        }
        self.launch(at, flight);
    }

    fn deliver(&mut self, flight: &Flight) {
        let to = flight.to;
        let mut verifier = IcrcVerifier::new(IdPolicy::Exact);
        if self.deaf[to] || !verifier.verify(&self.flow(to), 0, &flight.bytes).is_ok() {
            return;
        }
        let Ok(packet) = Packet::new_checked(&flight.bytes) else {
            return;
        };
        self.deliver_packet(to, flight.traffic_class, &packet);
    }

    pub(super) fn deliver_packet(&mut self, to: usize, traffic_class: u8, packet: &Packet<'_>) {
        let received = Received {
            source: self.sides[1 - to].address,
            dest: self.sides[to].address,
            traffic_class,
            headers: packet.headers(),
            data: Data::Bytes(packet.payload()),
        };
        self.sides[to].hca.handle_packet(self.now, &received);
    }

    fn next_moment(&self) -> Option<Time> {
        let flight = self.flights.keys().next().map(|(at, _)| *at);
        let timers = self
            .sides
            .iter()
            .zip(self.blocked)
            .filter_map(|(side, blocked)| {
                let at = side.hca.poll_timeout();
                // What its link would release, its host would send if it could.
                at.filter(|at| !blocked || *at > self.now)
            });
        timers.chain(flight).min()
    }

    /// Makes the connection older by so many messages from one side to the other, as far as both agree
    /// on where it is. Copies of packets live to see it, but not so long that a PSN comes again.
    pub(super) fn age(&mut self, from: usize, messages: u32) {
        let qps = [from, 1 - from].map(|index| {
            let side = &self.sides[index];
            side.hca.qp(side.qpn).expect("it exists")
        });
        let [own, peer] = qps;
        let agreed = own.next_psn() == peer.expected_psn();
        let is_idle = qps
            .iter()
            .all(|qp| qp.in_flight() == 0 && !qp.has_answers());
        if !agreed || !is_idle || !self.fast_forward(from, 0) {
            return;
        }
        self.outlived = self.outlived.saturating_add(messages);
        if self.outlived > OUTLIVED_MAX {
            self.flights.clear();
            self.outlived = 0;
        }
        assert!(self.fast_forward(from, messages));
    }

    fn fast_forward(&mut self, from: usize, messages: u32) -> bool {
        let [a, b] = &mut self.sides;
        let (own, peer) = if from == 0 { (a, b) } else { (b, a) };
        // Both can, or neither does.
        let can = own.hca.fast_forward(own.qpn, 0, 0) && peer.hca.fast_forward(peer.qpn, 0, 0);
        can && own.hca.fast_forward(own.qpn, messages, 0)
            && peer.hca.fast_forward(peer.qpn, 0, messages)
    }

    /// Lives through everything up to `until`, as far as the budget reaches.
    pub(super) fn run_until(&mut self, until: Time) {
        while let Some(next) = self.next_moment().filter(|next| *next <= until) {
            if self.moments_left == 0 {
                return;
            }
            self.moments_left -= 1;
            self.now = self.now.max(next);
            self.live();
        }
        self.now = self.now.max(until);
    }

    fn live(&mut self) {
        while let Some(entry) = self.flights.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let flight = entry.remove();
            self.deliver(&flight);
        }
        for index in 0..2 {
            let mut calls = 0;
            while let Some(at) = self.sides[index].hca.poll_timeout()
                && at <= self.now
            {
                self.sides[index].hca.handle_timeout(self.now);
                self.transmit(index);
                if self.blocked[index] {
                    break;
                }
                calls += 1;
                assert!(calls < CALLS_PER_MOMENT, "time stands still");
            }
        }
        self.settle();
    }

    /// The wire is cut. Whoever waits for an answer must learn of it in time.
    pub(super) fn finish(&mut self) {
        self.blocked = [false; 2];
        self.settle();
        self.deaf = [true; 2];
        self.flights.clear();
        self.moments_left = MOMENTS_MAX;
        let limits = self.outlast();
        if self.moments_left > 0 {
            for (side, limit) in self.sides.iter().zip(limits) {
                let qp = side.hca.qp(side.qpn).expect("it exists");
                let at_work = matches!(qp.state(), QpState::Rts | QpState::Sqd);
                assert!(
                    limit.is_none() || !at_work || qp.in_flight() == 0,
                    "waits for a dead peer longer than its total timeout, {limit:?}: {qp:?}"
                );
            }
        }
        for side in &self.sides {
            side.audit_memory();
            for row in Counter::TABLE {
                let _ = side.hca.state().counter(row.counter);
            }
        }
    }

    /// Waits until both must have given up, and no packet has come out of a slow link meanwhile.
    /// Returns when that was.
    fn outlast(&mut self) -> [Option<Time>; 2] {
        let packets = |side: &Side| side.hca.state().counter(Counter::RdmaRxPackets);
        loop {
            let before = self.sides.each_ref().map(packets);
            let limits = [0, 1].map(|index| self.patience(index));
            let last = limits.iter().flatten().max().copied();
            self.run_until(last.unwrap_or(self.now));
            if self.moments_left == 0 || self.sides.each_ref().map(packets) == before {
                return limits;
            }
        }
    }

    /// When a queue pair must have given up on a silent peer at the latest; `None` if it need not.
    fn patience(&self, index: usize) -> Option<Time> {
        let side = &self.sides[index];
        let qp = side.hca.qp(side.qpn).expect("it exists");
        let policy = side.hca.policy();
        let total = policy.total(qp.timeouts())?;
        let ack_timeout = policy.ack_timeout(qp.timeouts())?;
        // The timer that runs now may be of an earlier policy, or wait for a receive request.
        let from = qp.poll_timeout().unwrap_or(self.now).max(self.now);
        Some(
            from.after(total * 2 + ack_timeout)
                .after(Span::from_secs(1)),
        )
    }
}

/// The types of the two queue pairs; most inputs have RC.
fn types(choice: u8) -> [QpType; 2] {
    match choice {
        5 => [QpType::Uc; 2],
        6 => [QpType::Ud; 2],
        7 => [QpType::XrcSend, QpType::XrcRecv],
        _ => [QpType::Rc; 2],
    }
}

/// Takes one of `n`, if there is one.
fn take_one(n: &mut u8) -> bool {
    let any = *n > 0;
    *n = n.saturating_sub(1);
    any
}

//! A [`Pair`] of queue pairs on a network of the fabric, with virtual time.
//!
//! Nothing here sleeps: [`Pair::run`] goes from one wake-up to the next. Every packet passes
//! `rules`, which may lose, repeat or delay it, and stays in [`Pair::log`].
//!
//! The network, its rules and seeds are those of `ferroce_testing`. The rest is here because it
//! works below the device: it drives a [`Qp`] itself and stands in for the device ([`TestHost`]).
#![allow(dead_code, reason = "each test crate uses a part")]
#![allow(
    unreachable_pub,
    missing_debug_implementations,
    reason = "a library in all but name"
)]

mod host;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use ferroce_adp::{Policy, PolicyKind};
use ferroce_testing::flight::rejuvenate;
use ferroce_testing::{Frame, Network, Parcel, Stations, live};
use ferroce_transport::{
    AccessFlags, Attr, Completion, Counter, Data, Mtu, Outgoing, Payload, Qp, QpAttr, QpCap,
    QpConfig, QpModify, QpState, QpType, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge, Sges,
    Span, Time, WcStatus, WorkQueue,
};
use ferroce_wire::{Headers, NakCode, Opcode, Psn, Qpn, Syndrome};

pub use ferroce_testing::{Dice, Fate};
pub use host::{Mr, TestHost};

/// READs and atomics that a device allows a queue pair to have outstanding.
const RD_ATOMIC_MAX: u8 = 16;

/// One of the two sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Id {
    A,
    B,
}
pub use Id::{A, B};

impl Id {
    pub fn peer(self) -> Self {
        match self {
            A => B,
            B => A,
        }
    }

    fn of(host: u32) -> Self {
        [A, B][host as usize]
    }
}

/// How one side repeats what is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// Everything from there on.
    GoBack,
    /// Selectively, whatever the peer does.
    Forced,
    /// Selectively, as both have agreed.
    Agreed,
    /// Selectively, and its packets may overtake each other, whatever the peer does.
    RoutedForced,
    /// The same, as both have agreed.
    RoutedAgreed,
}

/// The parameters of a pair.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Type of both queue pairs, except that the peer of XRC_SEND is XRC_RECV.
    pub qp_type: QpType,
    pub mtu: Mtu,
    /// First PSN of A's requests and of B's.
    pub psn: [u32; 2],
    pub window_bytes: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub extended_retry_count: Option<u8>,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub rd_atomic: u8,
    pub dest_rd_atomic: u8,
    pub access: AccessFlags,
    pub srq: bool,
    /// How A repeats, and how B does.
    pub repeat: [Repeat; 2],
    pub signal_all: bool,
    pub cap: QpCap,
    pub policy: Policy,
    /// In one direction.
    pub latency_ns: u64,
    /// Between two packets of one side.
    pub gap_ns: u64,
    /// Whether a packet takes `gap_ns` to leave, and its timer starts only then.
    pub has_port: bool,
    /// Bytes of each side's local and remote memory.
    pub memory_bytes: u32,
    /// The test fails if it takes more wake-ups than this.
    pub steps: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            mtu: Mtu::Mtu1024,
            psn: [0xff_fff0, 77],
            window_bytes: 64 << 10,
            timeout: 14,
            retry_cnt: 7,
            extended_retry_count: None,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 4,
            dest_rd_atomic: 4,
            access: AccessFlags::all(),
            srq: false,
            repeat: [Repeat::GoBack; 2],
            signal_all: false,
            cap: QpCap::default(),
            policy: Policy::new(PolicyKind::IB),
            latency_ns: 1_000,
            gap_ns: 0,
            has_port: false,
            memory_bytes: 64 << 10,
            steps: 2_000_000,
        }
    }
}

impl Setup {
    fn attr(&self, id: Id) -> QpAttr {
        QpAttr {
            access: self.access,
            path_mtu: self.mtu,
            dest_qpn: qpn(id.peer()),
            rq_psn: Psn::new(self.psn[id.peer() as usize]),
            sq_psn: Psn::new(self.psn[id as usize]),
            max_rd_atomic: self.rd_atomic,
            max_dest_rd_atomic: self.dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            ..QpAttr::default()
        }
    }

    fn qp_type(&self, id: Id) -> QpType {
        match (self.qp_type, id) {
            (QpType::XrcSend, B) => QpType::XrcRecv,
            (qp_type, _) => qp_type,
        }
    }

    fn side(&self, id: Id) -> Side {
        let mut host = TestHost::new(self.policy, self.srq.then_some(self.cap));
        host.port = self.has_port.then_some(Span::from_nanos(self.gap_ns));
        let repeat = self.repeat[id as usize];
        let config = QpConfig {
            qpn: qpn(id),
            qp_type: self.qp_type(id),
            port_mtu: Mtu::Mtu4096,
            cap: self.cap,
            srq: self.srq,
            signal_all: self.signal_all,
            window_bytes: self.window_bytes,
            read_bytes: 128 << 10,
            ack_every: None,
            in_bursts: true,
            extended_retry_count: self.extended_retry_count,
            incarnation: 0,
            selective_repeat: repeat == Repeat::Forced,
            adaptive_routing: matches!(repeat, Repeat::RoutedForced | Repeat::RoutedAgreed),
        };
        let mut qp = Qp::new(config, &self.policy);
        if matches!(repeat, Repeat::Agreed | Repeat::RoutedAgreed) {
            qp.agree_on_selective_repeat(true);
        }
        Side {
            qp,
            local: host.register(self.memory_bytes, AccessFlags::LOCAL_WRITE),
            remote: host.register(self.memory_bytes, AccessFlags::all()),
            host,
            ready: false,
            free_at: Time::ZERO,
            stalled_until: Time::ZERO,
            was_stalled: false,
            socket: VecDeque::new(),
        }
    }

    /// Two queue pairs in RESET.
    pub fn build(self) -> Pair {
        Pair {
            sides: [self.side(A), self.side(B)],
            now: Time::from_nanos(5_000_000),
            log: Vec::new(),
            steps_left: self.steps,
            net: Some(Box::new(Network::plain(
                2,
                Span::from_nanos(self.latency_ns),
            ))),
            aged: [0; 2],
            young: None,
            setup: self,
        }
    }

    /// Two queue pairs in RTS.
    pub fn connect(self) -> Pair {
        let mut pair = self.build();
        for id in [A, B] {
            pair.connect(id);
        }
        pair
    }
}

fn qpn(id: Id) -> Qpn {
    Qpn::new(0x11 + id as u32)
}

/// One end: a queue pair, the device around it, and some memory.
#[derive(Debug)]
pub struct Side {
    pub qp: Qp,
    pub host: TestHost,
    /// For the side's own work requests.
    pub local: Mr,
    /// For the peer's work requests.
    pub remote: Mr,
    /// It may have something to send from this time on.
    ready: bool,
    free_at: Time,
    /// Its thread gets no processor before this time.
    stalled_until: Time,
    /// It has not run since that time.
    was_stalled: bool,
    /// Packets that have arrived and were not taken.
    socket: VecDeque<Packet>,
}

/// A packet on the wire.
#[derive(Clone, PartialEq, Debug)]
pub struct Packet {
    pub from: Id,
    pub at: Time,
    pub headers: Headers,
    pub payload: Vec<u8>,
}

impl Packet {
    pub fn opcode(&self) -> Opcode {
        self.headers.opcode()
    }

    pub fn is_request(&self) -> bool {
        self.opcode().is_request()
    }
}

impl Parcel for Packet {
    fn empty() -> Self {
        Self {
            from: A,
            at: Time::ZERO,
            headers: Outgoing::empty().headers,
            payload: Vec::new(),
        }
    }

    fn corrupt(&mut self, _: u32) {
        unreachable!("the network loses what it spoils");
    }
}

pub struct Pair {
    pub sides: [Side; 2],
    pub now: Time,
    /// Every packet ever sent, including lost ones.
    pub log: Vec<Packet>,
    steps_left: u64,
    /// Taken out while the network is running.
    net: Option<Box<Network<Packet>>>,
    /// By how many messages the PSNs of A, and of B, were advanced.
    aged: [u32; 2],
    /// If wanted, the log as it would be without that.
    pub young: Option<Vec<Packet>>,
    setup: Setup,
}

impl Index<Id> for Pair {
    type Output = Side;

    fn index(&self, id: Id) -> &Side {
        &self.sides[id as usize]
    }
}

impl IndexMut<Id> for Pair {
    fn index_mut(&mut self, id: Id) -> &mut Side {
        &mut self.sides[id as usize]
    }
}

/// The wire.
impl Pair {
    /// The network between the two: the packets in flight and the rules for them.
    pub fn net(&mut self) -> &mut Network<Packet> {
        self.net.as_mut().expect("it lives through nothing")
    }

    /// Applies `fate` to the first `times` packets that match.
    pub fn rule(
        &mut self,
        times: usize,
        fate: Fate,
        matches: impl Fn(&Packet) -> bool + Send + 'static,
    ) -> &mut Self {
        self.net().rules.strike(times, fate, matches);
        self
    }

    /// Loses the next `times` packets with this opcode.
    pub fn lose(&mut self, times: usize, opcode: Opcode) -> &mut Self {
        self.rule(times, Fate::Lost, move |p| p.opcode() == opcode)
    }

    /// Loses the next `times` packets with this PSN, counted from the start of the requester.
    pub fn lose_psn(&mut self, times: usize, from: Id, requests: bool, index: u32) -> &mut Self {
        let requester = if requests { from } else { from.peer() };
        let psn = Psn::new(self.setup.psn[requester as usize]).wrapping_add(index);
        self.rule(times, Fate::Lost, move |p| {
            p.from == from && p.is_request() == requests && p.headers.psn == psn
        })
    }

    /// Cuts the wire from this side.
    pub fn silence(&mut self, from: Id) -> &mut Self {
        self.rule(usize::MAX, Fate::Lost, move |p| p.from == from)
    }

    pub fn heal(&mut self) {
        self.net().rules.clear();
    }

    fn admit(&mut self, packet: Packet) {
        let young = self.rejuvenated(&packet);
        if let Some(log) = &mut self.young {
            log.push(young);
        }
        self.log.push(packet);
    }

    /// The packets that this side has sent, one line each: the operation, and the PSN counted from
    /// the first one of the requester.
    pub fn sent(&self, from: Id) -> Vec<String> {
        let line = |p: &Packet| {
            let requester = if p.is_request() { from } else { from.peer() };
            let start = Psn::new(self.setup.psn[requester as usize]);
            format!("{} {}", describe(&p.headers), p.headers.psn.since(start))
        };
        self.log
            .iter()
            .filter(|p| p.from == from)
            .map(line)
            .collect()
    }

    pub fn count_sent(&self, from: Id, matches: impl Fn(&Packet) -> bool) -> usize {
        self.log
            .iter()
            .filter(|p| p.from == from && matches(p))
            .count()
    }
}

fn describe(headers: &Headers) -> String {
    match (
        headers.opcode().operation(),
        headers.aeth().map(|aeth| aeth.syndrome),
    ) {
        (Opcode::RcAcknowledge, Some(syndrome)) => match syndrome {
            Syndrome::Ack { .. } => "ACK".into(),
            Syndrome::Rnr { .. } => "RNR".into(),
            Syndrome::Nak(NakCode::SequenceError) => "NAK sequence".into(),
            Syndrome::Nak(NakCode::InvalidRequest) => "NAK invalid".into(),
            Syndrome::Nak(NakCode::RemoteAccess) => "NAK access".into(),
            Syndrome::Nak(NakCode::RemoteOperational) => "NAK operational".into(),
            other => format!("{other:?}"),
        },
        (opcode, _) => opcode.name().split_once(' ').unwrap().1.into(), // without the service
    }
}

/// Time.
impl Pair {
    /// Runs until nothing is on the wire, no timer runs and neither side has anything to send.
    pub fn run(&mut self) {
        while self.step(None) {}
    }

    /// Runs for this time.
    pub fn run_for(&mut self, ns: u64) {
        let end = self.now.after(Span::from_nanos(ns));
        while self.step(Some(end)) {}
        self.now = end;
    }

    /// Runs to the next wake-up, unless there is none (before `end`).
    pub fn step(&mut self, end: Option<Time>) -> bool {
        self.steps_left = self
            .steps_left
            .checked_sub(1)
            .expect("it never comes to rest");
        self.transmit();
        self.live(|net, pair| net.step(pair, end.unwrap_or(Time::NEVER)))
    }

    /// Runs the network with both sides.
    fn live<R>(&mut self, through: impl FnOnce(&mut Network<Packet>, &mut Self) -> R) -> R {
        live(self, |pair| (&mut pair.net, &mut pair.now), through)
    }

    /// Keeps the thread of this side from running for this time.
    pub fn stall(&mut self, id: Id, ns: u64) {
        self[id].stalled_until = self.now.after(Span::from_nanos(ns));
        self[id].was_stalled = true;
    }

    fn is_stalled(&self, id: Id) -> bool {
        self[id].stalled_until > self.now
    }

    /// Lets the timer expire if it is due.
    pub fn expire_due(&mut self, id: Id) {
        let now = self.now;
        if self.is_stalled(id) || self[id].qp.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        let side = &mut self[id];
        side.qp.handle_timeout(now, &mut side.host);
        side.ready = true;
    }

    /// Delivers a packet at once, without the wire.
    pub fn deliver(&mut self, to: Id, headers: &Headers, payload: &[u8]) {
        let now = self.now;
        let side = &mut self[to];
        side.qp
            .handle_packet(now, headers, Data::Bytes(payload), &mut side.host);
        side.ready = true;
    }

    /// Delivers a forged packet and lets the side answer.
    pub fn forge(&mut self, to: Id, headers: Headers, payload: &[u8]) {
        self.deliver(to, &headers, payload);
        self.transmit();
    }

    /// Lets both sides send what they have.
    pub fn transmit(&mut self) {
        self.live(|net, pair| {
            for id in [A, B] {
                net.kick(pair, id as u32);
            }
        });
    }

    fn packet(&self, from: Id, made: Outgoing) -> Packet {
        let (headers, payload_len) = (made.headers, u32::from(made.payload_len));
        let host = &self[from].host;
        let payload = match made.payload {
            Payload::Empty => Vec::new(),
            Payload::Memory(at) => host.gather(at, payload_len).to_vec(),
            Payload::Pieces(pieces) => {
                let pieces = pieces.iter().map(|(at, len)| host.gather(*at, *len));
                pieces.collect::<Vec<_>>().concat()
            }
            Payload::Carried(bytes) => bytes.to_vec(),
        };
        // Every packet of a queue pair must be well-formed.
        let written = headers.emit(payload.len(), &mut [0; 64]);
        written.expect("the payload suits the opcode");
        assert_eq!(payload.len(), payload_len as usize);
        assert!(payload_len <= self.setup.mtu.bytes());
        assert_eq!(headers.dest_qp, qpn(from.peer()));
        Packet {
            from,
            at: self.now,
            headers,
            payload,
        }
    }
}

/// Both ends of the network.
impl Stations<Packet> for Pair {
    fn transmit(&mut self, now: Time, host: u32, _: u8, packet: &mut Packet) -> Option<Frame> {
        self.now = now;
        let id = Id::of(host);
        if !self[id].ready || self[id].free_at > now || self.is_stalled(id) {
            return None;
        }
        let gap = Span::from_nanos(self.setup.gap_ns);
        let side = &mut self[id];
        let mut made = Outgoing::empty();
        side.ready = side.qp.poll_transmit(now, &mut side.host, &mut made);
        if !side.ready {
            return None;
        }
        side.free_at = now.after(gap);
        *packet = self.packet(id, made);
        self.admit(packet.clone());
        Some(Frame::new(host, id.peer() as u32, 0))
    }

    fn receive(&mut self, _: Time, host: u32, _: &Frame, packet: &Packet) {
        self[Id::of(host)].socket.push_back(packet.clone());
    }

    /// Takes the next packet, or all of them after a stall; then the timer may expire.
    fn expire(&mut self, now: Time, host: u32) {
        self.now = now;
        let id = Id::of(host);
        if self.is_stalled(id) {
            return;
        }
        let batch = match std::mem::take(&mut self[id].was_stalled) {
            true => usize::MAX,
            false => 1,
        };
        let mut taken = 0;
        while taken < batch
            && let Some(packet) = self[id].socket.pop_front()
        {
            self.deliver(id, &packet.headers, &packet.payload);
            taken += 1;
        }
        if self[id].socket.is_empty() && taken != 1 {
            self.expire_due(id);
        }
    }

    fn set_paused(&mut self, _: Time, _: u32, _: u8, _: u8) {}

    fn collect(&mut self, now: Time, host: u32) {
        self[Id::of(host)].qp.audit(now, RD_ATOMIC_MAX);
    }

    /// When a side's thread has something to do.
    fn next(&self, now: Time, host: u32) -> Option<Time> {
        let side = &self[Id::of(host)];
        let sends = side.ready.then_some(side.free_at);
        let takes = (!side.socket.is_empty()).then_some(now);
        let next = [side.qp.poll_timeout(), sends, takes].into_iter().flatten();
        Some(next.min()?.max(side.stalled_until))
    }

    fn wants_transmit(&self, _: u32, _: u8) -> bool {
        false
    }
}

/// Advancing PSNs.
impl Pair {
    /// Advances the connection by a number of one-packet messages of `id`, if nothing is in flight
    /// and neither side has anything left to send; otherwise does nothing. What may still be on the
    /// wire is lost.
    #[must_use]
    pub fn age(&mut self, id: Id, messages: u32) -> bool {
        let idle = |side: &Side| side.qp.can_age() && !side.qp.has_answers();
        let [qp, peer] = [id, id.peer()].map(|id| &self[id].qp);
        if !self.sides.iter().all(idle) || qp.next_psn() != peer.expected_psn() {
            return false;
        }
        assert!(self[id].qp.age(messages, 0));
        assert!(self[id.peer()].qp.age(0, messages));
        self.net().retain(|_, _| false);
        for side in &mut self.sides {
            side.socket.clear();
        }
        self.aged[id as usize] = self.aged[id as usize].wrapping_add(messages);
        true
    }

    /// A packet as it would be if its connection's PSNs had not been advanced.
    fn rejuvenated(&self, packet: &Packet) -> Packet {
        let mut packet = packet.clone();
        let requester = match packet.is_request() {
            true => packet.from,
            false => packet.from.peer(),
        };
        let age = self.aged[requester as usize];
        rejuvenate(&mut packet.headers, age);
        packet
    }
}

/// Verbs.
impl Pair {
    pub fn connect(&mut self, id: Id) {
        use QpState::{Init, Reset, Rtr, Rts};
        let (qp_type, attr) = (self.setup.qp_type(id), self.setup.attr(id));
        for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
            self.modify(id, &QpModify::step(qp_type, from, to, attr));
        }
    }

    pub fn attr(&self, id: Id) -> QpAttr {
        self.setup.attr(id)
    }

    pub fn modify(&mut self, id: Id, change: &QpModify) {
        let side = &mut self[id];
        side.qp.modify(change, &mut side.host).unwrap();
        side.ready = true;
    }

    /// Moves to a state that needs no attributes.
    pub fn move_to(&mut self, id: Id, state: QpState) {
        let change = QpModify::to(state, Attr::empty(), QpAttr::default());
        self.modify(id, &change);
    }

    pub fn post(&mut self, id: Id, mut wr: SendWr) {
        if self.setup.qp_type == QpType::XrcSend && wr.to == SendTo::Peer {
            wr.to = SendTo::Srq(self[id.peer()].host.srqn);
        }
        let side = &mut self[id];
        side.qp.post_send(wr, &mut side.host).unwrap();
        side.ready = true;
    }

    /// Posts a receive for the first `len` bytes of local memory.
    pub fn recv(&mut self, id: Id, wr_id: u64, len: u32) {
        let sge = self[id].local.part(0, len);
        self.recv_into(id, wr_id, &[sge]);
    }

    pub fn recv_into(&mut self, id: Id, wr_id: u64, sges: &[Sge]) {
        let sges = Sges::from_slice(sges);
        let side = &mut self[id];
        match &mut side.host.srq {
            Some(srq) => srq.post(RecvWr { wr_id, sges }).unwrap(),
            None => side
                .qp
                .post_recv(RecvWr { wr_id, sges }, &mut side.host)
                .unwrap(),
        }
    }

    /// Posts `op` with the first `len` bytes of local memory.
    pub fn op(&mut self, id: Id, wr_id: u64, op: SendOp, len: u32) {
        let sge = self[id].local.part(0, len);
        self.post(id, SendWr::new(wr_id, op, sge));
    }

    pub fn send(&mut self, id: Id, wr_id: u64, len: u32) {
        self.op(id, wr_id, SendOp::Send { imm: None }, len);
    }

    /// WRITE to the start of the peer's remote memory.
    pub fn write(&mut self, id: Id, wr_id: u64, len: u32) {
        let (va, rkey) = self.target(id);
        let imm = None;
        self.op(id, wr_id, SendOp::Write { va, rkey, imm }, len);
    }

    /// READ from the start of the peer's remote memory.
    pub fn read(&mut self, id: Id, wr_id: u64, len: u32) {
        let (va, rkey) = self.target(id);
        self.op(id, wr_id, SendOp::Read { va, rkey }, len);
    }

    /// Adds to the first 8 bytes of the peer's remote memory.
    pub fn fetch_add(&mut self, id: Id, wr_id: u64, add: u64) {
        let (va, rkey) = self.target(id);
        self.op(id, wr_id, SendOp::FetchAdd { va, rkey, add }, 8);
    }

    pub fn fenced(&self, id: Id, wr_id: u64, op: SendOp, len: u32) -> SendWr {
        let mut wr = SendWr::new(wr_id, op, self[id].local.part(0, len));
        wr.flags |= SendFlags::FENCE;
        wr
    }

    /// Address and key of the peer's remote memory.
    pub fn target(&self, id: Id) -> (u64, u32) {
        let mr = self[id.peer()].remote;
        (mr.va, mr.key)
    }
}

/// The outcome.
impl Pair {
    /// Takes the completions of one queue.
    pub fn completions(&mut self, id: Id, queue: WorkQueue) -> Vec<Completion> {
        let all = &mut self[id].host.completions;
        let (taken, kept) = std::mem::take(all)
            .into_iter()
            .partition(|(q, _)| *q == queue);
        *all = kept;
        let taken: Vec<(WorkQueue, Completion)> = taken;
        taken
            .into_iter()
            .map(|(_, completion)| completion)
            .collect()
    }

    fn statuses(&mut self, id: Id, queue: WorkQueue) -> Vec<(u64, WcStatus)> {
        self.completions(id, queue)
            .iter()
            .map(|c| (c.wr_id, c.status))
            .collect()
    }

    /// Takes the send completions: work request and status.
    pub fn sends(&mut self, id: Id) -> Vec<(u64, WcStatus)> {
        self.statuses(id, WorkQueue::Send)
    }

    /// Takes the receive completions: work request and status.
    pub fn recvs(&mut self, id: Id) -> Vec<(u64, WcStatus)> {
        self.statuses(id, WorkQueue::Recv)
    }

    /// Takes the send completions, which must be these, in order, and successful.
    #[track_caller]
    pub fn expect_sent(&mut self, id: Id, wr_ids: impl IntoIterator<Item = u64>) {
        let expected: Vec<_> = wr_ids.into_iter().map(ok).collect();
        assert_eq!(self.sends(id), expected);
    }

    /// Takes the receive completions, which must be these, in order, and successful.
    #[track_caller]
    pub fn expect_received(&mut self, id: Id, wr_ids: impl IntoIterator<Item = u64>) {
        let expected: Vec<_> = wr_ids.into_iter().map(ok).collect();
        assert_eq!(self.recvs(id), expected);
    }

    pub fn count(&self, id: Id, counter: Counter) -> u64 {
        self[id].host.counters[counter as usize]
    }

    pub fn bytes(&self, id: Id, sge: Sge) -> Vec<u8> {
        self[id].host.bytes(sge).to_vec()
    }

    /// The first `len` bytes of A's local memory and of B's remote memory are the same.
    #[track_caller]
    pub fn expect_same(&self, len: u32) {
        let local = self.bytes(A, self[A].local.part(0, len));
        let remote = self.bytes(B, self[B].remote.part(0, len));
        assert!(local == remote, "the bytes differ");
    }
}

fn ok(wr_id: u64) -> (u64, WcStatus) {
    (wr_id, WcStatus::Success)
}

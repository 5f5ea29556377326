//! Devices on links in memory, with virtual time.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_hca::{
    AccessFlags, Attr, Buffer, Completion, Counter, CqId, Data, Event, Hca, HcaConfig, HostProfile,
    Memory, MrInfo, Mtu, MwBind, MwType, Outgoing, Path, PdId, Personality, QpAttr, QpCap, QpInit,
    QpModify, QpState, QpType, Rate, Received, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge,
    Sges, Span, SrqId, SrqModify, Time, TimerExpiry, Window,
};
use ferroce_wire::{
    HEADERS_LEN_MAX, Headers, ICRC_LEN, IcrcFlow, IcrcVerifier, IdPolicy, IpPair, Opcode, Packet,
    Psn, Qpn, ROCE_V2_PORT,
};

use crate::socket::{Socket, truesize};
use crate::wire::{Rules, Wire};

/// The first device.
pub const A: usize = 0;
/// The second device.
pub const B: usize = 1;

/// One way.
pub const LATENCY_NS: u64 = 1_000;
/// Packets that one input may set off. Windows, responder resources and memory bound real ones.
const DRAIN_MAX: u32 = 1_000_000;
/// How often a device may want attention at the same moment.
const CALLS_PER_MOMENT: usize = 1_000;

/// A device whose timeouts are short, as the wire is.
pub fn config() -> HcaConfig {
    HcaConfig {
        personality: Personality {
            min_ack_timeout: 4,
            initial_exponent: Some(4),
            ..Personality::default()
        },
        trace_timers: true,
        ..HcaConfig::default()
    }
}

/// The same as a card with a port of so many Mb/s, which nobody's receive buffer limits.
pub fn card(mbps: u32) -> HcaConfig {
    HcaConfig {
        window: Window::Fixed(u32::MAX),
        total_window_bytes: u32::MAX,
        response_bytes: u32::MAX,
        // A few bytes for each device that a test makes.
        host: Box::leak(Box::new(HostProfile::card(Rate::from_mbps(mbps)))),
        ..config()
    }
}

/// Attributes of a queue pair that allow everything.
pub fn attr() -> QpAttr {
    QpAttr {
        access: AccessFlags::all(),
        path_mtu: Mtu::Mtu1024,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        timeout: 10,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    }
}

/// One device, what came out of it, and what a test keeps beside it.
#[derive(Debug)]
pub struct Side<T = ()> {
    /// The device.
    pub hca: Hca,
    /// Its address.
    pub address: IpAddr,
    /// A protection domain.
    pub pd: PdId,
    /// A completion queue, which is polled.
    pub cq: CqId,
    cqs: Vec<CqId>,
    next_va: u64,
    /// In the order in which they were polled.
    pub completions: Vec<Completion>,
    /// In the order in which they were polled.
    pub events: Vec<Event>,
    /// Packets and payload bytes that left the device.
    pub sent: (u64, u64),
    /// Those among them that the device's link damaged.
    pub damaged: u64,
    /// Packets given to the device.
    pub given: u64,
    /// Packets that came to it and did not survive the check of their ICRC.
    pub refused: u64,
    /// Nothing reaches this side any more.
    pub deaf: bool,
    /// Nothing that is from this side arrives any more.
    pub mute: bool,
    /// Its host cannot send: it takes no packets from the device.
    pub blocked: bool,
    /// What the test keeps.
    pub own: T,
}

/// A packet under way.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Which device sent it.
    pub from: usize,
    /// Which device it goes to.
    pub to: usize,
    /// Its destination, which may be a group.
    pub dest: IpAddr,
    /// Its traffic class.
    pub traffic_class: u8,
    /// The queue pair that it is for, if it was sent by a device.
    pub dest_qp: Option<Qpn>,
    /// What it is made of.
    pub content: Content,
    /// Bytes of a receive buffer that it takes.
    pub(crate) truesize: u64,
}

/// What a packet is made of.
#[derive(Clone, Debug)]
pub enum Content {
    /// Values.
    Parsed {
        /// Its headers.
        headers: Headers,
        /// Its payload, if packets carry bytes.
        payload: Vec<u8>,
        /// The length of its payload.
        payload_len: u32,
    },
    /// Bytes with an ICRC, which is checked on arrival.
    Bytes(Vec<u8>),
    /// It was damaged, and packets carry no bytes.
    Damaged,
}

impl Flight {
    /// Its payload, if it is there.
    pub fn payload(&self) -> &[u8] {
        match &self.content {
            Content::Parsed { payload, .. } => payload,
            _ => &[],
        }
    }
}

/// A packet when it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When its device handed it out.
    pub at: Time,
    /// When it had left the port.
    pub departure: Time,
    /// Which device sent it.
    pub from: usize,
    /// Its headers.
    pub headers: Headers,
    /// Its traffic class.
    pub traffic_class: u8,
    /// Its payload, if packets carry bytes.
    pub payload: Vec<u8>,
}

/// Devices, what is under way between them, and time.
#[derive(Debug)]
pub struct World<T = ()> {
    /// What time it is.
    pub now: Time,
    /// The devices.
    pub sides: Vec<Side<T>>,
    /// What is under way.
    pub wire: Wire<Flight>,
    /// What becomes of the packets.
    pub rules: Rules<Flight>,
    /// Where packets wait for the devices, by their numbers; without, they do not wait.
    pub sockets: Vec<Socket>,
    /// One way.
    pub latency_ns: u64,
    /// Moments between two audits of the devices.
    pub audit_every: u64,
    /// Packets carry bytes, not only lengths.
    pub carries_bytes: bool,
    /// Packets cross the wire as bytes, damaged or not.
    pub as_bytes: bool,
    /// Everything that the devices sent, wherever to, if that is wanted.
    pub log: Option<Vec<Sent>>,
    /// Moments lived through.
    pub moments: u64,
    /// When a packet left, for the last time.
    pub sent_at: Time,
    /// Everything that left the devices, as it would be if no connection had been made older.
    pub trace: Option<Vec<String>>,
    /// How much older connections are, by where their packets go: the device, the queue pair, and
    /// whether they are requests.
    ages: HashMap<(usize, Qpn, bool), u32>,
}

impl World {
    /// A device for each configuration.
    pub fn new(configs: impl IntoIterator<Item = HcaConfig>) -> Self {
        let sides = (1..).zip(configs);
        Self::of(sides.map(|(number, config)| Side::new(number, config)))
    }

    /// Two devices with a connected queue pair each.
    pub fn connected() -> (Self, [Qpn; 2]) {
        let mut pair = Self::new([config(), config()]);
        let qpns = [A, B].map(|id| pair.sides[id].create_qp());
        pair.connect(qpns, attr());
        (pair, qpns)
    }
}

impl<T> World<T> {
    /// Devices that there are.
    pub fn of(sides: impl IntoIterator<Item = Side<T>>) -> Self {
        let now = Time::from_nanos(1_000_000);
        Self {
            now,
            sides: sides.into_iter().collect(),
            wire: Wire::default(),
            rules: Rules::default(),
            sockets: Vec::new(),
            latency_ns: LATENCY_NS,
            audit_every: 16,
            carries_bytes: true,
            as_bytes: false,
            log: None,
            moments: 0,
            sent_at: now,
            trace: None,
            ages: HashMap::new(),
        }
    }

    /// Brings both queue pairs to RTS, towards each other.
    pub fn connect(&mut self, qpns: [Qpn; 2], attr: QpAttr) {
        self.connect_from(qpns, attr, [0xff_fffe, 0x7f_fffe]);
    }

    /// The same, with their first PSNs.
    pub fn connect_from(&mut self, qpns: [Qpn; 2], attr: QpAttr, psns: [u32; 2]) {
        for own in [A, B] {
            let peer = 1 - own;
            let attr = QpAttr {
                dest_qpn: qpns[peer],
                rq_psn: Psn::new(psns[peer]),
                sq_psn: Psn::new(psns[own]),
                ..attr
            };
            let dest = self.sides[peer].address;
            self.sides[own].connect(qpns[own], dest, attr);
        }
        self.settle();
    }

    /// Sends everything that can be sent, and collects completions and events.
    pub fn settle(&mut self) {
        for id in 0..self.sides.len() {
            self.transmit(id);
            self.sides[id].collect(self.trace.as_mut(), self.now);
        }
    }

    /// Which device has an address.
    fn at(&self, address: IpAddr) -> Option<usize> {
        self.sides.iter().position(|side| side.address == address)
    }

    fn transmit(&mut self, id: usize) {
        let (mut before, mut sent) = (None, 0);
        while !self.sides[id].blocked
            && let Some(packet) = self.sides[id].hca.poll_transmit(self.now)
        {
            let batch = Some((packet.path, packet.payload_len));
            self.launch(id, &packet, before == batch);
            before = batch;
            sent += 1;
            assert!(sent < DRAIN_MAX, "a device never stops sending");
        }
    }

    /// Whether nothing that comes from a queue pair, or is for it, is under way.
    fn is_idle(&mut self, (id, qpn): (usize, Qpn)) -> bool {
        let is_for = |flight: &Flight| (flight.to, flight.dest_qp) == (id, Some(qpn));
        let Self { sides, wire, .. } = self;
        let hca = &mut sides[id].hca;
        let qp = hca.qp(qpn).unwrap();
        let is_done = qp.in_flight() == 0 && !qp.has_answers();
        is_done && hca.fast_forward(qpn, 0, 0) && !wire.iter().any(is_for)
    }

    /// Makes a connection older by so many one-packet messages from the first of its queue pairs, which
    /// is on `from`, to the other one, if nothing of it is under way.
    #[must_use]
    pub fn age(&mut self, from: usize, [own, peer]: [Qpn; 2], messages: u32) -> bool {
        let to = 1 - from;
        let qp = |id: usize, qpn| self.sides[id].hca.qp(qpn).unwrap();
        let arrived = qp(from, own).next_psn() == qp(to, peer).expected_psn();
        if !arrived || !self.is_idle((from, own)) || !self.is_idle((to, peer)) {
            return false;
        }
        assert!(self.sides[from].hca.fast_forward(own, messages, 0));
        assert!(self.sides[to].hca.fast_forward(peer, 0, messages));
        for key in [(to, peer, true), (from, own, false)] {
            let age = self.ages.entry(key).or_default();
            *age = age.wrapping_add(messages);
        }
        true
    }

    fn launch(&mut self, from: usize, packet: &Outgoing, is_coalesced: bool) {
        self.sent_at = self.now;
        let side = &mut self.sides[from];
        let departure = side.hca.departure();
        side.sent.0 += 1;
        side.sent.1 += u64::from(packet.payload_len);
        side.damaged += u64::from(packet.corrupt_bit().is_some());
        let mut payload = Vec::new();
        if self.carries_bytes {
            payload.resize(packet.payload_len as usize, 0xee);
            assert!(side.hca.gather(packet, &mut payload), "{packet:?}");
        }
        if let Some(log) = &mut self.log {
            log.push(Sent {
                at: self.now,
                departure,
                from,
                headers: packet.headers,
                traffic_class: packet.path.traffic_class,
                payload: payload.clone(),
            });
        }
        let dest = packet.path.dest;
        let to = self.at(dest);
        if let Some(trace) = &mut self.trace {
            let now = self.now;
            let (mut headers, path) = (packet.headers, packet.path);
            let opcode = headers.opcode();
            let key = to.map(|to| (to, headers.dest_qp, opcode.is_request()));
            let counts = opcode != Opcode::Cnp; // which has no PSN
            let age = key.filter(|_| counts).and_then(|key| self.ages.get(&key));
            let age = age.copied().unwrap_or(0);
            headers.psn = headers.psn.wrapping_sub(age);
            if let Some(aeth) = headers.aeth_mut() {
                aeth.msn = aeth.msn.wrapping_sub(age) & 0xff_ffff;
            }
            trace.push(format!("{now:?} {from} {headers:?} {path:?} {payload:?}"));
        }
        let content = self.content(from, packet, payload);
        let flight = |to| Flight {
            from,
            to,
            dest,
            traffic_class: packet.path.traffic_class,
            dest_qp: Some(packet.headers.dest_qp),
            content: content.clone(),
            truesize: truesize(packet.payload_len, is_coalesced),
        };
        if dest.is_multicast() {
            // A host's own socket hears it as well, and first.
            self.fly(departure, flight(from));
            for to in (0..self.sides.len()).filter(|to| *to != from) {
                self.fly(departure, flight(to));
            }
        } else if let Some(to) = to {
            self.fly(departure, flight(to));
        }
    }

    fn fly(&mut self, departure: Time, flight: Flight) {
        for delay_ns in self.rules.judge(&flight).delays() {
            let delay = Span::from_nanos(self.latency_ns.saturating_add(delay_ns));
            self.wire.launch(departure.after(delay), flight.clone());
        }
    }

    /// What crosses the wire, with the bit flipped that the device's link has damaged.
    fn content(&self, from: usize, packet: &Outgoing, payload: Vec<u8>) -> Content {
        let headers = packet.headers;
        let is_damaged = packet.corrupt_bit().is_some();
        if is_damaged && !self.carries_bytes {
            return Content::Damaged;
        }
        if !is_damaged && !self.as_bytes {
            return Content::Parsed {
                headers,
                payload,
                payload_len: packet.payload_len,
            };
        }
        let mut bytes = vec![0; HEADERS_LEN_MAX + payload.len() + 3 + ICRC_LEN];
        let len = headers
            .emit_packet(&payload, &self.flow(from, packet.path.dest), 0, &mut bytes)
            .expect("a device makes packets that can be written");
        bytes.truncate(len);
        if let Err(error) = Packet::new_checked(&bytes) {
            panic!("a device made a packet that does not parse: {error}");
        }
        if let Some(bit) = packet.corrupt_bit() {
            let bit = bit as usize % (8 * len);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Content::Bytes(bytes)
    }

    /// Puts bytes on the wire that no device has sent, or not like that. With what there is of an ICRC
    /// at their end made right, they arrive at a device so much later, as from the other one of two.
    pub fn forge(&mut self, to: usize, traffic_class: u8, mut bytes: Vec<u8>, delay: Span) {
        let (from, dest) = (1 - to, self.sides[to].address);
        let flow = self.flow(from, dest);
        if let Some((body, icrc)) = bytes.split_last_chunk_mut::<ICRC_LEN>() {
            *icrc = flow.compute(0, body).to_le_bytes();
        }
        let truesize = truesize(bytes.len() as u32, false);
        let flight = Flight {
            from,
            to,
            dest,
            traffic_class,
            dest_qp: None,
            content: Content::Bytes(bytes),
            truesize,
        };
        self.wire.launch(self.now.after(delay), flight);
    }

    fn arrive(&mut self, flight: &Flight) {
        let (from, to) = (flight.from, flight.to);
        if self.sides[to].deaf || self.sides[from].mute {
            return;
        }
        let (headers, data) = match &flight.content {
            Content::Parsed {
                headers,
                payload,
                payload_len,
            } => match self.carries_bytes {
                true => (*headers, Data::Bytes(payload)),
                false => (*headers, Data::Length(*payload_len)),
            },
            Content::Damaged => return self.refuse(to, Counter::RxIcrcEncapsulated),
            Content::Bytes(bytes) => match Packet::new_checked(bytes) {
                Err(_) => return self.refuse(to, Counter::RxMalformed),
                // A flipped bit may lie in a field that may change on the way.
                Ok(packet) => {
                    let flow = self.flow(from, flight.dest);
                    let verdict = IcrcVerifier::new(IdPolicy::Exact).verify(&flow, 0, bytes);
                    if !verdict.is_ok() {
                        return self.refuse(to, Counter::RxIcrcEncapsulated);
                    }
                    (*packet.headers(), Data::Bytes(packet.payload()))
                }
            },
        };
        let received = Received {
            source: self.sides[from].address,
            dest: flight.dest,
            traffic_class: flight.traffic_class,
            headers: &headers,
            data,
        };
        self.sides[to].take(self.now, &received);
    }

    /// Gives one of two devices a packet that the other one might have sent.
    pub fn give(&mut self, to: usize, traffic_class: u8, headers: &Headers, data: Data<'_>) {
        let received = Received {
            source: self.sides[1 - to].address,
            dest: self.sides[to].address,
            traffic_class,
            headers,
            data,
        };
        self.sides[to].take(self.now, &received);
    }

    fn flow(&self, from: usize, dest: IpAddr) -> IcrcFlow {
        let ip = IpPair::new(self.sides[from].address, dest);
        IcrcFlow::new(ip.expect("of one family"), 0xc000, ROCE_V2_PORT)
    }

    fn refuse(&mut self, to: usize, cause: Counter) {
        self.sides[to].refused += 1;
        self.sides[to].hca.count(cause, 1);
    }

    /// When something happens next.
    pub fn next_moment(&self) -> Option<Time> {
        let flight = self.wire.next();
        let sockets = self.sockets.iter().filter_map(Socket::next);
        let timers = self.sides.iter().filter_map(|side| {
            let at = side.hca.poll_timeout();
            // What its link would release, its host would send if it could.
            at.filter(|at| !side.blocked || *at > self.now)
        });
        timers.chain(sockets).chain(flight).min()
    }

    /// Lives through everything up to `until`.
    pub fn run_until(&mut self, until: Time) {
        while self.step_until(until) {}
        self.now = self.now.max(until);
    }

    /// Lives so long.
    pub fn run_for(&mut self, ns: u64) {
        self.run_until(self.now.after(Span::from_nanos(ns)));
    }

    /// Lives until nothing happens any more.
    pub fn run(&mut self) {
        while self.step() {
            assert!(self.moments < 5_000_000, "it never ends");
        }
    }

    /// Lives through the next moment, if there is one.
    pub fn step(&mut self) -> bool {
        self.step_until(Time::NEVER)
    }

    /// Lives through the next moment, if that comes by then.
    pub fn step_until(&mut self, until: Time) -> bool {
        self.settle();
        let next = self.next_moment().filter(|next| *next <= until);
        if let Some(next) = next {
            self.now = self.now.max(next);
            self.live();
        }
        next.is_some()
    }

    fn live(&mut self) {
        self.moments += 1;
        while let Some(flight) = self.wire.take_due(self.now) {
            match self.sockets.get_mut(flight.to) {
                Some(socket) => socket.offer(self.now, flight),
                None => self.arrive(&flight),
            }
        }
        for id in 0..self.sockets.len() {
            for flight in self.sockets[id].receive(self.now) {
                self.arrive(&flight);
            }
        }
        for id in 0..self.sides.len() {
            let mut calls = 0;
            while self.sides[id]
                .hca
                .poll_timeout()
                .is_some_and(|at| at <= self.now)
            {
                self.sides[id].hca.handle_timeout(self.now);
                self.transmit(id);
                if self.sides[id].blocked {
                    break;
                }
                calls += 1;
                assert!(calls < CALLS_PER_MOMENT, "time stands still");
            }
        }
        self.settle();
        for side in &self.sides {
            assert!(side.blocked || !side.hca.wants_transmit(), "not drained");
            if self.moments.is_multiple_of(self.audit_every) {
                side.hca.audit();
            }
        }
    }

    /// A counter of a device.
    pub fn count(&self, id: usize, counter: Counter) -> u64 {
        self.sides[id].hca.state().counter(counter)
    }

    /// Binds a new type 2 memory window on a queue pair that is idle; returns its key.
    pub fn open_window(&mut self, id: usize, qpn: Qpn) -> u32 {
        let side = &mut self.sides[id];
        let region = side.register(1, AccessFlags::all());
        let rkey = side.hca.alloc_mw(side.pd, MwType::Type2).unwrap().rkey;
        let bind = region.bind(rkey, AccessFlags::REMOTE);
        self.post(id, qpn, local(0, SendFlags::empty(), SendOp::BindMw(bind)));
        self.settle();
        rkey
    }

    /// Posts a request that the device takes.
    pub fn post(&mut self, id: usize, qpn: Qpn, wr: SendWr) {
        self.sides[id].hca.post_send(qpn, wr).unwrap();
    }
}

impl Side {
    fn new(number: u8, config: HcaConfig) -> Self {
        Self::on(number, Hca::new(config))
    }

    /// A side whose device there is.
    pub fn on(number: u8, hca: Hca) -> Self {
        Self::with(number, hca, ())
    }
}

impl<T> Side<T> {
    /// A side whose device there is, and what the test keeps beside it.
    pub fn with(number: u8, mut hca: Hca, own: T) -> Self {
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(1 << 16).unwrap();
        Self {
            hca,
            address: [10, 0, 0, number].into(),
            pd,
            cq,
            cqs: vec![cq],
            next_va: 1 << 32,
            completions: Vec::new(),
            events: Vec::new(),
            sent: (0, 0),
            damaged: 0,
            given: 0,
            refused: 0,
            deaf: false,
            mute: false,
            blocked: false,
            own,
        }
    }

    fn take(&mut self, now: Time, received: &Received<'_>) {
        self.given += 1;
        self.hca.handle_packet(now, received);
    }

    /// What an RC queue pair is made of.
    pub fn init(&self) -> QpInit {
        QpInit {
            qp_type: QpType::Rc,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: None,
            cap: QpCap::default(),
            signal_all: false,
        }
    }

    /// An RC queue pair in RESET.
    pub fn create_qp(&mut self) -> Qpn {
        self.create_qp_of(QpType::Rc)
    }

    /// A queue pair in RESET.
    pub fn create_qp_of(&mut self, qp_type: QpType) -> Qpn {
        let init = QpInit {
            qp_type,
            ..self.init()
        };
        self.hca.create_qp(&init).unwrap()
    }

    /// A UD queue pair in RTS.
    pub fn create_ud(&mut self, qkey: u32) -> Qpn {
        let qpn = self.create_qp_of(QpType::Ud);
        self.ready(qpn, QpType::Ud, QpAttr { qkey, ..attr() }, None);
        qpn
    }

    /// From RESET to RTS.
    pub fn ready(&mut self, qpn: Qpn, qp_type: QpType, attr: QpAttr, path: Option<Path>) {
        use QpState::{Init, Reset, Rtr, Rts};
        for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
            let change = QpModify::step(qp_type, from, to, attr);
            let path = path.filter(|_| change.mask.contains(Attr::AV));
            self.hca.modify_qp(qpn, &change, path).unwrap();
        }
    }

    /// An RC queue pair that takes its receives from there.
    pub fn create_qp_with_srq(&mut self, srq: SrqId) -> Qpn {
        let init = QpInit {
            srq: Some(srq),
            ..self.init()
        };
        self.hca.create_qp(&init).unwrap()
    }

    /// From RESET to RTS.
    pub fn connect(&mut self, qpn: Qpn, dest: IpAddr, attr: QpAttr) {
        let path = Path {
            dest,
            traffic_class: 2,
        };
        let qp_type = self.hca.qp(qpn).unwrap().config().qp_type;
        self.ready(qpn, qp_type, attr, Some(path));
    }

    /// Moves a queue pair to a state that needs no attributes.
    pub fn move_to(&mut self, qpn: Qpn, state: QpState) {
        let change = QpModify::to(state, Attr::empty(), QpAttr::default());
        self.hca.modify_qp(qpn, &change, None).unwrap();
    }

    /// The state of a queue pair.
    pub fn state(&self, qpn: Qpn) -> QpState {
        self.hca.query_qp(qpn).unwrap().0
    }

    /// Registers so many zeros.
    pub fn register(&mut self, len: usize, access: AccessFlags) -> Region {
        let buffer = Buffer::zeroed(len);
        let memory = Memory::Buffer(buffer.clone());
        // Addresses that are the same in every run.
        let va = self.next_va;
        self.next_va += (len as u64).next_multiple_of(4096) + 4096;
        let info = self.hca.reg_mr_iova(self.pd, memory, va, access);
        let info = info.unwrap();
        Region { info, buffer }
    }

    /// Posts a receive into all of a region.
    pub fn recv(&mut self, qpn: Qpn, wr_id: u64, region: &Region) {
        let wr = recv_wr(wr_id, region);
        self.hca.post_recv(qpn, wr).unwrap();
    }

    /// Polls a completion queue besides the first.
    pub fn watch(&mut self, cq: CqId) {
        self.cqs.push(cq);
    }

    /// Leaves the completion queues alone.
    pub fn watch_nothing(&mut self) {
        self.cqs.clear();
    }

    /// Polls completions and events.
    pub fn collect(&mut self, mut trace: Option<&mut Vec<String>>, now: Time) {
        for cq in &self.cqs {
            while let Some(completion) = self.hca.poll_completion(*cq).unwrap() {
                if let Some(trace) = &mut trace {
                    trace.push(format!("{now:?} {completion:?}"));
                }
                self.completions.push(completion);
            }
        }
        while let Some(event) = self.hca.poll_event() {
            if let Some(trace) = &mut trace {
                trace.push(format!("{now:?} {event:?}"));
            }
            self.events.push(event);
        }
    }

    /// The waits of the timers that ran out, and whether each was the last one.
    pub fn expiries(&self) -> Vec<TimerExpiry> {
        let expiry = |event: &Event| match event {
            Event::TimerExpired { expiry, .. } => Some(*expiry),
            _ => None,
        };
        self.events.iter().filter_map(expiry).collect()
    }
}

/// Registered memory.
#[derive(Clone, Debug)]
pub struct Region {
    /// What the device says of it.
    pub info: MrInfo,
    /// Its bytes.
    pub buffer: Buffer,
}

impl Region {
    /// A part of it.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            addr: self.info.va + offset,
            length,
            lkey: self.info.key.lkey(),
        }
    }

    /// A bind of a window to all of it.
    pub fn bind(&self, rkey: u32, access: AccessFlags) -> MwBind {
        MwBind {
            rkey,
            lkey: self.info.key.lkey(),
            va: self.info.va,
            length: self.info.len,
            access,
            zero_based: false,
        }
    }

    /// All of it.
    pub fn whole(&self) -> Sge {
        self.sge(0, self.info.len as u32)
    }

    /// Fills it with noise.
    pub fn fill(&self, seed: u64) {
        let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bytes: Vec<u8> = (0..self.buffer.len())
            .map(|_| {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                word as u8
            })
            .collect();
        self.buffer.write(0, &bytes);
    }

    /// What is in it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.buffer.len()];
        self.buffer.read(0, &mut bytes);
        bytes
    }

    /// A WRITE to its start.
    pub fn write(&self) -> SendOp {
        SendOp::Write {
            va: self.info.va,
            rkey: self.info.key.rkey(),
            imm: None,
        }
    }

    /// A READ from its start.
    pub fn read(&self) -> SendOp {
        SendOp::Read {
            va: self.info.va,
            rkey: self.info.key.rkey(),
        }
    }
}

/// A receive into all of a region.
pub fn recv_wr(wr_id: u64, region: &Region) -> RecvWr {
    RecvWr {
        wr_id,
        sges: Sges::from_buf([region.whole()]),
    }
}

/// A work request without memory.
pub fn local(wr_id: u64, flags: SendFlags, op: SendOp) -> SendWr {
    SendWr {
        wr_id,
        op,
        flags,
        sges: Sges::new(),
        inline: None,
        to: SendTo::Peer,
    }
}

/// Sets the limit of a shared receive queue.
pub fn srq_limit(limit: u32) -> SrqModify {
    SrqModify {
        limit: Some(limit),
        ..SrqModify::default()
    }
}

/// A SEND.
pub const SEND: SendOp = SendOp::Send { imm: None };

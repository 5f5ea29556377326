//! Devices on a network of the fabric that takes no time but its latency.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use ferroce_fabric::{Frame, Network, Parcel, Rules, Stations};
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

/// The first device.
pub const A: usize = 0;
/// The second device.
pub const B: usize = 1;

/// One way.
pub const LATENCY_NS: u64 = 1_000;
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
        host: HostProfile::card(Rate::from_mbps(mbps)),
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
    /// Of a packet to a group, for those that have not been sent theirs.
    copies: VecDeque<Flight>,
    /// Where the packet before went, if it left at the same moment, and its length.
    batch: Option<(Path, u32)>,
    /// When it wanted attention last, and how often at that moment.
    calls: (Time, usize),
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
    /// What goes to a device from the other one of two.
    fn new(from: usize, to: usize, dest: IpAddr, traffic_class: u8, content: Content) -> Self {
        Self {
            from,
            to,
            dest,
            traffic_class,
            dest_qp: None,
            content,
            truesize: 0,
        }
    }

    /// Its payload, if it is there.
    pub fn payload(&self) -> &[u8] {
        match &self.content {
            Content::Parsed { payload, .. } => payload,
            _ => &[],
        }
    }
}

impl Parcel for Flight {
    fn empty() -> Self {
        Self::new(0, 0, [0; 4].into(), 0, Content::Damaged)
    }

    fn corrupt(&mut self, _: u32) {
        self.content = Content::Damaged;
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

/// Devices, the network between them, and time.
#[derive(Debug)]
pub struct World<T = ()> {
    /// What time it is. A test may let it jump ahead: what was due meanwhile is late then.
    pub now: Time,
    /// The devices.
    pub sides: Vec<Side<T>>,
    /// Taken out while it lives through something.
    net: Option<Box<Network<Flight>>>,
    /// Where packets wait for the devices, by their numbers; without, they do not wait.
    pub sockets: Vec<Socket>,
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
        let sides: Vec<_> = sides.into_iter().collect();
        let net = Network::plain(sides.len() as u32, Span::from_nanos(LATENCY_NS));
        Self {
            now,
            sides,
            net: Some(Box::new(net)),
            sockets: Vec::new(),
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

    /// How long a packet takes from device to device from now on.
    pub fn set_latency(&mut self, latency: Span) {
        self.net_mut().set_latency(latency);
    }

    /// What becomes of the packets.
    pub fn rules(&mut self) -> &mut Rules<Flight> {
        &mut self.net_mut().rules
    }

    /// What is under way: that which leaves first, and then each device's in the order in which it
    /// arrives.
    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        let net = self.net.as_ref().expect("it lives through nothing");
        net.under_way().map(|(_, flight)| flight)
    }

    /// Loses one of [`Self::flights`].
    pub fn lose(&mut self, nth: usize) {
        let mut at = 0..;
        self.net_mut().retain(|_, _| at.next() != Some(nth));
    }

    /// Loses all of them but the first ones.
    pub fn keep_flights(&mut self, most: usize) {
        let mut left = most;
        self.net_mut().retain(|_, _| {
            let kept = left > 0;
            left -= usize::from(kept);
            kept
        });
    }

    fn net_mut(&mut self) -> &mut Network<Flight> {
        self.net.as_mut().expect("it lives through nothing")
    }

    /// Lets the network and the devices live through something, at the present or later.
    fn live<R>(&mut self, through: impl FnOnce(&mut Network<Flight>, &mut Self) -> R) -> R {
        let mut net = self.net.take().expect("it lives through nothing else");
        if self.now > net.now() {
            net.skip(self.now);
        }
        let outcome = through(&mut net, self);
        self.now = net.now();
        self.net = Some(net);
        outcome
    }

    /// Sends everything that can be sent, and collects completions and events.
    pub fn settle(&mut self) {
        self.live(|net, world| {
            for host in 0..world.sides.len() {
                net.kick(world, host as u32);
            }
        });
    }

    /// Which device has an address.
    fn at(&self, address: IpAddr) -> Option<usize> {
        self.sides.iter().position(|side| side.address == address)
    }

    /// Whether nothing that comes from a queue pair, or is for it, is under way.
    fn is_idle(&mut self, (id, qpn): (usize, Qpn)) -> bool {
        let is_for = |flight: &Flight| (flight.to, flight.dest_qp) == (id, Some(qpn));
        let hca = &mut self.sides[id].hca;
        let qp = hca.qp(qpn).unwrap();
        let is_done = qp.in_flight() == 0 && !qp.has_answers();
        is_done && hca.fast_forward(qpn, 0, 0) && !self.flights().any(is_for)
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

    /// Puts a packet on the wire, as many copies of it as there are devices that it is for.
    fn launch(&mut self, now: Time, from: usize, packet: &Outgoing) {
        self.sent_at = now;
        let batch = Some((packet.path, packet.payload_len));
        let is_coalesced = std::mem::replace(&mut self.sides[from].batch, batch) == batch;
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
                at: now,
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
            let others = (0..self.sides.len()).filter(|to| *to != from);
            let copies = [from].into_iter().chain(others).map(flight);
            self.sides[from].copies.extend(copies);
        } else {
            let copy = to.map(flight);
            self.sides[from].copies.extend(copy);
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
    /// at their end made right, they reach a device so much later than what is sent now, as from the other
    /// one of two.
    pub fn forge(&mut self, to: usize, traffic_class: u8, mut bytes: Vec<u8>, delay: Span) {
        let (from, dest) = (1 - to, self.sides[to].address);
        let flow = self.flow(from, dest);
        if let Some((body, icrc)) = bytes.split_last_chunk_mut::<ICRC_LEN>() {
            *icrc = flow.compute(0, body).to_le_bytes();
        }
        let (frame, len) = (Frame::new(from as u32, to as u32, 0), bytes.len() as u32);
        let content = Content::Bytes(bytes);
        let mut flight = Flight::new(from, to, dest, traffic_class, content);
        flight.truesize = truesize(len, false);
        self.live(|net, _| net.inject(from as u32, frame, flight, delay));
    }

    fn arrive(&mut self, now: Time, flight: &Flight) {
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
        self.sides[to].take(now, &received);
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
        let lived = self.live(|net, world| net.step(world, until));
        if lived {
            self.moments += 1;
            self.check();
        }
        lived
    }

    fn check(&self) {
        let audits = self.moments.is_multiple_of(self.audit_every);
        for side in &self.sides {
            let is_drained = side.blocked || !side.hca.wants_transmit();
            assert!(is_drained, "not drained");
            if audits {
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

impl<T> Stations<Flight> for World<T> {
    fn transmit(&mut self, now: Time, host: u32, flight: &mut Flight) -> Option<Frame> {
        let from = host as usize;
        while self.sides[from].copies.is_empty() {
            let side = &mut self.sides[from];
            let packet = match side.blocked {
                true => None,
                false => side.hca.poll_transmit(now),
            };
            let Some(packet) = packet else {
                side.batch = None;
                return None;
            };
            self.launch(now, from, &packet);
        }
        *flight = self.sides[from].copies.pop_front()?;
        Some(Frame::new(host, flight.to as u32, 0))
    }

    fn until_departure(&self, now: Time, host: u32) -> Span {
        self.sides[host as usize].hca.departure().since(now)
    }

    fn receive(&mut self, now: Time, host: u32, _: &Frame, flight: &Flight) {
        match self.sockets.get_mut(host as usize) {
            Some(socket) => socket.offer(now, flight.clone()),
            None => self.arrive(now, flight),
        }
    }

    fn expire(&mut self, now: Time, host: u32) {
        let id = host as usize;
        if let Some(socket) = self.sockets.get_mut(id) {
            for flight in socket.receive(now) {
                self.arrive(now, &flight);
            }
        }
        let side = &mut self.sides[id];
        if side.hca.poll_timeout().is_some_and(|at| at <= now) {
            let before = if side.calls.0 == now { side.calls.1 } else { 0 };
            assert!(before < CALLS_PER_MOMENT, "time stands still");
            side.calls = (now, before + 1);
            side.hca.handle_timeout(now);
        }
    }

    fn set_paused(&mut self, now: Time, host: u32, priorities: u8) {
        self.sides[host as usize].hca.set_paused(now, priorities);
    }

    fn collect(&mut self, now: Time, host: u32) {
        self.sides[host as usize].collect(self.trace.as_mut(), now);
    }

    fn next(&self, now: Time, host: u32) -> Option<Time> {
        let side = &self.sides[host as usize];
        // What its link would release, its host would send if it could.
        let timer = side.hca.poll_timeout();
        let timer = timer.filter(|at| !side.blocked || *at > now);
        let socket = self.sockets.get(host as usize).and_then(Socket::next);
        timer.into_iter().chain(socket).min()
    }

    fn wants_transmit(&self, host: u32) -> bool {
        let side = &self.sides[host as usize];
        !side.copies.is_empty() || !side.blocked && side.hca.wants_transmit()
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
            copies: VecDeque::new(),
            batch: None,
            calls: (Time::ZERO, 0),
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

//! Devices on a network of the fabric that takes no time except its latency.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_admission::Bounds;
use ferroce_device::{
    AccessFlags, Counter, Data, Hca, HcaConfig, MwType, Outgoing, QpAttr, Received, SendFlags,
    SendOp, SendWr, Span, Time,
};
use ferroce_fabric::{Frame, Network, Parcel, Stations};
use ferroce_wire::{Headers, ICRC_LEN, IcrcFlow, IpPair, Opcode, Psn, Qpn, ROCE_V2_PORT};

use crate::flight::{Content, Flight, Sent, rejuvenate};
use crate::side::{Side, attr, config, local, sharing};
use crate::socket::{Socket, truesize};

/// The first device.
pub const A: usize = 0;
/// The second device.
pub const B: usize = 1;

/// One way.
pub const LATENCY_NS: u64 = 1_000;
/// How often a device may want attention at the same moment.
const CALLS_PER_MOMENT: usize = 1_000;

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
    /// Moments simulated.
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
    /// Two devices that are alike.
    pub fn pair(config: HcaConfig) -> Self {
        Self::new([config.clone(), config])
    }

    /// A device on sockets for each configuration, which keeps within the bounds.
    pub fn within(configs: impl IntoIterator<Item = (HcaConfig, Bounds)>) -> Self {
        let sides = (1..).zip(configs);
        Self::of(
            sides.map(|(number, (config, bounds))| {
                Side::on(number, sharing(Hca::new(config), bounds))
            }),
        )
    }

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
            let dest = self.sides[peer].address_at(attr.port);
            self.sides[own].connect(qpns[own], dest, attr);
        }
        self.settle();
    }

    /// What is between the devices: what is under way there, and the rules for it.
    pub fn net(&mut self) -> &mut Network<Flight> {
        self.net.as_mut().expect("it lives through nothing")
    }

    /// Lets the network and the devices live through something, at the present or later.
    fn live<R>(&mut self, through: impl FnOnce(&mut Network<Flight>, &mut Self) -> R) -> R {
        live(self, |world| (&mut world.net, &mut world.now), through)
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
        let has = |side: &Side<T>| side.address == address || side.second_address == Some(address);
        self.sides.iter().position(has)
    }

    /// Whether nothing that comes from a queue pair, or is for it, is under way.
    fn is_idle(&mut self, (id, qpn): (usize, Qpn)) -> bool {
        let is_for = |flight: &Flight| (flight.to, flight.dest_qp) == (id, Some(qpn));
        let hca = &mut self.sides[id].hca;
        let qp = hca.qp(qpn).unwrap();
        let is_done = qp.in_flight() == 0 && !qp.has_answers();
        is_done && hca.age(qpn, 0, 0) && !self.net().under_way().any(|(_, it)| is_for(it))
    }

    /// Makes a connection older by a number of one-packet messages from the first of its queue pairs, which
    /// is on `from`, to the other one, if nothing of it is under way.
    #[must_use]
    pub fn age(&mut self, from: usize, [own, peer]: [Qpn; 2], messages: u32) -> bool {
        let to = 1 - from;
        let qp = |id: usize, qpn| self.sides[id].hca.qp(qpn).unwrap();
        let arrived = qp(from, own).next_psn() == qp(to, peer).expected_psn();
        if !arrived || !self.is_idle((from, own)) || !self.is_idle((to, peer)) {
            return false;
        }
        assert!(self.sides[from].hca.age(own, messages, 0));
        assert!(self.sides[to].hca.age(peer, 0, messages));
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
        let payload = self.carries_bytes.then(|| {
            let mut payload = vec![0xee; packet.payload_len as usize];
            assert!(side.hca.gather(packet, &mut payload), "{packet:?}");
            payload
        });
        if let Some(log) = &mut self.log {
            log.push(Sent {
                at: now,
                departure,
                from,
                headers: packet.headers,
                traffic_class: packet.path.traffic_class,
                sl: packet.path.sl,
                payload: payload.clone().unwrap_or_default(),
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
            rejuvenate(&mut headers, age);
            trace.push(format!("{now:?} {from} {headers:?} {path:?} {payload:?}"));
        }
        let source = self.sides[from].address_at(packet.path.port);
        let flow = flow(source, dest);
        let content = Content::new(packet, payload, &flow, self.as_bytes);
        let flight = |to| Flight {
            sl: packet.path.sl,
            dest_qp: Some(packet.headers.dest_qp),
            truesize: truesize(packet.payload_len.into(), is_coalesced),
            ..Flight::new(
                [from, to],
                source,
                dest,
                packet.path.traffic_class,
                content.clone(),
            )
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

    /// Puts bytes on the wire that no device has sent, or not like that. With what there is of an ICRC
    /// at their end made right, they reach a device so much later than what is sent now, as from the other
    /// one of two.
    pub fn forge(&mut self, to: usize, traffic_class: u8, mut bytes: Vec<u8>, delay: Span) {
        let (from, dest) = (1 - to, self.sides[to].address);
        let source = self.sides[from].address;
        let flow = flow(source, dest);
        if let Some((body, icrc)) = bytes.split_last_chunk_mut::<ICRC_LEN>() {
            *icrc = flow.compute(0, body).to_le_bytes();
        }
        let (frame, len) = (Frame::new(from as u32, to as u32, 0), bytes.len() as u32);
        let content = Content::Bytes(bytes);
        let mut flight = Flight::new([from, to], source, dest, traffic_class, content);
        flight.truesize = truesize(len, false);
        self.live(|net, _| net.inject(from as u32, frame, flight, delay));
    }

    fn arrive(&mut self, now: Time, flight: &Flight) {
        let (from, to) = (flight.from, flight.to);
        if self.sides[to].deaf || self.sides[from].mute {
            return;
        }
        let (headers, data) = match flight.content.read(&flow(flight.source, flight.dest)) {
            Ok(read) => read,
            Err(cause) => {
                self.sides[to].refused += 1;
                return self.sides[to].hca.count(cause, 1);
            }
        };
        let received = Received {
            source: flight.source,
            dest: flight.dest,
            traffic_class: flight.traffic_class,
            sl: flight.sl,
            headers: &headers,
            data,
            port: match self.sides[to].second_address == Some(flight.dest) {
                true => 2,
                false => 1,
            },
        };
        self.sides[to].take(now, &received);
    }

    /// Gives one of two devices a packet that the other one might have sent.
    pub fn give(&mut self, to: usize, traffic_class: u8, headers: &Headers, data: Data<'_>) {
        let received = Received {
            source: self.sides[1 - to].address,
            dest: self.sides[to].address,
            traffic_class,
            sl: 0,
            headers,
            data,
            port: 1,
        };
        self.sides[to].take(self.now, &received);
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

/// Lets a network live through something, and the world that it belongs to, which it calls: it is taken out
/// meanwhile. `parts` are where it belongs, and what time it is for the world.
pub fn live<W, P: Parcel, R>(
    world: &mut W,
    parts: impl Fn(&mut W) -> (&mut Option<Box<Network<P>>>, &mut Time),
    through: impl FnOnce(&mut Network<P>, &mut W) -> R,
) -> R {
    let (place, now) = parts(world);
    let mut net = place.take().expect("it lives through nothing else");
    net.skip(*now);
    let outcome = through(&mut net, world);
    let (place, now) = parts(world);
    *now = net.now();
    *place = Some(net);
    outcome
}

impl<T> Stations<Flight> for World<T> {
    fn transmit(&mut self, now: Time, host: u32, _: u8, flight: &mut Flight) -> Option<Frame> {
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

    fn set_paused(&mut self, now: Time, host: u32, link: u8, priorities: u8) {
        self.sides[host as usize]
            .hca
            .set_paused(now, link, priorities);
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

    fn wants_transmit(&self, host: u32, _: u8) -> bool {
        let side = &self.sides[host as usize];
        !side.copies.is_empty() || !side.blocked && side.hca.wants_transmit()
    }
}

fn flow(source: IpAddr, dest: IpAddr) -> IcrcFlow {
    let ip = IpPair::new(source, dest);
    IcrcFlow::new(ip.expect("of one family"), 0xc000, ROCE_V2_PORT)
}

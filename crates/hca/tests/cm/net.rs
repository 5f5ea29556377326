//! Devices on a wire in memory, with virtual time, whose connection managers talk.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferroce_hca::cm::{
    CmError, CmEvent, CmEventKind, CmState, CommId, ConnectReply, ConnectRequest, SidrRequest,
    Transport, ack_timeout,
};
use ferroce_hca::{
    Counter, Data, Event, Hca, HcaConfig, Mtu, Outgoing, Received, Secret, Span, Time,
};
use ferroce_wire::cm::{Mad, Message, PortSpace, Private, ServiceId};
use ferroce_wire::{Psn, Qpn};

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const SERVICE: ServiceId = ServiceId::new(PortSpace::Tcp, 7174);

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000 * MS;
const LATENCY_NS: u64 = 10_000;
/// More than the last timer of any test.
const EVER_NS: u64 = 10_000 * S;

/// How long Linux waits for an answer on a RoCE path: 2 · 4.096 µs · 2^18 + 4.096 µs · 2^20.
pub(crate) const WAIT_NS: u64 = 4_096 * (2 * (1 << 18) + (1 << 20));

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Arrives,
    Lost,
    Twice,
    /// Arrives this many nanoseconds late.
    Late(u64),
}

/// A message on the wire: when it was sent, by whom, to whom.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Time,
    pub(crate) from: usize,
    pub(crate) mad: Mad,
}

type Rule = Box<dyn FnMut(&Seen) -> Fate>;

/// From, to, packet, payload.
type Flight = (usize, usize, Outgoing, Vec<u8>);

pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) hcas: Vec<Hca>,
    /// Nothing reaches or leaves them.
    pub(crate) dead: Vec<bool>,
    flights: BTreeMap<(Time, u64), Flight>,
    order: u64,
    pub(crate) seen: Vec<Seen>,
    rule: Rule,
}

pub(crate) fn address(device: usize) -> IpAddr {
    IpAddr::from([127, 13, 0, 1 + device as u8])
}

impl Net {
    /// Two devices; the second listens on [`SERVICE`].
    pub(crate) fn new() -> Self {
        let mut net = Self::of(2);
        net.hcas[B].cm_mut().listen(SERVICE, 16).unwrap();
        net
    }

    pub(crate) fn of(devices: usize) -> Self {
        let hca = |device| {
            Hca::new(HcaConfig {
                slot: 1,
                secret: Some(Secret::new(device as u128)),
                ..HcaConfig::default()
            })
        };
        Self {
            now: Time::from_nanos(S),
            hcas: (0..devices).map(hca).collect(),
            dead: vec![false; devices],
            flights: BTreeMap::new(),
            order: 0,
            seen: Vec::new(),
            rule: Box::new(|_| Fate::Arrives),
        }
    }

    /// Decides from now on what becomes of each message.
    pub(crate) fn rule(&mut self, rule: impl FnMut(&Seen) -> Fate + 'static) {
        self.rule = Box::new(rule);
    }

    /// The message of this kind that comes next meets this fate, all others arrive.
    pub(crate) fn strike(&mut self, attribute: u16, fate: Fate) {
        let mut struck = false;
        self.rule(move |seen| {
            if struck || seen.mad.message.attribute() != attribute {
                return Fate::Arrives;
            }
            struck = true;
            fate
        });
    }

    /// Lets everything happen that is due at once: no timer runs.
    pub(crate) fn settle(&mut self) {
        let until = self.now.after(Span::from_nanos(100 * MS));
        self.run_until(until);
    }

    pub(crate) fn run(&mut self, ns: u64) {
        let until = self.now.after(Span::from_nanos(ns));
        self.run_until(until);
    }

    /// Runs until nothing happens any more.
    pub(crate) fn run_out(&mut self) {
        self.run(EVER_NS);
        let deadlines = self.hcas.iter().filter_map(Hca::poll_timeout);
        assert_eq!(deadlines.count(), 0, "something goes on for ever");
    }

    fn run_until(&mut self, until: Time) {
        loop {
            self.collect();
            let flight = self.flights.keys().next().map(|(at, _)| *at);
            let timers = self.hcas.iter().filter_map(Hca::poll_timeout);
            let Some(next) = timers.chain(flight).min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.flights.first_entry()
                && entry.key().0 <= self.now
            {
                let (from, to, packet, payload) = entry.remove();
                self.deliver(from, to, &packet, &payload);
            }
            for hca in &mut self.hcas {
                hca.handle_timeout(self.now);
            }
        }
        self.now = until;
        self.hcas.iter().for_each(Hca::audit);
    }

    fn collect(&mut self) {
        for from in 0..self.hcas.len() {
            while let Some(packet) = self.hcas[from].poll_transmit(self.now) {
                let mut payload = vec![0; packet.transmit.payload_len as usize];
                assert!(self.hcas[from].gather(&packet, &mut payload));
                let mad = Mad::parse(&payload).unwrap();
                let to = (0..self.hcas.len()).find(|to| address(*to) == packet.path.dest);
                let at = self.now;
                let seen = Seen { at, from, mad };
                let fate = (self.rule)(&seen);
                self.seen.push(seen);
                let Some(to) = to else { continue };
                let mut fly = |late_ns| {
                    self.order += 1;
                    let key = (at.after(Span::from_nanos(LATENCY_NS + late_ns)), self.order);
                    self.flights
                        .insert(key, (from, to, packet.clone(), payload.clone()));
                };
                match fate {
                    Fate::Arrives => fly(0),
                    Fate::Lost => {}
                    Fate::Twice => {
                        fly(0);
                        fly(5 * LATENCY_NS);
                    }
                    Fate::Late(ns) => fly(ns),
                }
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize, packet: &Outgoing, payload: &[u8]) {
        if self.dead[from] || self.dead[to] {
            return;
        }
        let received = Received {
            source: address(from),
            dest: address(to),
            traffic_class: packet.path.traffic_class,
            headers: &packet.transmit.headers,
            data: Data::Bytes(payload),
        };
        self.hcas[to].handle_packet(self.now, &received);
    }

    /// Gives a device a message out of thin air.
    pub(crate) fn inject(
        &mut self,
        source: IpAddr,
        to: usize,
        tid: u64,
        message: impl Into<Message>,
    ) {
        let message = message.into();
        self.inject_bytes(source, to, &Mad { tid, message }.emit());
        self.hcas[to].audit();
    }

    /// [`Self::inject`] without a look at the books, for thousands of messages.
    pub(crate) fn flood(
        &mut self,
        source: IpAddr,
        to: usize,
        tid: u64,
        message: impl Into<Message>,
    ) {
        let message = message.into();
        self.inject_bytes(source, to, &Mad { tid, message }.emit());
    }

    pub(crate) fn inject_bytes(&mut self, source: IpAddr, to: usize, payload: &[u8]) {
        let received = Received {
            source,
            dest: address(to),
            traffic_class: 0,
            headers: &ferroce_wire::cm::headers(Psn::ZERO),
            data: Data::Bytes(payload),
        };
        self.hcas[to].handle_packet(self.now, &received);
    }

    /// Drops what a device has to send.
    pub(crate) fn flush(&mut self, device: usize) {
        while self.hcas[device].poll_transmit(self.now).is_some() {}
    }

    // Calls.

    pub(crate) fn request(&self, from: usize, to: usize, qpn: u32) -> ConnectRequest {
        ConnectRequest {
            dest: address(to),
            source: address(from),
            traffic_class: 0x68,
            service_id: SERVICE,
            ca_guid: from as u64,
            qpn: Qpn::new(qpn),
            starting_psn: Psn::new(qpn + 1),
            transport: Transport::Rc,
            srq: false,
            responder_resources: 4,
            initiator_depth: 3,
            flow_control: true,
            retry_count: 6,
            rnr_retry_count: 5,
            mtu: Mtu::Mtu1024,
            ack_timeout: ack_timeout(16, 18),
            packet_lifetime: 18,
            response_timeout: ConnectRequest::RESPONSE_TIMEOUT,
            max_retries: ConnectRequest::MAX_RETRIES,
            private: Private::new(b"please").unwrap(),
        }
    }

    pub(crate) fn connect(&mut self, qpn: u32) -> CommId {
        let request = self.request(A, B, qpn);
        self.hcas[A].cm_mut().connect(self.now, &request).unwrap()
    }

    pub(crate) fn reply(&self, qpn: u32) -> ConnectReply {
        ConnectReply {
            qpn: Qpn::new(qpn),
            starting_psn: Psn::new(qpn + 2),
            srq: true,
            responder_resources: 2,
            initiator_depth: 1,
            flow_control: false,
            rnr_retry_count: 7,
            target_ack_delay: 16,
            ca_guid: 99,
            private: Private::new(b"gladly").unwrap(),
        }
    }

    pub(crate) fn accept(&mut self, comm: CommId, qpn: u32) {
        let reply = self.reply(qpn);
        self.hcas[B]
            .cm_mut()
            .accept(self.now, comm, &reply)
            .unwrap();
    }

    pub(crate) fn ready(&mut self, comm: CommId) {
        let private = Private::new(b"ready").unwrap();
        self.hcas[A].cm_mut().ready(comm, private).unwrap();
    }

    pub(crate) fn disconnect(&mut self, device: usize, comm: CommId) -> Result<(), CmError> {
        let private = Private::new(b"bye").unwrap();
        self.hcas[device]
            .cm_mut()
            .disconnect(self.now, comm, private)
    }

    pub(crate) fn destroy(&mut self, device: usize, comm: CommId) {
        self.hcas[device].cm_mut().destroy(self.now, comm).unwrap();
        self.hcas[device].audit();
    }

    pub(crate) fn sidr_request(&mut self) -> CommId {
        let request = SidrRequest {
            dest: address(B),
            traffic_class: 0x68,
            service_id: SERVICE,
            packet_lifetime: 18,
            response_timeout: 20,
            max_retries: 15,
            private: Private::new(b"who?").unwrap(),
        };
        self.hcas[A]
            .cm_mut()
            .sidr_request(self.now, &request)
            .unwrap()
    }

    /// A connection that both sides take for established.
    pub(crate) fn connected(&mut self, qpns: [u32; 2]) -> [CommId; 2] {
        let active = self.connect(qpns[A]);
        let passive = self.until_request();
        self.accept(passive, qpns[B]);
        self.until(A, |kind| matches!(kind, CmEventKind::Reply { .. }));
        self.ready(active);
        self.until(B, |kind| matches!(kind, CmEventKind::Established { .. }));
        self.settle();
        [active, passive]
    }

    pub(crate) fn until_request(&mut self) -> CommId {
        let is_request = |kind: &CmEventKind| {
            matches!(
                kind,
                CmEventKind::Request { .. } | CmEventKind::SidrRequest { .. }
            )
        };
        self.until(B, is_request).comm
    }

    /// Runs until the device's next event, which must be such a one.
    pub(crate) fn until(
        &mut self,
        device: usize,
        expected: impl Fn(&CmEventKind) -> bool,
    ) -> CmEvent {
        for _ in 0..30_000 {
            if let Some(event) = self.hcas[device].poll_cm_event() {
                assert!(expected(&event.kind), "{event:?}");
                return event;
            }
            self.run(10 * MS);
        }
        panic!("no event; on the wire was {:#?}", self.messages());
    }

    /// Everything that the device has to tell.
    pub(crate) fn events(&mut self, device: usize) -> Vec<CmEventKind> {
        let hca = &mut self.hcas[device];
        std::iter::from_fn(|| hca.poll_cm_event())
            .map(|event| event.kind)
            .collect()
    }

    pub(crate) fn announced(&mut self, device: usize) -> usize {
        let hca = &mut self.hcas[device];
        let events = std::iter::from_fn(|| hca.poll_event());
        events
            .filter(|event| *event == Event::ConnectionManager)
            .count()
    }

    pub(crate) fn state(&self, device: usize, comm: CommId) -> Option<CmState> {
        let mut connections = self.hcas[device].cm().connections();
        connections
            .find(|info| info.comm == comm)
            .map(|info| info.state)
    }

    pub(crate) fn count(&self, device: usize) -> usize {
        self.hcas[device].cm().connections().count()
    }

    pub(crate) fn counter(&self, device: usize, counter: Counter) -> u64 {
        self.hcas[device].state().counter(counter)
    }

    /// Sender and kind of everything that was sent.
    pub(crate) fn messages(&self) -> Vec<(usize, u16)> {
        let kind = |seen: &Seen| (seen.from, seen.mad.message.attribute());
        self.seen.iter().map(kind).collect()
    }

    /// When messages of this kind were sent, in nanoseconds since the first one.
    pub(crate) fn times(&self, attribute: u16) -> Vec<u64> {
        let of_kind = |seen: &&Seen| seen.mad.message.attribute() == attribute;
        let mut times = self.seen.iter().filter(of_kind).map(|seen| seen.at);
        let Some(first) = times.next() else {
            return Vec::new();
        };
        std::iter::once(0)
            .chain(times.map(|at| at.since(first).as_nanos()))
            .collect()
    }
}

//! Devices on a wire in memory, with virtual time, whose connection managers exchange messages.

use std::net::IpAddr;

use ferroce_device::cm::{
    CmError, CmEvent, CmEventKind, CmState, CommId, ConnectReply, ConnectRequest, SidrRequest,
    Transport, ack_timeout,
};
use ferroce_device::{
    Counter, Data, Ece, Event, Hca, HcaConfig, Mtu, Received, Secret, Span, Time,
};
use ferroce_testing::flight::Flight;
pub(crate) use ferroce_testing::{A, B, Fate};
use ferroce_testing::{Side, World};
use ferroce_wire::cm::{Bits, Mad, Message, PortSpace, Private, Req, ServiceId};
use ferroce_wire::{Psn, Qpn};

pub(crate) const SERVICE: ServiceId = ServiceId::new(PortSpace::Tcp, 7174);

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000 * MS;
const LATENCY_NS: u64 = 10_000;
/// Longer than the last timer of any test.
const EVER_NS: u64 = 10_000 * S;

/// How long Linux waits for an answer on a RoCE path: 2 · 4.096 µs · 2^18 + 4.096 µs · 2^20.
pub(crate) const WAIT_NS: u64 = 4_096 * (2 * (1 << 18) + (1 << 20));

/// A message arrives twice.
pub(crate) const TWICE: Fate = Fate::Twice(5 * LATENCY_NS);

/// A message on the wire, with its time and sender.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Time,
    pub(crate) from: usize,
    pub(crate) mad: Mad,
}

pub(crate) struct Net {
    pub(crate) world: World,
    /// Everything that was sent, to any destination.
    pub(crate) seen: Vec<Seen>,
}

/// What the side with this queue pair offers or chooses.
pub(crate) fn ece(qpn: u32) -> Ece {
    Ece {
        vendor_id: 0x12_3456,
        options: qpn << 20,
    }
}

pub(crate) fn address(device: usize) -> IpAddr {
    IpAddr::from([127, 13, 0, 1 + device as u8])
}

/// A request with its source's GID and a valid path MTU.
pub(crate) fn req_of(source: IpAddr) -> Req {
    Req {
        local_gid: source.into(),
        mtu: Bits::saturating(3),
        ..Req::default()
    }
}

impl Net {
    /// Two devices; the second listens on [`SERVICE`].
    pub(crate) fn new() -> Self {
        let mut net = Self::of(2);
        net.world.sides[B].hca.cm_mut().listen(SERVICE, 16).unwrap();
        net
    }

    pub(crate) fn of(devices: usize) -> Self {
        let side = |device: usize| {
            let hca = Hca::new(HcaConfig {
                slot: 1,
                port_mtu: Mtu::Mtu2048,
                secret: Some(Secret::new(device as u128)),
                ..HcaConfig::default()
            });
            let mut side = Side::on(device as u8, hca);
            side.address = address(device);
            side
        };
        let mut world = World::of((0..devices).map(side));
        world.now = Time::from_nanos(S);
        world.net().set_latency(Span::from_nanos(LATENCY_NS));
        world.log = Some(Vec::new());
        // After each run.
        world.audit_every = u64::MAX;
        let seen = Vec::new();
        Self { world, seen }
    }

    /// From now on, `rule` decides the fate of each message.
    pub(crate) fn rule(&mut self, mut rule: impl FnMut(&Mad) -> Fate + Send + 'static) {
        self.world.net().rules.clear();
        let mad = |payload: &[u8]| Mad::parse(payload).unwrap();
        let rule = move |flight: &Flight| Some(rule(&mad(flight.payload())));
        self.world.net().rules.add(rule);
    }

    /// The next message of this kind meets this fate; all others arrive.
    pub(crate) fn strike(&mut self, attribute: u16, fate: Fate) {
        let mut struck = false;
        self.rule(move |mad| {
            if struck || mad.message.attribute() != attribute {
                return Fate::Arrives;
            }
            struck = true;
            fate
        });
    }

    /// Cuts a device off: it neither receives nor sends any more.
    pub(crate) fn kill(&mut self, device: usize) {
        let side = &mut self.world.sides[device];
        (side.deaf, side.mute) = (true, true);
    }

    /// Runs everything that is due now, without a timer.
    pub(crate) fn settle(&mut self) {
        self.run(100 * MS);
    }

    pub(crate) fn run(&mut self, ns: u64) {
        self.world.run_for(ns);
        let log = self.world.log.as_mut().unwrap();
        let seen = log.drain(..).map(|sent| Seen {
            at: sent.at,
            from: sent.from,
            mad: Mad::parse(&sent.payload).unwrap(),
        });
        self.seen.extend(seen);
        self.world.sides.iter().for_each(|side| side.hca.audit());
    }

    /// Runs until nothing happens any more.
    pub(crate) fn run_out(&mut self) {
        self.run(EVER_NS);
        let mut sides = self.world.sides.iter();
        let goes_on = sides.any(|side| side.hca.poll_timeout().is_some());
        assert!(!goes_on, "something goes on for ever");
    }

    /// Delivers a message that no device sent.
    pub(crate) fn inject(
        &mut self,
        source: IpAddr,
        to: usize,
        tid: u64,
        message: impl Into<Message>,
    ) {
        let message = message.into();
        self.inject_bytes(source, to, &Mad { tid, message }.emit());
        self.world.sides[to].hca.audit();
    }

    /// [`Self::inject`] without audits, for thousands of messages.
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
        self.inject_between(source, address(to), to, payload);
    }

    /// [`Self::inject_bytes`] to a receiver with this address.
    pub(crate) fn inject_between(
        &mut self,
        source: IpAddr,
        dest: IpAddr,
        to: usize,
        payload: &[u8],
    ) {
        let received = Received {
            source,
            dest,
            traffic_class: 0,
            sl: 0,
            headers: &ferroce_wire::cm::headers(Psn::ZERO),
            data: Data::Bytes(payload),
            port: 1,
        };
        self.world.sides[to]
            .hca
            .handle_packet(self.world.now, &received);
    }

    /// Drops what a device has to send.
    pub(crate) fn flush(&mut self, device: usize) {
        while self.world.sides[device]
            .hca
            .poll_transmit(self.world.now)
            .is_some()
        {}
    }

    // Calls.

    pub(crate) fn request(&self, from: usize, to: usize, qpn: u32) -> ConnectRequest {
        ConnectRequest {
            dest: address(to),
            source: address(from),
            traffic_class: 0x68,
            sl: 2,
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
            ece: ece(qpn),
            private: Private::new(b"please").unwrap(),
            port: 1,
        }
    }

    pub(crate) fn connect(&mut self, qpn: u32) -> CommId {
        let request = self.request(A, B, qpn);
        self.world.sides[A]
            .hca
            .cm_mut()
            .connect(self.world.now, &request)
            .unwrap()
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
            ece: ece(qpn),
            private: Private::new(b"gladly").unwrap(),
        }
    }

    pub(crate) fn accept(&mut self, comm: CommId, qpn: u32) {
        let reply = self.reply(qpn);
        self.world.sides[B]
            .hca
            .cm_mut()
            .accept(self.world.now, comm, &reply)
            .unwrap();
    }

    pub(crate) fn ready(&mut self, comm: CommId) {
        let private = Private::new(b"ready").unwrap();
        self.world.sides[A]
            .hca
            .cm_mut()
            .ready(comm, private)
            .unwrap();
    }

    pub(crate) fn disconnect(&mut self, device: usize, comm: CommId) -> Result<(), CmError> {
        let private = Private::new(b"bye").unwrap();
        self.world.sides[device]
            .hca
            .cm_mut()
            .disconnect(self.world.now, comm, private)
    }

    pub(crate) fn destroy(&mut self, device: usize, comm: CommId) {
        self.world.sides[device]
            .hca
            .cm_mut()
            .destroy(self.world.now, comm)
            .unwrap();
        self.world.sides[device].hca.audit();
    }

    pub(crate) fn sidr_request(&mut self) -> CommId {
        let request = SidrRequest {
            dest: address(B),
            traffic_class: 0x68,
            sl: 2,
            service_id: SERVICE,
            packet_lifetime: 18,
            response_timeout: 20,
            max_retries: 15,
            private: Private::new(b"who?").unwrap(),
            port: 1,
        };
        self.world.sides[A]
            .hca
            .cm_mut()
            .sidr_request(self.world.now, &request)
            .unwrap()
    }

    /// A connection that both sides consider established.
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

    /// Runs until the device's next event, which must match.
    pub(crate) fn until(
        &mut self,
        device: usize,
        expected: impl Fn(&CmEventKind) -> bool,
    ) -> CmEvent {
        for _ in 0..30_000 {
            if let Some(event) = self.world.sides[device].hca.poll_cm_event() {
                assert!(expected(&event.kind), "{event:?}");
                return event;
            }
            self.run(10 * MS);
        }
        panic!("no event; on the wire was {:#?}", self.messages());
    }

    /// All events of the device.
    pub(crate) fn events(&mut self, device: usize) -> Vec<CmEventKind> {
        let hca = &mut self.world.sides[device].hca;
        std::iter::from_fn(|| hca.poll_cm_event())
            .map(|event| event.kind)
            .collect()
    }

    /// What the device has reported since the last call.
    pub(crate) fn told(&mut self, device: usize) -> Vec<Event> {
        let now = self.world.now;
        let side = &mut self.world.sides[device];
        side.collect(None, now);
        std::mem::take(&mut side.events)
    }

    pub(crate) fn announced(&mut self, device: usize) -> usize {
        let announced = |event: &Event| *event == Event::ConnectionManager;
        self.told(device).into_iter().filter(announced).count()
    }

    pub(crate) fn state(&self, device: usize, comm: CommId) -> Option<CmState> {
        let mut connections = self.world.sides[device].hca.cm().connections();
        connections
            .find(|info| info.comm == comm)
            .map(|info| info.state)
    }

    pub(crate) fn count(&self, device: usize) -> usize {
        self.world.sides[device].hca.cm().connections().count()
    }

    pub(crate) fn counter(&self, device: usize, counter: Counter) -> u64 {
        self.world.sides[device].hca.state().counter(counter)
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

use std::collections::VecDeque;
use std::net::IpAddr;

use ferroce_adp::{DecTrigger, Policy, PolicyKind};
use ferroce_dcqcn::Rate;
use ferroce_dcqcn::np::CnpTimer;
use ferroce_transport::{
    Attr, Counter, Mtu, Path, Payload, Qp, QpAttr, QpModify, QpState, Segment, Time,
};
use ferroce_wire::{Opcode, Qpn, Service};

use crate::cm::Cm;
use crate::congestion::{Congestion, Limiter};
use crate::cq::{Cq, Unpolled};
use crate::event::Event;
use crate::grh::grh;
use crate::group::Groups;
use crate::host::{QpHost, Ties};
use crate::impair::{Direction, Impairer, Impairment, Passenger, Release};
use crate::limits;
use crate::mr::KeyTable;
use crate::numbers::Numbers;
use crate::packet::{CE, Held, Outgoing, Received, frame_bytes};
use crate::register::{Method, RegisterError};
use crate::srq::Srq;
use crate::state::{CounterSlab, DeviceState, SettingError, Settings, StateBlock, WriteLockError};
use crate::table::Table;
use crate::timers::Timers;

/// Packets that one queue pair sends before the next one gets its turn: a GSO burst.
const BURST_PACKETS: u32 = 64;

/// Behaviour of the device's firmware that no register controls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Personality {
    /// Whether adaptive retransmission is on after a reset (`roce_adp_retrans_en`).
    pub adaptive: bool,
    /// How many times its ACK timeout a queue pair waits when adaptive retransmission is off,
    /// 1 to 4 (D23).
    pub ib_multiplier: u8,
    /// Smallest ACK timeout code that counts, unless the limit is disabled (D8).
    pub min_ack_timeout: u8,
    /// Whether the firmware's own ladder has the coarse steps of real timers (D24).
    pub quantiser: bool,
    /// First exponent of the firmware's own ladder; drawn when `None`.
    pub initial_exponent: Option<u8>,
    /// When a profile's timeout shrinks (D17).
    pub dec_trigger: DecTrigger,
    /// Whether a profile's ranges end below their upper bound (D2).
    pub range_bound_exclusive: bool,
}

impl Default for Personality {
    fn default() -> Self {
        Self {
            adaptive: true,
            ib_multiplier: 1,
            min_ack_timeout: 16,
            quantiser: false,
            initial_exponent: None,
            dec_trigger: DecTrigger::PerProgress,
            range_bound_exclusive: false,
        }
    }
}

/// What a device is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HcaConfig {
    /// Seed of everything random in the device (D26).
    pub seed: u64,
    /// Upper 8 bits of the numbers of queue pairs and shared receive queues, and of the connection
    /// manager's names. Devices that share an address have different slots.
    pub slot: u8,
    /// Low 16 bits of the first of these numbers, 2 to 0xfffe; the others follow, at the end from 2
    /// on. If each owner of a slot begins elsewhere, late packets for the last one meet nobody.
    pub first_number: u16,
    /// Queue pairs at a time, at most [`limits::MAX_QP`].
    pub max_qp: u32,
    /// MTU of the port: the longest datagram, and the largest path MTU.
    pub port_mtu: Mtu,
    /// Bytes that each queue pair keeps in flight at most.
    pub window_bytes: u32,
    /// Bytes that all of them together keep in flight, roughly: every busy one gets its share,
    /// but not less than [`Qp::WINDOW_BYTES_MIN`]. Below the receive buffer of a peer's socket
    /// nothing is lost for want of room.
    pub total_window_bytes: u32,
    /// Speed of the port, above which congestion control limits nobody. Nothing else keeps to it.
    pub speed: Rate,
    /// Firmware behaviour.
    pub personality: Personality,
    /// Report every timer expiry as [`Event::TimerExpired`].
    pub trace_timers: bool,
    /// Where the lower 24 bits of the connection manager's names begin. A process that may have had
    /// a predecessor in its slot takes a random number, because peers may remember the
    /// predecessor's names.
    pub cm_start: u32,
}

impl Default for HcaConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            slot: 0,
            first_number: 0x100,
            max_qp: limits::MAX_QP,
            port_mtu: Mtu::Mtu4096,
            window_bytes: 1 << 20,
            total_window_bytes: 2 << 20,
            speed: Rate::from_mbps(100_000),
            personality: Personality::default(),
            trace_timers: false,
            cm_start: 1,
        }
    }
}

/// A queue pair and what the device knows about it.
#[derive(Debug)]
pub(crate) struct QpEntry {
    pub(crate) qp: Qp,
    pub(crate) ties: Ties,
    pub(crate) unpolled: Unpolled,
    pub(crate) path: Option<Path>,
    /// How often it is open (`ibv_open_qp`).
    pub(crate) handles: u32,
    /// The address from which its own multicasts come back, if it wants none of them.
    pub(crate) blocked_echo: Option<IpAddr>,
    /// Of the CNPs that answer its packets.
    pub(crate) cnp_timer: CnpTimer,
    /// CNPs of its peers that it has heeded.
    pub(crate) cnps: u32,
    /// While its peer's CNPs slow it down.
    pub(crate) limiter: Option<Box<Limiter>>,
    /// Its entry in the timer heap.
    timer_at: Option<Time>,
    /// It is on the ready list.
    ready: bool,
}

const _: () = {
    // Its place in the table, and two entries in the timer heap.
    let around = size_of::<usize>() + 2 * size_of::<(Time, u32)>();
    assert!(size_of::<QpEntry>() + around <= 1024, "a QP at rest");
    let device = size_of::<Hca>() + size_of::<StateBlock>() + size_of::<CounterSlab>();
    assert!(device <= 8192, "a device at rest");
};

impl QpEntry {
    pub(crate) fn new(qp: Qp, ties: Ties) -> Self {
        Self {
            qp,
            ties,
            unpolled: Unpolled::default(),
            path: None,
            handles: 1,
            blocked_echo: None,
            cnp_timer: CnpTimer::default(),
            cnps: 0,
            limiter: None,
            timer_at: None,
            ready: false,
        }
    }

    /// When it wants to be looked at: a timeout, or the end of a limiter's wait.
    fn deadline(&self) -> Option<Time> {
        let turn = self.limiter.as_ref().and_then(|it| it.wait_until());
        let timeout = self.qp.poll_timeout();
        match (timeout, turn) {
            (Some(timeout), Some(turn)) => Some(timeout.min(turn)),
            (either, None) | (None, either) => either,
        }
    }
}

/// A RoCE device; see the crate's documentation for the order of calls.
#[derive(Debug)]
pub struct Hca {
    pub(crate) config: HcaConfig,
    pub(crate) numbers: Numbers,
    pub(crate) state: DeviceState,
    /// The generation of the settings that are in force.
    generation: u32,
    pub(crate) policy: Policy,
    /// The DSCP with which acknowledgements leave, if it is not that of their queue pair.
    ack_dscp: Option<u8>,
    /// Users of each protection domain.
    pub(crate) pds: Table<u32>,
    /// Users of each XRC domain.
    pub(crate) xrcds: Table<u32>,
    /// Memory regions and windows.
    pub(crate) keys: KeyTable,
    pub(crate) cqs: Table<Cq>,
    pub(crate) srqs: Table<Srq>,
    pub(crate) qps: Table<Box<QpEntry>>,
    pub(crate) groups: Groups,
    timers: Timers,
    /// Queue pairs that may have something to send.
    ready: VecDeque<u32>,
    /// Packets the queue pair at the front may still send before it goes to the back.
    burst_left: u32,
    /// Queue pairs that have something in flight.
    pub(crate) busy: u32,
    egress: Impairer<Outgoing>,
    ingress: Impairer<Held>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) congestion: Congestion,
    pub(crate) cm: Cm,
    /// [`Event::ConnectionManager`] was told and its events not yet all taken.
    pub(crate) cm_told: bool,
    pub(crate) now: Time,
}

impl Hca {
    /// A device after power-on that nobody shares.
    pub fn new(config: HcaConfig) -> Self {
        let state = DeviceState::new(config.personality);
        Self::with_state(config, state)
    }

    /// A device that finds its registers, personality, impairments and counters in `state`; the
    /// configuration's personality is not used.
    pub fn with_state(mut config: HcaConfig, state: DeviceState) -> Self {
        config.max_qp = config.max_qp.min(limits::MAX_QP);
        let mut policy = Policy::new(PolicyKind::FIRMWARE);
        policy.seed = config.seed;
        let (generation, settings) = state.settings();
        let mut hca = Self {
            numbers: Numbers::new(config.slot, config.first_number),
            config,
            policy,
            ack_dscp: None,
            generation,
            state,
            pds: Table::new(limits::MAX_PD),
            xrcds: Table::new(limits::MAX_XRCD),
            keys: KeyTable::new(),
            cqs: Table::new(limits::MAX_CQ),
            srqs: Table::new(limits::MAX_SRQ),
            qps: Table::new(config.max_qp),
            groups: Groups::default(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            burst_left: BURST_PACKETS,
            busy: 0,
            egress: Impairer::new(Direction::Egress, config.seed ^ 0x9e37_79b9_7f4a_7c15),
            ingress: Impairer::new(Direction::Ingress, config.seed ^ 0xd1b5_4a32_d192_ed03),
            events: VecDeque::new(),
            congestion: Congestion::new(&settings.congestion, config.speed),
            cm: Cm::new(config.slot, config.cm_start),
            cm_told: false,
            now: Time::ZERO,
        };
        hca.apply(settings);
        hca
    }

    /// What the device was made with.
    pub fn config(&self) -> &HcaConfig {
        &self.config
    }

    /// Registers, personality, impairments, histogram and counters, for observers.
    pub fn state(&self) -> &DeviceState {
        &self.state
    }

    /// The retransmission policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    // Control.

    /// See [`DeviceState::access_register`]. What is written acts at once.
    pub fn access_register(
        &mut self,
        id: u16,
        method: Method,
        data: &mut [u8],
    ) -> Result<(), RegisterError> {
        self.state.access_register(id, method, data)?;
        self.refresh();
        Ok(())
    }

    /// See [`DeviceState::firmware_reset`].
    pub fn firmware_reset(&mut self) -> Result<(), WriteLockError> {
        self.state.firmware_reset()?;
        self.refresh();
        Ok(())
    }

    /// See [`DeviceState::reset_registers`].
    pub fn reset_registers(&mut self) -> Result<(), WriteLockError> {
        self.state.reset_registers()?;
        self.refresh();
        Ok(())
    }

    /// See [`DeviceState::set_impairment`].
    pub fn set_impairment(
        &mut self,
        direction: Direction,
        impairment: Impairment,
    ) -> Result<(), SettingError> {
        self.state.set_impairment(direction, impairment)?;
        self.refresh();
        Ok(())
    }

    /// Takes over what was set, by this host or another one.
    #[inline]
    fn refresh(&mut self) {
        if self.state.generation() != self.generation {
            let (generation, settings) = self.state.settings();
            self.generation = generation;
            self.apply(settings);
        }
    }

    #[cold]
    fn apply(&mut self, settings: Settings) {
        let personality = settings.personality;
        self.config.personality = personality;
        self.policy.dec_trigger = personality.dec_trigger;
        self.policy.range_bound_exclusive = personality.range_bound_exclusive;
        let register = settings.accelerations(self.state.function());
        register.apply(&personality, &mut self.policy);
        self.ack_dscp = register.ack_dscp();
        self.congestion.set(&settings.congestion, self.config.speed);
        let (now, state) = (self.now, &self.state);
        self.egress.set(settings.egress, now, state);
        self.ingress.set(settings.ingress, now, state);
    }

    /// What the link does to packets in one direction.
    pub fn impairment(&self, direction: Direction) -> &Impairment {
        match direction {
            Direction::Egress => self.egress.impairment(),
            Direction::Ingress => self.ingress.impairment(),
        }
    }

    /// Adds to a counter; for what the host sees and the device cannot (a wrong ICRC, a packet
    /// that does not parse or that the socket refused).
    pub fn count(&mut self, counter: Counter, n: u64) {
        self.state.count(counter, n);
    }

    // Input.

    /// Takes a packet from the link.
    pub fn handle_packet(&mut self, now: Time, packet: &Received<'_>) {
        self.now = now;
        self.refresh();
        if self.ingress.is_clear() {
            self.deliver(packet);
            return;
        }
        self.receive_impaired(packet);
        self.release_received();
    }

    fn receive_impaired(&mut self, packet: &Received<'_>) {
        let bytes = frame_bytes(packet.headers, packet.data.len());
        match self.ingress.admit(self.now, bytes, &self.state) {
            None => {}
            Some(Release::Now(damage)) => {
                let mut packet = *packet;
                if damage.ecn_mark {
                    packet.traffic_class |= CE;
                }
                self.deliver_unless(damage.corrupt_bit.is_some(), &packet);
            }
            Some(Release::Later(later)) => self.ingress.hold(later, Held::new(packet)),
        }
    }

    /// Delivers the packets that the impairment held back until now.
    fn release_received(&mut self) {
        while let Some(packet) = self.ingress.poll(self.now, &self.state) {
            self.deliver_unless(packet.corrupt, &packet.as_received());
        }
    }

    fn deliver_unless(&mut self, corrupt: bool, packet: &Received<'_>) {
        if corrupt {
            self.state.count(Counter::RxIcrcEncapsulated, 1);
        } else {
            self.deliver(packet);
        }
    }

    fn deliver(&mut self, packet: &Received<'_>) {
        let qpn = packet.headers.bth.dest_qp;
        if packet.headers.bth.opcode == Opcode::Cnp {
            self.deliver_cnp(packet);
        } else if qpn == Qpn::GSI {
            self.deliver_mad(packet);
        } else if qpn == Qpn::MULTICAST {
            self.deliver_to_group(packet);
        } else if packet.dest.is_multicast() {
            // What is for one queue pair has no business in a group.
            self.state.count(Counter::RxUnknownQp, 1);
        } else {
            self.deliver_to(qpn, packet);
        }
    }

    /// A copy for each queue pair attached to the group (IBA vol 1, 10.5.2.1).
    fn deliver_to_group(&mut self, packet: &Received<'_>) {
        let mut index = 0;
        while let Some(&qpn) = self.groups.members(packet.dest).get(index) {
            if !self.is_blocked_echo(qpn, packet) {
                self.deliver_to(qpn, packet);
            }
            index += 1;
        }
        if index == 0 {
            self.state.count(Counter::RxUnknownQp, 1);
        }
    }

    /// Whether a multicast is the queue pair's own and it does not want to hear those.
    fn is_blocked_echo(&self, qpn: Qpn, packet: &Received<'_>) -> bool {
        let blocked = self.qp_entry(qpn).and_then(|entry| entry.blocked_echo);
        let sender = packet.headers.deth.map(|deth| deth.src_qp);
        blocked == Some(packet.source) && sender == Some(qpn)
    }

    fn deliver_to(&mut self, qpn: Qpn, packet: &Received<'_>) {
        if let Err(cause) = self.check(qpn, packet) {
            self.state.count(cause, 1);
            return;
        }
        let state = &self.state;
        state.count(Counter::RdmaRxPackets, 1);
        state.count(Counter::RdmaRxBytes, packet.data.len().into());
        if packet.dest.is_multicast() {
            state.count(Counter::RxMulticastPackets, 1);
        }
        if packet.traffic_class & CE == CE {
            self.answer_mark(qpn, packet);
        }
        let (now, headers, data) = (self.now, packet.headers, packet.data);
        if headers.bth.opcode.service() == Service::Ud {
            let grh = grh(packet);
            self.with_qp(qpn, |qp, host| {
                qp.handle_datagram(headers, &grh, data, host)
            });
        } else {
            self.with_qp(qpn, |qp, host| qp.handle_packet(now, headers, data, host));
        }
    }

    /// Whether the queue pair may have the packet, or why not.
    fn check(&self, qpn: Qpn, packet: &Received<'_>) -> Result<(), Counter> {
        let bth = &packet.headers.bth;
        let entry = self.qp_entry(qpn).ok_or(Counter::RxUnknownQp)?;
        let qp_type = entry.qp.config().qp_type;
        if !qp_type.takes(bth.opcode) {
            return Err(Counter::RxWrongService);
        }
        if !entry.qp.takes_packets() {
            return Err(Counter::RxWrongState);
        }
        let is_peer = |path: Path| path.dest == packet.source;
        if qp_type.is_connected() && !entry.path.is_some_and(is_peer) {
            return Err(Counter::RxWrongPeer);
        }
        // The default partition, as full or limited member.
        if bth.pkey | 0x8000 != ferroce_wire::PKEY_DEFAULT {
            return Err(Counter::RxWrongPkey);
        }
        Ok(())
    }

    /// Tells the device what time it is: lets timers run out and releases packets that the
    /// impairment held back.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.refresh();
        self.release_received();
        self.cm.handle_timeout(now);
        self.tell_cm();
        while let Some((at, index)) = self.timers.pop_due(now) {
            let Some(entry) = self.qps.get_mut(index) else {
                continue;
            };
            if entry.timer_at != Some(at) {
                continue; // an earlier owner of this index, or replaced by an earlier entry
            }
            entry.timer_at = None;
            let turn = entry.limiter.as_mut().is_some_and(|it| it.wake(now));
            if entry
                .qp
                .poll_timeout()
                .is_some_and(|deadline| deadline <= now)
            {
                let qpn = entry.qp.qpn();
                self.with_qp(qpn, |qp, host| qp.handle_timeout(now, host));
            } else {
                if turn {
                    self.make_ready(index);
                }
                self.settle(index);
            }
        }
    }

    // Output.

    /// The next packet for the link.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let mut packet = Outgoing::empty();
        self.poll_transmit_into(now, &mut packet).then_some(packet)
    }

    /// [`Self::poll_transmit`] for hosts that make bytes of each packet at once, and keep the room
    /// for one: packets are large. False: there is none, and `out` holds nothing of use.
    pub fn poll_transmit_into(&mut self, now: Time, out: &mut Outgoing) -> bool {
        self.now = now;
        self.refresh(); // timers are armed here
        let made = if self.egress.is_clear() {
            self.next_packet(now, out)
        } else {
            self.poll_impaired(now, out)
        };
        if made {
            let bytes = out.transmit.payload_len;
            self.state.count(Counter::RdmaTxPackets, 1);
            self.state.count(Counter::RdmaTxBytes, bytes.into());
            if out.path.dest.is_multicast() {
                self.state.count(Counter::TxMulticastPackets, 1);
            }
        }
        made
    }

    fn poll_impaired(&mut self, now: Time, out: &mut Outgoing) -> bool {
        loop {
            if let Some(packet) = self.egress.poll(now, &self.state) {
                *out = packet;
                return true;
            }
            if !self.next_packet(now, out) {
                return false;
            }
            if self.send_impaired(out) {
                return true;
            }
        }
    }

    fn next_packet(&mut self, now: Time, out: &mut Outgoing) -> bool {
        if self.congestion.wants_transmit() {
            self.poll_cnp(out)
        } else if self.cm.wants_transmit() {
            self.poll_mad(out)
        } else {
            self.poll_ready(now, out)
        }
    }

    /// Puts a packet on the impaired link; tells whether it passes at once.
    fn send_impaired(&mut self, packet: &mut Outgoing) -> bool {
        let bytes = packet.frame_bytes();
        match self.egress.admit(self.now, bytes, &self.state) {
            None => false,
            Some(Release::Now(damage)) => {
                packet.suffer(&damage);
                true
            }
            Some(Release::Later(later)) => {
                let mut packet = packet.clone();
                self.detach(&mut packet);
                self.egress.hold(later, packet);
                false
            }
        }
    }

    /// The next packet of the queue pair whose turn it is.
    fn poll_ready(&mut self, now: Time, out: &mut Outgoing) -> bool {
        loop {
            let Some(&index) = self.ready.front() else {
                return false;
            };
            if self.burst_left > 0 && self.poll_qp(index, now, out) {
                self.burst_left -= 1;
                return true;
            }
            self.next_turn(index);
        }
    }

    fn poll_qp(&mut self, index: u32, now: Time, out: &mut Outgoing) -> bool {
        let Some(entry) = self.qps.get(index) else {
            return false;
        };
        let (path, limited) = (entry.path, entry.limiter.is_some());
        let share = self.config.total_window_bytes / self.busy.max(1);
        let mut share = share.max(Qp::WINDOW_BYTES_MIN);
        if limited {
            match self.limited_window(index, now, share) {
                Some(window) => share = window,
                None => return false,
            }
        }
        let made = self.with_index(index, |qp, host| {
            qp.share_window(share);
            let made = qp.poll_transmit(now, host, &mut out.transmit);
            out.opener = host.opener();
            made
        });
        // A datagram has a path of its own, and nobody slows datagrams down; any other queue pair has
        // one from RTR on, and sends nothing before.
        let flow = path.map(|path| self.congestion.mark_capable(path));
        let Some(path) = out.transmit.path.or(flow).filter(|_| made == Some(true)) else {
            return false;
        };
        (out.path, out.corrupt_bit) = (path, None);
        if let Some(dscp) = self.ack_dscp {
            out.force_ack_dscp(dscp);
        }
        if limited {
            self.charge(index, now, out);
        }
        true
    }

    /// Ends the turn of the queue pair at the front of the ready list. It goes to the back if its
    /// burst was cut short, and off the list if it had nothing to send.
    fn next_turn(&mut self, index: u32) {
        self.ready.pop_front();
        let cut_short = self.burst_left == 0;
        self.burst_left = BURST_PACKETS;
        if let Some(entry) = self.qps.get_mut(index) {
            entry.ready = cut_short;
            if cut_short {
                self.ready.push_back(index);
            }
        }
    }

    /// Copies the payload out of memory, for a packet that is to be sent after more inputs: its
    /// work request may have completed (UC and UD do at once), and the memory be the program's
    /// again. Where there are no bytes (phantom memory), none are carried.
    pub fn detach(&self, packet: &mut Outgoing) {
        if let Payload::Memory(segments) = &packet.transmit.payload {
            if segments.iter().all(|segment| self.keys.is_phantom(segment)) {
                packet.transmit.payload = Payload::Empty;
                return;
            }
            let mut bytes = vec![0; packet.transmit.payload_len as usize];
            if self.gather(packet, &mut bytes) {
                packet.transmit.payload = Payload::Inline(bytes.into());
            }
        }
    }

    /// Copies a packet's payload into `out`, which is exactly as long. False if the memory was
    /// taken away since [`Self::poll_transmit`] returned the packet, which a host that sends
    /// before it does anything else never sees.
    #[must_use]
    pub fn gather(&self, packet: &Outgoing, out: &mut [u8]) -> bool {
        match &packet.transmit.payload {
            Payload::Empty => {
                out.fill(0); // phantom memory reads as zeros
                true
            }
            Payload::Inline(bytes) => {
                out.copy_from_slice(bytes);
                true
            }
            Payload::Memory(segments) => {
                let Some(opener) = packet.opener else {
                    return false;
                };
                let mut rest = out;
                segments.iter().all(|segment: &Segment| {
                    let (piece, tail) =
                        std::mem::take(&mut rest).split_at_mut(segment.len as usize);
                    rest = tail;
                    self.keys.read(opener, segment, piece).is_ok()
                })
            }
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called, or [`Self::poll_transmit`] again for a
    /// packet that an impairment holds back.
    pub fn poll_timeout(&self) -> Option<Time> {
        let cm = self.cm.poll_timeout();
        [
            self.timers.next(),
            self.egress.next(),
            self.ingress.next(),
            cm,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether an impairment holds packets back that left the device, so that it must live on for
    /// them to arrive.
    pub fn holds_sent_packets(&self) -> bool {
        self.egress.next().is_some()
    }

    /// Whether [`Self::poll_transmit`] may have something at once.
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || self.cm.wants_transmit() || self.congestion.wants_transmit()
    }

    // Queue pairs.

    pub(crate) fn qp_index(&self, qpn: Qpn) -> Option<u32> {
        self.numbers.index(qpn.value())
    }

    pub(crate) fn qp_entry(&self, qpn: Qpn) -> Option<&QpEntry> {
        self.qps.get(self.qp_index(qpn)?).map(|entry| &**entry)
    }

    pub(crate) fn qp_entry_mut(&mut self, qpn: Qpn) -> Option<&mut QpEntry> {
        let index = self.qp_index(qpn)?;
        self.qps.get_mut(index).map(|entry| &mut **entry)
    }

    /// Runs `f` on a queue pair with the device around it, then books what it left behind: its
    /// deadline, and that it may have something to send.
    pub(crate) fn with_qp<R>(
        &mut self,
        qpn: Qpn,
        f: impl FnOnce(&mut Qp, &mut QpHost<'_>) -> R,
    ) -> Option<R> {
        let index = self.qp_index(qpn)?;
        let result = self.with_index(index, f)?;
        self.make_ready(index);
        Some(result)
    }

    /// Puts a queue pair on the ready list.
    #[inline]
    fn make_ready(&mut self, index: u32) {
        if let Some(entry) = self.qps.get_mut(index)
            && !entry.ready
        {
            entry.ready = true;
            self.ready.push_back(index);
        }
    }

    fn with_index<R>(
        &mut self,
        index: u32,
        f: impl FnOnce(&mut Qp, &mut QpHost<'_>) -> R,
    ) -> Option<R> {
        let entry = self.qps.get_mut(index)?;
        let mut host = QpHost {
            qpn: entry.qp.qpn(),
            now: self.now,
            numbers: self.numbers,
            ties: entry.ties,
            unpolled: &mut entry.unpolled,
            policy: &self.policy,
            state: &self.state,
            keys: &mut self.keys,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            events: &mut self.events,
            trace_timers: self.config.trace_timers,
            overrun: false,
        };
        let was_busy = entry.qp.in_flight() > 0;
        let result = f(&mut entry.qp, &mut host);
        if host.overrun && entry.qp.state() != QpState::Err {
            host.events.push_back(Event::QpFatal(host.qpn));
            let to_error = QpModify::to(QpState::Err, Attr::empty(), QpAttr::default());
            // Every state has a transition to ERR.
            let _ = entry.qp.modify(&to_error, &mut host);
        }
        match (was_busy, entry.qp.in_flight() > 0) {
            (false, true) => self.busy += 1,
            (true, false) => self.busy -= 1,
            _ => {}
        }
        self.settle(index);
        Some(result)
    }

    /// Makes sure the timer heap has an entry no later than the queue pair's deadline.
    pub(crate) fn settle(&mut self, index: u32) {
        let Some(entry) = self.qps.get_mut(index) else {
            return;
        };
        let Some(deadline) = entry.deadline() else {
            return;
        };
        if entry.timer_at.is_none_or(|at| deadline < at) {
            entry.timer_at = Some(deadline);
            self.timers.push(deadline, index);
            self.tidy_timers();
        }
    }

    fn tidy_timers(&mut self) {
        if self.timers.are_stale(self.qps.len()) {
            let qps = &self.qps;
            let is_good = |at, index| qps.get(index).is_some_and(|e| e.timer_at == Some(at));
            self.timers.retain(is_good);
        }
    }

    /// Forgets what the lists know of a queue pair that is gone.
    pub(crate) fn forget(&mut self, entry: &QpEntry) {
        if entry.qp.in_flight() > 0 {
            self.busy -= 1;
        }
        if entry.ready {
            let Some(index) = self.qp_index(entry.qp.qpn()) else {
                return;
            };
            if self.ready.front() == Some(&index) {
                self.burst_left = BURST_PACKETS;
            }
            self.ready.retain(|ready| *ready != index);
        }
        self.tidy_timers();
    }

    /// Compares the books of the device with each other, in time proportional to the number of its
    /// objects; for tests and simulators.
    ///
    /// # Panics
    /// If they do not agree, which is a bug in the device.
    pub fn audit(&self) {
        let (mut busy, mut ready) = (0, 0);
        for (index, entry) in self.qps.iter() {
            busy += u32::from(entry.qp.in_flight() > 0);
            ready += usize::from(entry.ready);
            let (deadline, timer_at) = (entry.deadline(), entry.timer_at);
            assert!(
                deadline.is_none_or(|deadline| timer_at.is_some_and(|at| at <= deadline)),
                "queue pair {index} waits until {deadline:?}, its timer runs until {timer_at:?}"
            );
            assert_eq!(self.qp_index(entry.qp.qpn()), Some(index));
        }
        assert_eq!(self.busy, busy, "queue pairs with something in flight");
        assert_eq!(self.ready.len(), ready, "queue pairs on the ready list");
        let listed = |index: &u32| self.qps.get(*index).is_some_and(|entry| entry.ready);
        assert!(self.ready.iter().all(listed), "{:?}", self.ready);
        assert!(!self.timers.are_stale(self.qps.len()), "{:?}", self.timers);
        self.audit_users();
        self.cm.audit();
    }
}

//! The device as one queue pair sees it during one call: the parts it shares with the others, lent
//! to the transport.

use std::collections::VecDeque;

use ferroce_adp::{Policy, PolicyKind};
use ferroce_transport::{
    AccessError, AtomicOp, Completion, Counter, Data, Key, MemoryRef, MwBind, Outgoing, QpEvent,
    RecvWqe, Segment, Services, Span, Time, TimerExpiry, WorkQueue,
};
use ferroce_wire::{Qpn, Srqn};

use crate::admission::Signal;
use crate::cq::{Cq, CqId, Pushed, Unpolled};
use crate::event::Event;
use crate::host_profile::HostProfile;
use crate::ids::{PdId, XrcdId};
use crate::mr::{KeyHolder, KeyTable};
use crate::numbers::Numbers;
use crate::serializer::Serializer;
use crate::srq::{Srq, SrqId, XrcObjects};
use crate::state::DeviceState;
use crate::table::Table;

/// Bytes of packets that a device keeps because they have come before their turn.
const KEPT_MAX: u32 = 64 << 20;
/// Those of one queue pair: a window.
const KEPT_OF_QP_MAX: u32 = 4 << 20;

/// The objects a queue pair is tied to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpObjects {
    /// All but XRC_RECV have one. The peer's keys and those of send requests are of this domain.
    pub(crate) pd: Option<PdId>,
    /// The domain of the keys of receive requests: that of the shared receive queue, if there is one.
    pub(crate) recv_pd: Option<PdId>,
    /// All but XRC_RECV have one.
    pub(crate) send_cq: Option<CqId>,
    /// All but the two of XRC have one.
    pub(crate) recv_cq: Option<CqId>,
    pub(crate) srq: Option<SrqId>,
    /// XRC_RECV has one.
    pub(crate) xrcd: Option<XrcdId>,
    /// The access key of a DCT.
    pub(crate) dc_key: Option<u64>,
}

impl QpObjects {
    /// Its completion queues, each once.
    pub(crate) fn cqs(&self) -> impl Iterator<Item = CqId> + use<> {
        let recv_cq = self.recv_cq.filter(|cq| Some(*cq) != self.send_cq);
        self.send_cq.into_iter().chain(recv_cq)
    }
}

/// The priorities whose queue pairs restart slowly, one bit for each.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SlowRestart {
    /// When they have to send something again.
    pub(crate) lost: u8,
    /// When they have been silent.
    pub(crate) silent: u8,
}

/// UDP source ports of RoCE v2 have two fixed bits, 0xc000 to 0xffff.
const ENTROPIES: u32 = 1 << 14;

/// What the queue pairs of a device have in common: each call to one of them is lent it.
#[derive(Debug)]
#[repr(C)] // see `Hca`
pub(crate) struct Common {
    /// Time of the present input.
    pub(crate) now: Time,
    /// Registers, personality, histogram and errors of the card, and counters of its first link.
    pub(crate) state: DeviceState,
    /// Counters of its second link, if there is one.
    pub(crate) second: Option<DeviceState>,
    /// The port of the queue pair or packet at hand, from 1.
    pub(crate) port: u8,
    /// The link of the packet at hand: that of its port, or one of a bond.
    pub(crate) link: u8,
    pub(crate) slow_restart: SlowRestart,
    pub(crate) serializer: Serializer,
    /// Bytes of packets that all queue pairs keep, which have come before their turn.
    pub(crate) kept_bytes: u32,
    /// Packets sent that may take any path, modulo 2^32.
    pub(crate) routed_packets: u32,
    pub(crate) numbers: Numbers,
    /// Every timer expiry is an event.
    pub(crate) trace_timers: bool,
    pub(crate) policy: Policy,
    pub(crate) cqs: Table<Cq>,
    /// Memory regions and windows.
    pub(crate) keys: KeyTable,
    pub(crate) events: VecDeque<Event>,
    pub(crate) srqs: Table<Box<Srq>>,
}

impl Common {
    /// The [entropy](ferroce_transport::Outgoing::entropy) of the next packet that may take any path.
    pub(crate) fn next_entropy(&mut self, host: &HostProfile) -> u16 {
        let path = self.routed_packets / u32::from(host.path_packets.max(1));
        self.routed_packets = self.routed_packets.wrapping_add(1);
        1 + (path % (ENTROPIES - 1)) as u16
    }

    #[inline]
    fn state_at(&self, number: u8) -> &DeviceState {
        match &self.second {
            Some(second) if number == 2 => second,
            _ => &self.state,
        }
    }

    /// The state of the port at hand.
    #[inline]
    pub(crate) fn port_state(&self) -> &DeviceState {
        self.state_at(self.port)
    }

    /// The state of the link at hand.
    #[inline]
    pub(crate) fn link_state(&self) -> &DeviceState {
        self.state_at(self.link)
    }

    /// Adds to a counter of the port at hand.
    #[inline]
    pub(crate) fn count(&self, counter: Counter, n: u64) {
        self.port_state().count(counter, n);
    }
}

/// The device as one queue pair sees it, for the length of one call.
pub(crate) struct QpServices<'a> {
    pub(crate) common: &'a mut Common,
    pub(crate) qpn: Qpn,
    objects: &'a QpObjects,
    /// Of the shared receive queue that a request of XRC is for.
    entered: Option<Entered>,
    pub(crate) unpolled: &'a mut Unpolled,
    /// What the queue pair has learned about the way to its peer.
    pub(crate) signal: Option<Signal>,
    pub(crate) trouble: Trouble,
}

/// What is to be done about a queue pair after a call.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Trouble {
    /// A completion queue had no room: the queue pair must fail.
    pub(crate) overrun: bool,
    /// It has an error whose record misses the connection.
    pub(crate) failed: bool,
    /// It has to send something again, and some restart slowly.
    pub(crate) lost: bool,
}

/// What the shared receive queue brings that a request of XRC names: a queue pair of XRC has none
/// of these itself.
#[derive(Clone, Copy)]
struct Entered {
    pd: PdId,
    recv_cq: CqId,
    srq: SrqId,
}

impl<'a> QpServices<'a> {
    pub(crate) fn new(
        common: &'a mut Common,
        qpn: Qpn,
        objects: &'a QpObjects,
        unpolled: &'a mut Unpolled,
    ) -> Self {
        Self {
            common,
            qpn,
            objects,
            entered: None,
            unpolled,
            signal: None,
            trouble: Trouble::default(),
        }
    }

    /// The protection domain of the peer's keys and of those of send requests.
    fn pd(&self) -> Option<PdId> {
        self.entered.map_or(self.objects.pd, |it| Some(it.pd))
    }

    /// That of the keys of receive requests.
    fn recv_pd(&self) -> Option<PdId> {
        self.entered.map_or(self.objects.recv_pd, |it| Some(it.pd))
    }

    fn recv_cq(&self) -> Option<CqId> {
        self.entered
            .map_or(self.objects.recv_cq, |it| Some(it.recv_cq))
    }

    fn srq(&self) -> Option<SrqId> {
        self.entered.map_or(self.objects.srq, |it| Some(it.srq))
    }

    pub(crate) fn key_holder(&self) -> Option<KeyHolder> {
        let qpn = self.qpn;
        self.pd().map(|pd| KeyHolder { pd, qpn })
    }

    fn require_key_holder(&self) -> Result<KeyHolder, AccessError> {
        self.key_holder().ok_or(AccessError::WrongDomain)
    }

    /// Who presents this key.
    #[inline]
    fn key_holder_of(&self, key: Key) -> Result<KeyHolder, AccessError> {
        let pd = match key {
            Key::Local(_) | Key::Remote(_) => self.pd(),
            Key::Receive(_) => self.recv_pd(),
        };
        let pd = pd.ok_or(AccessError::WrongDomain)?;
        let qpn = self.qpn;
        Ok(KeyHolder { pd, qpn })
    }
}

impl Services for QpServices<'_> {
    fn policy(&self) -> &Policy {
        &self.common.policy
    }

    fn count(&mut self, counter: Counter, n: u64) {
        self.common.count(counter, n);
    }

    #[inline]
    fn departure(&self, now: Time, packet: &Outgoing) -> Time {
        self.common.serializer.departure(now, packet)
    }

    fn delays_departure(&self) -> bool {
        self.common.serializer.has_rate()
    }

    fn timer_expired(&mut self, expiry: TimerExpiry) {
        let policy = match self.common.policy.kind {
            PolicyKind::Ib { .. } => Counter::TimeoutsIb,
            PolicyKind::Firmware { .. } => Counter::TimeoutsFirmware,
            PolicyKind::Profile(_) => Counter::TimeoutsProfile,
        };
        self.common.count(policy, 1);
        if expiry.adaptive && !expiry.fatal {
            let wait_ns = expiry.wait.as_nanos();
            // The histogram, and the sum of its waits, are the card's.
            let card = &self.common.state;
            card.record_wait(wait_ns);
            card.count(Counter::RoceAdpRetransWaitNs, wait_ns);
        }
        if self.common.trace_timers {
            self.common.events.push_back(Event::TimerExpired {
                qpn: self.qpn,
                at: self.common.now,
                expiry,
            });
        }
    }

    fn round_trip(&mut self, rtt: Span, wait: Option<Span>) {
        self.signal = Some(Signal::RoundTrip { rtt, wait });
    }

    fn heard(&mut self) {
        self.signal = Some(Signal::Answer);
    }

    fn repeated_for_nothing(&mut self) {
        self.signal = Some(Signal::Spurious);
    }

    fn lost(&mut self, waited: Option<Span>) {
        self.signal = Some(Signal::Loss { waited });
        self.trouble.lost = self.common.slow_restart.lost != 0;
    }

    fn complete(&mut self, queue: WorkQueue, mut completion: Completion) {
        completion.timestamp = self.common.now;
        let id = match queue {
            WorkQueue::Send => self.objects.send_cq,
            WorkQueue::Recv => self.recv_cq(),
        };
        // A queue pair keeps its completion queues alive, but one of XRC no shared receive queue.
        let Some(id) = id else { return };
        let Some(cq) = self.common.cqs.get_mut(id.0) else {
            return;
        };
        match cq.push(completion) {
            Pushed::Quietly => self.unpolled.add(queue),
            Pushed::Announce => {
                self.unpolled.add(queue);
                self.common.events.push_back(Event::Completion(id));
            }
            Pushed::Dropped => {}
            Pushed::Overrun => {
                self.common.events.push_back(Event::CqOverrun(id));
                self.trouble.overrun = true;
            }
            Pushed::Lost => self.trouble.overrun = true,
        }
    }

    #[cold]
    fn fail(&mut self, queue: WorkQueue, completion: Completion) {
        let errors = self.common.state.errors();
        self.trouble.failed |= errors.note(&completion, self.common.now);
        self.complete(queue, completion);
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        let id = self.srq()?;
        let (wqe, low) = self.common.srqs.get_mut(id.0)?.take();
        if low {
            self.common.events.push_back(Event::SrqLimit(id));
        }
        wqe
    }

    fn enter_srq(&mut self, srqn: Srqn) -> bool {
        let srq = self.common.numbers.index(srqn.value());
        let found = srq.and_then(|index| Some((index, self.common.srqs.get(index)?)));
        let Some((index, srq)) = found else {
            return false;
        };
        let Some(XrcObjects { xrcd, cq }) = srq.xrc else {
            return false;
        };
        if self.objects.xrcd != Some(xrcd) {
            return false;
        }
        self.entered = Some(Entered {
            pd: srq.pd,
            recv_cq: cq,
            srq: SrqId(index),
        });
        true
    }

    fn opens_target(&self, key: u64) -> bool {
        self.objects.dc_key == Some(key)
    }

    fn may_keep(&mut self, has: u32, bytes: u32) -> bool {
        let fits = has + bytes <= KEPT_OF_QP_MAX && self.common.kept_bytes + bytes <= KEPT_MAX;
        if fits {
            self.common.kept_bytes += bytes;
        }
        fits
    }

    fn keeps_no_more(&mut self, bytes: u32) {
        self.common.kept_bytes -= bytes;
    }

    fn event(&mut self, event: QpEvent) {
        self.common.events.push_back(Event::Qp(self.qpn, event));
    }

    fn open_read(&self, segment: &Segment) -> Result<MemoryRef, AccessError> {
        let who = self.key_holder_of(segment.key)?;
        self.common.keys.open_read(who, segment)
    }

    fn write(&mut self, key: Key, va: u64, data: Data<'_>) -> Result<(), AccessError> {
        self.common
            .keys
            .write(self.key_holder_of(key)?, key, va, data)
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.common
            .keys
            .atomic(self.require_key_holder()?, rkey, va, op)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.common
            .keys
            .invalidate(self.require_key_holder()?, rkey)
    }

    fn invalidate_local(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.common
            .keys
            .invalidate_local(self.require_key_holder()?, rkey)
    }

    fn bind_mw(&mut self, bind: &MwBind) -> Result<(), AccessError> {
        self.common.keys.bind(self.require_key_holder()?, bind)
    }
}

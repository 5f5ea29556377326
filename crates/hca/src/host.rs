//! The device as one queue pair sees it for the length of one call: its tables, lent to the transport.

use std::collections::VecDeque;

use ferroce_adp::Policy;
use ferroce_transport::{
    AccessError, AtomicOp, Completion, Counter, Data, Host, Key, MemoryRef, MwBind, Outgoing,
    QpEvent, RecvWqe, Segment, Span, Time, TimerExpiry, WorkQueue,
};
use ferroce_wire::{Qpn, Srqn};

use crate::cq::{Cq, CqId, Pushed, Unpolled};
use crate::credit::Signal;
use crate::event::Event;
use crate::ids::{PdId, XrcdId};
use crate::mr::{KeyHolder, KeyTable};
use crate::numbers::Numbers;
use crate::serializer::Serializer;
use crate::srq::{Srq, SrqId, XrcObjects};
use crate::state::DeviceState;
use crate::table::Table;

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
}

impl QpObjects {
    /// Its completion queues, each once.
    pub(crate) fn cqs(&self) -> impl Iterator<Item = CqId> + use<> {
        let recv_cq = self.recv_cq.filter(|cq| Some(*cq) != self.send_cq);
        self.send_cq.into_iter().chain(recv_cq)
    }
}

/// The device's tables as one queue pair sees them, for the length of one call.
pub(crate) struct QpHost<'a> {
    pub(crate) qpn: Qpn,
    pub(crate) now: Time,
    pub(crate) numbers: &'a Numbers,
    /// For a request of XRC those that its shared receive queue brings.
    pub(crate) objects: QpObjects,
    pub(crate) unpolled: &'a mut Unpolled,
    pub(crate) policy: &'a Policy,
    pub(crate) serializer: &'a Serializer,
    pub(crate) state: &'a DeviceState,
    pub(crate) keys: &'a mut KeyTable,
    pub(crate) cqs: &'a mut Table<Cq>,
    pub(crate) srqs: &'a mut Table<Srq>,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) trace_timers: bool,
    /// What the queue pair has learned about the way to its peer.
    pub(crate) signal: Option<Signal>,
    /// A completion queue had no room: the queue pair must fail.
    pub(crate) overrun: bool,
}

impl QpHost<'_> {
    pub(crate) fn key_holder(&self) -> Option<KeyHolder> {
        let qpn = self.qpn;
        self.objects.pd.map(|pd| KeyHolder { pd, qpn })
    }

    fn require_key_holder(&self) -> Result<KeyHolder, AccessError> {
        self.key_holder().ok_or(AccessError::WrongDomain)
    }

    /// Who presents this key.
    fn key_holder_of(&self, key: Key) -> Result<KeyHolder, AccessError> {
        let (qpn, pd) = match key {
            Key::Local(_) | Key::Remote(_) => (self.qpn, self.objects.pd),
            Key::Receive(_) => (self.qpn, self.objects.recv_pd),
        };
        let pd = pd.ok_or(AccessError::WrongDomain)?;
        Ok(KeyHolder { pd, qpn })
    }
}

impl Host for QpHost<'_> {
    fn policy(&self) -> &Policy {
        self.policy
    }

    fn count(&mut self, counter: Counter, n: u64) {
        self.state.count(counter, n);
    }

    #[inline]
    fn departure(&self, now: Time, packet: &Outgoing) -> Time {
        self.serializer.departure(now, packet)
    }

    fn delays_departure(&self) -> bool {
        self.serializer.has_rate()
    }

    fn timer_expired(&mut self, expiry: TimerExpiry) {
        if expiry.adaptive && !expiry.fatal {
            let wait_ns = expiry.wait.as_nanos();
            self.state.record_wait(wait_ns);
            self.state.count(Counter::RoceAdpRetransWaitNs, wait_ns);
        }
        if self.trace_timers {
            self.events.push_back(Event::TimerExpired {
                qpn: self.qpn,
                at: self.now,
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
    }

    fn complete(&mut self, queue: WorkQueue, mut completion: Completion) {
        completion.timestamp = self.now;
        let id = match queue {
            WorkQueue::Send => self.objects.send_cq,
            WorkQueue::Recv => self.objects.recv_cq,
        };
        // A queue pair keeps its completion queues alive, but one of XRC no shared receive queue.
        let Some(id) = id else { return };
        let Some(cq) = self.cqs.get_mut(id.0) else {
            return;
        };
        match cq.push(completion) {
            Pushed::Quietly => self.unpolled.add(queue),
            Pushed::Announce => {
                self.unpolled.add(queue);
                self.events.push_back(Event::Completion(id));
            }
            Pushed::Dropped => {}
            Pushed::Overrun => {
                self.events.push_back(Event::CqOverrun(id));
                self.overrun = true;
            }
            Pushed::Lost => self.overrun = true,
        }
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        let id = self.objects.srq?;
        let (wqe, low) = self.srqs.get_mut(id.0)?.take();
        if low {
            self.events.push_back(Event::SrqLimit(id));
        }
        wqe
    }

    fn enter_srq(&mut self, srqn: Srqn) -> bool {
        let srq = self.numbers.index(srqn.value());
        let found = srq.and_then(|index| Some((index, self.srqs.get(index)?)));
        let Some((index, srq)) = found else {
            return false;
        };
        let Some(XrcObjects { xrcd, cq }) = srq.xrc else {
            return false;
        };
        if self.objects.xrcd != Some(xrcd) {
            return false;
        }
        self.objects.pd = Some(srq.pd);
        self.objects.recv_pd = Some(srq.pd);
        self.objects.recv_cq = Some(cq);
        self.objects.srq = Some(SrqId(index));
        true
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push_back(Event::Qp(self.qpn, event));
    }

    fn open_read(&self, segment: &Segment) -> Result<MemoryRef, AccessError> {
        let who = self.key_holder_of(segment.key)?;
        self.keys.open_read(who, segment)
    }

    fn check_write(&self, segment: &Segment) -> Result<(), AccessError> {
        self.keys
            .check_write(self.key_holder_of(segment.key)?, segment)
    }

    fn write(&mut self, key: Key, va: u64, data: Data<'_>) -> Result<(), AccessError> {
        self.keys.write(self.key_holder_of(key)?, key, va, data)
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.keys.atomic(self.require_key_holder()?, rkey, va, op)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.keys.invalidate(self.require_key_holder()?, rkey)
    }

    fn invalidate_local(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.keys.invalidate_local(self.require_key_holder()?, rkey)
    }

    fn bind_mw(&mut self, bind: &MwBind) -> Result<(), AccessError> {
        self.keys.bind(self.require_key_holder()?, bind)
    }
}

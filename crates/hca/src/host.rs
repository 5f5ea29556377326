use std::collections::VecDeque;

use ferroce_adp::Policy;
use ferroce_transport::{
    AccessError, AtomicOp, Completion, Counter, Data, Host, Key, MwBind, QpEvent, RecvWqe, Segment,
    Time, TimerExpiry, WorkQueue,
};
use ferroce_wire::Qpn;

use crate::cq::{Cq, CqId, Pushed};
use crate::event::Event;
use crate::mr::{KeyTable, Opener};
use crate::srq::{Srq, SrqId};
use crate::state::DeviceState;
use crate::table::Table;
use crate::verbs::PdId;

/// The objects a queue pair is tied to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ties {
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) srq: Option<SrqId>,
}

/// The device's tables as one queue pair sees them, for the length of one call.
pub(crate) struct QpHost<'a> {
    pub(crate) qpn: Qpn,
    pub(crate) now: Time,
    pub(crate) ties: Ties,
    pub(crate) policy: &'a Policy,
    pub(crate) state: &'a DeviceState,
    pub(crate) keys: &'a mut KeyTable,
    pub(crate) cqs: &'a mut Table<Cq>,
    pub(crate) srqs: &'a mut Table<Srq>,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) trace_timers: bool,
    /// A completion queue had no room: the queue pair must fail.
    pub(crate) overrun: bool,
}

impl QpHost<'_> {
    fn opener(&self) -> Opener {
        Opener {
            pd: self.ties.pd,
            qpn: self.qpn,
        }
    }
}

impl Host for QpHost<'_> {
    fn policy(&self) -> &Policy {
        self.policy
    }

    fn count(&mut self, counter: Counter, n: u64) {
        self.state.count(counter, n);
    }

    fn timer_expired(&mut self, expiry: TimerExpiry) {
        if expiry.adaptive && !expiry.fatal {
            self.state.record_wait(expiry.wait_ns);
        }
        if self.trace_timers {
            self.events.push_back(Event::TimerExpired {
                qpn: self.qpn,
                at: self.now,
                expiry,
            });
        }
    }

    fn complete(&mut self, queue: WorkQueue, mut completion: Completion) {
        completion.timestamp = self.now;
        let id = match queue {
            WorkQueue::Send => self.ties.send_cq,
            WorkQueue::Recv => self.ties.recv_cq,
        };
        // A queue pair keeps its completion queues alive.
        let Some(cq) = self.cqs.get_mut(id.0) else {
            return;
        };
        match cq.push(completion) {
            Pushed::Quietly => {}
            Pushed::Announce => self.events.push_back(Event::Completion(id)),
            Pushed::Overrun => {
                self.events.push_back(Event::CqOverrun(id));
                self.overrun = true;
            }
            Pushed::Lost => self.overrun = true,
        }
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        let id = self.ties.srq?;
        let (wqe, low) = self.srqs.get_mut(id.0)?.take();
        if low {
            self.events.push_back(Event::SrqLimit(id));
        }
        wqe
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push_back(Event::Qp(self.qpn, event));
    }

    fn check_read(&self, segment: &Segment) -> Result<(), AccessError> {
        self.keys.check_read(self.opener(), segment)
    }

    fn check_write(&self, segment: &Segment) -> Result<(), AccessError> {
        self.keys.check_write(self.opener(), segment)
    }

    fn write(&mut self, key: Key, va: u64, data: Data<'_>) -> Result<(), AccessError> {
        self.keys.write(self.opener(), key, va, data)
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.keys.atomic(self.opener(), rkey, va, op)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.keys.invalidate(self.opener(), rkey)
    }

    fn invalidate_local(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.keys.invalidate_local(self.opener(), rkey)
    }

    fn bind_mw(&mut self, bind: &MwBind) -> Result<(), AccessError> {
        self.keys.bind(self.opener(), bind)
    }
}

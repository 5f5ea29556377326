//! Verbs of completion queues.

use ferroce_transport::Completion;

use super::{in_range, no_such, not_busy};
use crate::cq::{Cq, CqId, CqInit, Notify};
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::event::Event;
use crate::limits;

impl Hca {
    /// Creates a completion queue for `capacity` entries.
    pub fn create_cq(&mut self, capacity: u32) -> Result<CqId, VerbsError> {
        self.create_cq_ex(CqInit {
            capacity,
            ignore_overrun: false,
        })
    }

    /// Creates a completion queue (ibv_create_cq_ex(3)).
    pub fn create_cq_ex(&mut self, init: CqInit) -> Result<CqId, VerbsError> {
        in_range("cqe", init.capacity.into(), 1, limits::MAX_CQE.into())?;
        let (object, max) = (Object::Cq, self.config.limits.max_cq);
        let index = self.common.cqs.insert_with(|_| Cq::new(init));
        index.map(CqId).ok_or(VerbsError::TooMany { object, max })
    }

    /// Changes the capacity of a completion queue, to no less than the completions that wait in it.
    pub fn resize_cq(&mut self, cq: CqId, capacity: u32) -> Result<(), VerbsError> {
        let queue = self.cq(cq)?;
        let waiting = (queue.len() as u64).max(1);
        in_range("cqe", capacity.into(), waiting, limits::MAX_CQE.into())?;
        queue.resize(capacity);
        Ok(())
    }

    /// Returns the capacity of a completion queue.
    pub fn cq_capacity(&self, cq: CqId) -> Result<u32, VerbsError> {
        let queue = self.common.cqs.get(cq.0);
        let queue = queue.ok_or_else(|| no_such(Object::Cq, cq.0))?;
        Ok(queue.capacity())
    }

    /// Destroys a completion queue that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), VerbsError> {
        not_busy(Object::Cq, self.cq(cq)?.users)?;
        self.common.cqs.remove(cq.0);
        Ok(())
    }

    /// Arms a completion queue for one [`Event::Completion`], which comes at once if what it is for
    /// waits to be polled.
    pub fn req_notify_cq(&mut self, cq: CqId, notify: Notify) -> Result<(), VerbsError> {
        if self.cq(cq)?.arm(notify) {
            self.common.events.push_back(Event::Completion(cq));
        }
        Ok(())
    }

    /// What a queue was armed for, if it was announced at once because completions waited, and all of them
    /// have been polled since. A host that can take the [`Event::Completion`] back arms the queue again;
    /// programs that arm before they poll take each event for another completion.
    pub fn take_polled_early(&mut self, cq: CqId) -> Result<Option<Notify>, VerbsError> {
        Ok(self.cq(cq)?.take_polled_early())
    }

    /// Takes the oldest completion.
    pub fn poll_completion(&mut self, cq: CqId) -> Result<Option<Completion>, VerbsError> {
        let polled = self.cq(cq)?.pop();
        if let Some(completion) = &polled
            && let Some(entry) = self.qp_entry_mut(completion.qpn)
        {
            entry.unpolled.take(completion.opcode.work_queue());
        }
        Ok(polled)
    }

    pub(super) fn cq(&mut self, cq: CqId) -> Result<&mut Cq, VerbsError> {
        self.common
            .cqs
            .get_mut(cq.0)
            .ok_or_else(|| no_such(Object::Cq, cq.0))
    }
}

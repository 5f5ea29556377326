use ferroce_transport::{PostError, ReceiveQueue, RecvWqe, RecvWr};

use crate::verbs::PdId;

/// Handle of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct SrqId(pub u32);

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    queue: ReceiveQueue,
    /// Announce once when fewer requests than this are left; 0 = not armed.
    limit: u32,
    /// QPs that take from it.
    pub(crate) users: u32,
}

impl Srq {
    pub(crate) fn new(pd: PdId, max_wr: u32, max_sge: u32) -> Self {
        Self {
            pd,
            queue: ReceiveQueue::new(max_wr, max_sge),
            limit: 0,
            users: 0,
        }
    }

    pub(crate) fn post(&mut self, wr: RecvWr) -> Result<(), PostError> {
        self.queue.post(wr)
    }

    pub(crate) fn max_wr(&self) -> u32 {
        self.queue.max_wr()
    }

    pub(crate) fn arm_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// The next request, and whether the limit event is due.
    pub(crate) fn take(&mut self) -> (Option<RecvWqe>, bool) {
        let wqe = self.queue.take();
        let low = wqe.is_some() && (self.queue.len() as u64) < u64::from(self.limit);
        if low {
            self.limit = 0;
        }
        (wqe, low)
    }
}

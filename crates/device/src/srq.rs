//! Shared receive queues, with their limit events and their links to XRC.

use ferroce_transport::{PostError, ReceiveQueue, RecvWqe, RecvWr};

use crate::cq::CqId;
use crate::ids::{PdId, XrcdId};

/// Handle of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct SrqId(pub u32);

/// Attributes of a shared receive queue (`ibv_srq_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqAttr {
    /// Requests it can hold.
    pub max_wr: u32,
    /// Elements a request may have.
    pub max_sge: u32,
    /// The limit that is armed; 0 = none.
    pub limit: u32,
}

/// What `ibv_modify_srq` changes of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrqModify {
    /// Requests it can hold (`IBV_SRQ_MAX_WR`).
    pub max_wr: Option<u32>,
    /// Announce once when fewer requests than this are left (`IBV_SRQ_LIMIT`); 0 = never.
    pub limit: Option<u32>,
}

/// What makes a shared receive queue one of XRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcObjects {
    /// Its XRC domain: queue pairs of this domain put messages into it.
    pub xrcd: XrcdId,
    /// Where their completions go.
    pub cq: CqId,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    pub(crate) xrc: Option<XrcObjects>,
    queue: ReceiveQueue,
    /// Announce once when fewer requests than this are left; 0 = not armed.
    limit: u32,
    /// QPs that take from it; those of XRC do not count.
    pub(crate) users: u32,
}

impl Srq {
    pub(crate) fn new(pd: PdId, xrc: Option<XrcObjects>, max_wr: u32, max_sge: u32) -> Self {
        Self {
            pd,
            xrc,
            queue: ReceiveQueue::new(max_wr, max_sge),
            limit: 0,
            users: 0,
        }
    }

    pub(crate) fn post(&mut self, wr: RecvWr) -> Result<(), PostError> {
        self.queue.post(wr)
    }

    pub(crate) fn attr(&self) -> SrqAttr {
        SrqAttr {
            max_wr: self.queue.max_wr(),
            max_sge: self.queue.max_sge(),
            limit: self.limit,
        }
    }

    /// Requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Gives back the memory that it took and needs no more.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink();
    }

    /// Takes over capacity and limit.
    pub(crate) fn change(&mut self, attr: &SrqAttr) {
        self.queue.resize(attr.max_wr);
        self.limit = attr.limit;
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

//! Lists of objects, for display.

use ferroce_transport::{Path, Qp};
use ferroce_wire::Srqn;

use crate::admission::PathLook;
use crate::cq::CqId;
use crate::device::Hca;
use crate::ids::PdId;

/// Information about a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpLook<'a> {
    /// The queue pair itself.
    pub qp: &'a Qp,
    /// Its protection domain; `None` for an XRC target.
    pub pd: Option<PdId>,
    /// The completion queue of its send requests, if it has any.
    pub send_cq: Option<CqId>,
    /// The completion queue of its own receive requests, if it has any.
    pub recv_cq: Option<CqId>,
    /// The shared receive queue that it uses, if any.
    pub srqn: Option<Srqn>,
    /// The path to its peer, from RTR on.
    pub path: Option<Path>,
    /// What all queue pairs may send to its peer, if it answers.
    pub window: Option<PathLook>,
}

/// Information about a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqLook {
    /// Its handle.
    pub id: CqId,
    /// Its capacity.
    pub capacity: u32,
    /// Completions that wait to be polled.
    pub waiting: usize,
    /// Number of queue pairs that use it.
    pub users: u32,
}

/// Information about a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqLook {
    /// Its number (`ibv_get_srq_num`).
    pub srqn: Srqn,
    /// Its protection domain.
    pub pd: PdId,
    /// Whether it is an XRC one.
    pub xrc: bool,
    /// Its capacity in requests.
    pub max_wr: u32,
    /// Waiting requests.
    pub waiting: usize,
    /// Number of queue pairs that use it.
    pub users: u32,
}

impl Hca {
    /// Returns whether the device has objects that can receive packets: queue pairs, shared receive
    /// queues, services with listeners, connections.
    pub fn wants_link(&self) -> bool {
        self.qps.len() > 0
            || self.common.srqs.len() > 0
            || self.cm.get().is_some_and(|cm| cm.is_active())
    }

    /// Returns the queue pairs and their associated objects.
    pub fn look_at_qps(&self) -> impl Iterator<Item = QpLook<'_>> {
        let shown = self.qps.iter().filter(|(_, entry)| entry.is_shown());
        shown.map(|(_, entry)| QpLook {
            qp: &entry.qp,
            pd: entry.objects.pd,
            send_cq: entry.objects.send_cq,
            recv_cq: entry.objects.recv_cq,
            srqn: entry
                .objects
                .srq
                .map(|srq| Srqn::new(self.common.numbers.number(srq.0))),
            path: entry.path,
            window: self.scheduler.path(entry),
        })
    }

    /// Returns the completion queues.
    pub fn look_at_cqs(&self) -> impl Iterator<Item = CqLook> {
        self.common.cqs.iter().map(|(index, cq)| CqLook {
            id: CqId(index),
            capacity: cq.capacity(),
            waiting: cq.len(),
            users: cq.users,
        })
    }

    /// Returns the shared receive queues.
    pub fn look_at_srqs(&self) -> impl Iterator<Item = SrqLook> {
        self.common.srqs.iter().map(|(index, srq)| SrqLook {
            srqn: Srqn::new(self.common.numbers.number(index)),
            pd: srq.pd,
            xrc: srq.xrc.is_some(),
            max_wr: srq.attr().max_wr,
            waiting: srq.len(),
            users: srq.users,
        })
    }

    /// Returns the protection domains and the number of objects in each.
    pub fn look_at_pds(&self) -> impl Iterator<Item = (PdId, u32)> {
        self.pds.iter().map(|(index, users)| (PdId(index), *users))
    }
}

//! Lists of objects, for display.

use ferroce_transport::{Path, Qp};
use ferroce_wire::Srqn;

use crate::cq::CqId;
use crate::credit::PathLook;
use crate::device::Hca;
use crate::ids::PdId;

/// A queue pair, to look at.
#[derive(Clone, Copy, Debug)]
pub struct QpLook<'a> {
    /// The queue pair itself.
    pub qp: &'a Qp,
    /// Its protection domain. An XRC target has none.
    pub pd: Option<PdId>,
    /// Where its send requests complete, if it has any.
    pub send_cq: Option<CqId>,
    /// Where its receive requests complete, if it has any of its own.
    pub recv_cq: Option<CqId>,
    /// Number of the shared receive queue that it takes from, if it does.
    pub srqn: Option<Srqn>,
    /// The way to its peer, from RTR on.
    pub path: Option<Path>,
    /// What all of them may send to its peer, if that answers.
    pub window: Option<PathLook>,
}

/// A completion queue, to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqLook {
    /// Its handle.
    pub id: CqId,
    /// Entries that it has room for.
    pub capacity: u32,
    /// Completions that wait to be polled.
    pub waiting: usize,
    /// Queue pairs that complete here.
    pub users: u32,
}

/// A shared receive queue, to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqLook {
    /// Its number (`ibv_get_srq_num`).
    pub srqn: Srqn,
    /// Its protection domain.
    pub pd: PdId,
    /// It is one of XRC.
    pub xrc: bool,
    /// Requests that it has room for.
    pub max_wr: u32,
    /// Requests that wait.
    pub waiting: usize,
    /// Queue pairs that take from it.
    pub users: u32,
}

impl Hca {
    /// Whether there is anything that packets could be for: queue pairs, receive queues that are
    /// shared, services that somebody listens on, connections.
    pub fn wants_link(&self) -> bool {
        self.qps.len() > 0
            || self.common.srqs.len() > 0
            || self.cm.get().is_some_and(|cm| cm.is_active())
    }

    /// The queue pairs with what they are tied to.
    pub fn look_at_qps(&self) -> impl Iterator<Item = QpLook<'_>> {
        self.qps.iter().map(|(_, entry)| QpLook {
            qp: &entry.qp,
            pd: entry.objects.pd,
            send_cq: entry.objects.send_cq,
            recv_cq: entry.objects.recv_cq,
            srqn: entry
                .objects
                .srq
                .map(|srq| Srqn::new(self.common.numbers.number(srq.0))),
            path: entry.path,
            window: self.look_at_window(entry),
        })
    }

    /// The completion queues.
    pub fn look_at_cqs(&self) -> impl Iterator<Item = CqLook> {
        self.common.cqs.iter().map(|(index, cq)| CqLook {
            id: CqId(index),
            capacity: cq.capacity(),
            waiting: cq.len(),
            users: cq.users,
        })
    }

    /// The shared receive queues.
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

    /// The protection domains and how many objects are in each.
    pub fn look_at_pds(&self) -> impl Iterator<Item = (PdId, u32)> {
        self.pds.iter().map(|(index, users)| (PdId(index), *users))
    }
}

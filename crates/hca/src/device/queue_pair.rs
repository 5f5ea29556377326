//! A queue pair in its device.

use std::net::IpAddr;

use ferroce_dcqcn::np::CnpTimer;
use ferroce_transport::{Attr, Path, Qp, QpAttr, QpModify, QpState, Time};
use ferroce_wire::Qpn;

use super::Hca;
use super::Turn;
use super::timers::earlier;
use crate::congestion::Limiter;
use crate::cq::Unpolled;
use crate::error_log::Connection;
use crate::event::Event;
use crate::host::{QpHost, QpObjects, Trouble};

/// A queue pair and what the device knows about it; what packets need stands together.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QpEntry {
    /// It waits for the port, in this priority.
    pub(super) ready: Option<u8>,
    /// It is on the list of those that have worked.
    pub(super) used: bool,
    /// The GID it was bound to is gone: nothing of it leaves or arrives any more (F21).
    pub(crate) is_severed: bool,
    pub(crate) path: Option<Path>,
    /// The device at its other end, if its requests are answered.
    pub(crate) peer: Option<u32>,
    pub(crate) objects: QpObjects,
    pub(crate) unpolled: Unpolled,
    /// While its peer's CNPs slow it down.
    pub(crate) limiter: Option<Box<Limiter>>,
    /// Its entry in the timer heap.
    pub(super) timer_at: Option<Time>,
    /// What it has taken of the buffers there and here.
    pub(crate) turn: Turn,
    pub(crate) qp: Qp,
    /// Of the CNPs that answer its packets.
    pub(crate) cnp_timer: CnpTimer,
    /// CNPs of its peers that it has heeded.
    pub(crate) cnps: u32,
    /// How often it is open (`ibv_open_qp`).
    pub(crate) handles: u32,
    /// The address from which its own multicasts come back, if it wants none of them.
    pub(crate) blocked_echo: Option<IpAddr>,
}

const _: () = {
    // Its place in the table, and two entries in the timer heap.
    let around = size_of::<usize>() + 2 * size_of::<(Time, u32)>();
    assert!(size_of::<QpEntry>() + around <= 1024, "a QP at rest");
};

impl QpEntry {
    pub(crate) fn new(qp: Qp, objects: QpObjects) -> Self {
        Self {
            qp,
            objects,
            unpolled: Unpolled::default(),
            path: None,
            peer: None,
            turn: Turn::default(),
            handles: 1,
            blocked_echo: None,
            cnp_timer: CnpTimer::default(),
            cnps: 0,
            limiter: None,
            timer_at: None,
            ready: None,
            used: false,
            is_severed: false,
        }
    }

    /// Whether it waits for the port.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// The traffic class of its next packet: that of its path, or of the datagram that is next.
    pub(super) fn traffic_class(&self) -> u8 {
        let datagram = || self.qp.next_datagram().map(|to| to.path);
        self.path
            .or_else(datagram)
            .map_or(0, |path| path.traffic_class)
    }

    /// Whether its limiter makes it wait.
    pub(crate) fn sleeps(&self) -> bool {
        let limiter = self.limiter.as_ref();
        limiter.is_some_and(|it| it.wait_until().is_some())
    }

    /// Its deadline, if that is earlier than its entry in the timer heap. It is to get another one.
    #[inline]
    pub(super) fn next_deadline(&mut self) -> Option<Time> {
        let deadline = self.deadline()?;
        if self.timer_at.is_some_and(|at| at <= deadline) {
            return None;
        }
        self.timer_at = Some(deadline);
        Some(deadline)
    }

    /// Whether it finds out by itself that its peer is dead.
    pub(crate) fn has_timeout(&self) -> bool {
        self.qp.attr().timeout != 0
    }

    /// When it wants to be looked at: a timeout, or the end of a limiter's wait.
    pub(super) fn deadline(&self) -> Option<Time> {
        let turn = self.limiter.as_ref().and_then(|it| it.wait_until());
        earlier(self.qp.poll_timeout(), turn)
    }
}

/// Does what a call has left to do about trouble.
#[cold]
fn settle(qp: &mut Qp, path: Option<Path>, host: &mut QpHost<'_>) {
    if host.trouble.overrun && qp.state() != QpState::Err {
        host.common.events.push_back(Event::QpFatal(host.qpn));
        let to_error = QpModify::to(QpState::Err, Attr::empty(), QpAttr::default());
        // Every state has a transition to ERR.
        let _ = qp.modify(&to_error, host);
    }
    if let Some(path) = path.filter(|_| host.trouble.failed) {
        let errors = host.common.state.errors();
        let connection = Connection {
            address: path.dest,
            qpn: qp.attr().dest_qpn,
            timeouts: qp.timeouts(),
            silent: host.common.now.since(qp.retry().silent_since()),
        };
        errors.set_connection(host.qpn, connection);
    }
}

impl Hca {
    pub(crate) fn qp_index(&self, qpn: Qpn) -> Option<u32> {
        self.common.numbers.index(qpn.value())
    }

    pub(crate) fn qp_entry(&self, qpn: Qpn) -> Option<&QpEntry> {
        self.qps.get(self.qp_index(qpn)?).map(|entry| &**entry)
    }

    pub(crate) fn qp_entry_mut(&mut self, qpn: Qpn) -> Option<&mut QpEntry> {
        let index = self.qp_index(qpn)?;
        self.qps.get_mut(index).map(|entry| &mut **entry)
    }

    /// Runs `f` on a queue pair with the device around it, then books what it left behind: its
    /// deadline, what it has on the wire, and that it may have something to send.
    pub(crate) fn with_qp<R>(
        &mut self,
        qpn: Qpn,
        f: impl FnOnce(&mut Qp, &mut QpHost<'_>) -> R,
    ) -> Option<R> {
        let index = self.qp_index(qpn)?;
        let result = self.with_index(index, f)?;
        self.book(index);
        self.allot_late(index);
        self.make_ready(index);
        Some(result)
    }

    /// The same for one whose turn it is to send: what it has on the wire is booked at the end of
    /// the turn.
    pub(crate) fn with_index<R>(
        &mut self,
        index: u32,
        f: impl FnOnce(&mut Qp, &mut QpHost<'_>) -> R,
    ) -> Option<R> {
        let entry = self.qps.get_mut(index)?;
        if !entry.used {
            entry.used = true;
            self.used.push(index);
        }
        let QpEntry {
            qp,
            objects,
            unpolled,
            path,
            ..
        } = &mut **entry;
        let mut host = QpHost::new(&mut self.common, qp.qpn(), objects, unpolled);
        let result = f(qp, &mut host);
        let signal = host.signal;
        if host.trouble != Trouble::default() {
            settle(qp, *path, &mut host);
        }
        let deadline = entry.next_deadline();
        if let Some(signal) = signal {
            self.heed(index, signal);
        }
        if let Some(at) = deadline {
            self.wake_at(at, index);
        }
        Some(result)
    }

    /// Forgets what the lists know of a queue pair that is gone.
    pub(crate) fn forget(&mut self, entry: &QpEntry) {
        let Some(index) = self.qp_index(entry.qp.qpn()) else {
            return;
        };
        self.leave_peer(index, entry.peer, entry.turn);
        if let Some(priority) = entry.ready {
            self.port.remove(priority, index);
        }
        if entry.used {
            self.used.retain(|used| *used != index);
        }
        self.tidy_timers();
    }
}

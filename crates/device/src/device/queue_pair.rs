//! A queue pair in its device.

use ferroce_transport::{Path, Qp, QpState, Time};
use ferroce_wire::Qpn;

use super::Hca;
use crate::admission::Signal;
use crate::error_log::Connection;
use crate::event::Event;
use crate::queue_pair::QpEntry;
use crate::scheduler::Scheduler;
use crate::services::{Common, QpServices, Trouble};
use crate::table::Table;

/// A queue pair that was looked up, and the parts of its device that calls to it change.
/// [`Hca::conclude`] follows when it is no longer at hand.
pub(crate) struct Found<'a> {
    pub(super) index: u32,
    pub(crate) entry: &'a mut QpEntry,
    pub(super) common: &'a mut Common,
    pub(super) scheduler: &'a mut Scheduler,
}

impl<'a> Found<'a> {
    #[inline]
    pub(crate) fn at(
        index: u32,
        qps: &'a mut Table<Box<QpEntry>>,
        common: &'a mut Common,
        scheduler: &'a mut Scheduler,
    ) -> Option<Self> {
        let entry = qps.get_mut(index)?;
        if common.second.is_some() {
            common.port = entry.qp.attr().port;
        }
        Some(Self {
            index,
            entry,
            common,
            scheduler,
        })
    }

    /// Runs `f` on the queue pair with the device around it; then its deadline is noted, and what it
    /// has learned about the path to its peer.
    pub(crate) fn run<R>(&mut self, f: impl FnOnce(&mut Qp, &mut QpServices<'_>) -> R) -> R {
        self.scheduler.note_use(self.index, self.entry);
        let QpEntry {
            qp,
            objects,
            unpolled,
            path,
            ..
        } = &mut *self.entry;
        let mut host = QpServices::new(self.common, qp.qpn(), objects, unpolled);
        let result = f(qp, &mut host);
        let (signal, lost) = (host.signal, host.trouble.lost);
        if host.trouble != Trouble::default() {
            settle(qp, *path, &mut host);
        }
        if lost {
            self.restart_after_loss();
        }
        self.scheduler.follow_deadline(self.index, self.entry);
        if let Some(signal) = signal {
            self.signal(signal);
        }
        result
    }

    #[inline]
    fn signal(&mut self, signal: Signal) {
        let now = self.common.now;
        self.scheduler.signal(now, self.index, self.entry, signal);
    }

    /// Books what the queue pair has in flight, after a call that was not its turn to send.
    #[inline]
    pub(crate) fn book(&mut self) {
        self.scheduler.book(self.index, self.entry);
    }

    /// After a call that was not its turn to send: books what it has in flight, and has it wait for
    /// the port, as it may have something to send.
    pub(crate) fn settle(&mut self) {
        self.book();
        self.begin_late();
        self.make_ready();
    }

    /// Begins the queue pair's turn again if it began with answers only and there may be a request
    /// now.
    #[inline]
    pub(crate) fn begin_late(&mut self) {
        self.scheduler.begin_late(self.index, self.entry);
    }

    /// Changes to another path, or to none, and discards the CNPs of the old peer.
    pub(crate) fn follow(&mut self, path: Option<Path>) {
        self.entry.path = path;
        self.entry.is_severed = false;
        (self.entry.limiter, self.entry.restarts, self.entry.cnps) = (None, false, 0);
        let now = self.common.now;
        self.scheduler.follow_path(now, self.index, self.entry);
    }

    /// Has it wait in another queue, if its link or its priority is another one now.
    pub(crate) fn change_queue(&mut self) {
        self.scheduler.change_queue(self.index, self.entry);
    }

    /// Has it wait for the port.
    #[inline]
    pub(crate) fn make_ready(&mut self) {
        self.scheduler.make_ready(self.index, self.entry);
    }
}

/// Does what a call has left to do about trouble.
#[cold]
fn settle(qp: &mut Qp, path: Option<Path>, host: &mut QpServices<'_>) {
    if host.trouble.overrun && qp.state() != QpState::Err {
        host.common.events.push_back(Event::QpFatal(host.qpn));
        qp.enter_error(host);
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

    /// Looks a queue pair up.
    #[inline]
    pub(crate) fn find(&mut self, qpn: Qpn) -> Option<Found<'_>> {
        let index = self.qp_index(qpn)?;
        Found::at(index, &mut self.qps, &mut self.common, &mut self.scheduler)
    }

    /// Runs `f` on a queue pair with the device around it, then books what it left behind: its
    /// deadline, what it has in flight, and that it may have something to send.
    pub(crate) fn with_qp<R>(
        &mut self,
        qpn: Qpn,
        f: impl FnOnce(&mut Qp, &mut QpServices<'_>) -> R,
    ) -> Option<R> {
        let mut found = self.find(qpn)?;
        let result = found.run(f);
        found.settle();
        self.conclude();
        Some(result)
    }

    /// Does what is left to do when no queue pair is at hand: those that waited for room are called,
    /// and useless timers are dropped.
    #[inline]
    pub(crate) fn conclude(&mut self) {
        if let Some(called) = self.scheduler.take_pending() {
            self.call(called);
        }
    }

    #[cold]
    fn call(&mut self, called: [Option<u32>; 3]) {
        for index in called.into_iter().flatten() {
            self.make_ready(index);
        }
        self.tidy_timers();
    }

    /// Calls queue pairs that have waited for long, if what is in flight seems to be lost.
    pub(super) fn look_for_room(&mut self, now: Time) {
        for index in self.scheduler.handle_timeout(now) {
            self.make_ready(index);
        }
    }

    fn make_ready(&mut self, index: u32) {
        if let Some(entry) = self.qps.get_mut(index) {
            self.scheduler.make_ready(index, entry);
        }
    }
}

//! Which queue pairs are due: to send, because of a deadline, because there is room for them, or to
//! release memory.

mod port;
mod timers;

use std::net::IpAddr;

use ferroce_dcqcn::Rate;
use ferroce_transport::Time;

pub(crate) use self::port::{Port, Queues};
pub(crate) use self::timers::Timers;
use crate::admission::{Admission, Audited, Called, PathLook, Signal};
use crate::pairing::{LinkNumber, Pairing};
use crate::queue_pair::QpEntry;
use crate::table::Table;
use crate::tx_window::TxWindows;

/// The lists of a device's queue pairs. Their methods are given the queue pair that they are about.
#[derive(Debug)]
#[repr(C)] // see `Hca`
pub(crate) struct Scheduler {
    pub(crate) port: Port,
    /// The queue pair whose turn it is had something to send besides answers.
    is_granted: bool,
    /// [`Self::take_pending`] has something to do.
    is_pending: bool,
    /// [`Self::admission`] is that of a card's transmission windows.
    has_tx_windows: bool,
    pub(crate) timers: Timers,
    admission: Option<Box<dyn Admission>>,
    /// Queue pairs that may have room now, and one that goes behind them.
    called: [Option<u32>; 3],
    /// Queue pairs that have worked since the device last rested.
    pub(crate) used: Vec<u32>,
}

impl Scheduler {
    pub(crate) fn new(port: Port) -> Self {
        Self {
            port,
            is_granted: false,
            is_pending: false,
            has_tx_windows: false,
            timers: Timers::default(),
            admission: None,
            called: [None; 3],
            used: Vec::new(),
        }
    }

    /// Has the host's admission decide how much queue pairs may have in flight.
    pub(crate) fn set_admission(&mut self, admission: Box<dyn Admission>) {
        self.admission = Some(admission);
        self.has_tx_windows = false;
    }

    /// Gives each queue pair a transmission window, or none, unless the host has an admission. True if
    /// that is a change, which queue pairs that have a path then [follow](Self::follow_path).
    pub(crate) fn use_tx_windows(&mut self, on: bool, line: Rate) -> bool {
        if on == self.has_tx_windows || self.admission.is_some() != self.has_tx_windows {
            return false;
        }
        self.admission = on.then(|| Box::new(TxWindows::new(line)) as _);
        self.has_tx_windows = on;
        true
    }

    /// Notes that a queue pair works.
    #[inline]
    pub(crate) fn note_use(&mut self, index: u32, entry: &mut QpEntry) {
        if !entry.used {
            entry.used = true;
            self.used.push(index);
        }
    }

    /// Makes sure that the timer heap has an entry no later than the queue pair's deadline.
    #[inline]
    pub(crate) fn follow_deadline(&mut self, index: u32, entry: &mut QpEntry) {
        if let Some(at) = entry.next_deadline() {
            self.push_timer(at, index);
        }
    }

    /// Adds an entry to the timer heap.
    pub(crate) fn push_timer(&mut self, at: Time, index: u32) {
        self.timers.push(at, index);
        self.is_pending |= self.timers.is_full();
    }

    /// Has a queue pair wait for the port, behind those that are called.
    #[inline]
    pub(crate) fn make_ready(&mut self, index: u32, entry: &mut QpEntry) {
        if self.is_pending {
            self.called[2] = Some(index);
        } else if entry.ready.is_none() {
            let queue = match self.port.has_priorities() {
                true => self.queue_of(index, entry),
                false => 0,
            };
            entry.ready = Some(queue);
            self.port.push(queue, index);
        }
    }

    /// A queue pair that waits for the port may be of another priority now, or of another link.
    pub(crate) fn change_queue(&mut self, index: u32, entry: &mut QpEntry) {
        if let Some(queue) = entry.ready
            && self.queue_of(index, entry) != queue
        {
            entry.ready = None;
            self.port.remove(queue, index);
            self.make_ready(index, entry);
        }
    }

    /// The queue of a queue pair's next packet.
    fn queue_of(&self, index: u32, entry: &QpEntry) -> u8 {
        let path = entry.next_path();
        path.map_or(0, |path| {
            self.port.queue_of(&path, self.link_of(index, entry))
        })
    }

    /// The link that a queue pair's packets belong on.
    pub(crate) fn link_of(&self, index: u32, entry: &QpEntry) -> LinkNumber {
        match self.port.links.pairing {
            None => 1,
            Some(Pairing::Ports) => entry.qp.attr().port,
            Some(Pairing::Bond) => entry.lag_link(index),
        }
    }

    /// Begins the turn of a queue pair.
    #[inline]
    pub(crate) fn begin_turn(&mut self, index: u32, entry: &mut QpEntry) {
        self.is_granted = entry.qp.send_queue_len() > 0 || entry.seat.waits();
        if !self.is_granted {
            return; // it has nothing but answers
        }
        match self.admission_of(entry) {
            Some(admission) => admission.grant(entry.applicant(index)),
            None => entry.qp.share_window(u32::MAX),
        }
    }

    /// Begins a queue pair's turn again if it began with answers only and there may be a request
    /// now.
    #[inline]
    pub(crate) fn begin_late(&mut self, index: u32, entry: &mut QpEntry) {
        if !self.is_granted && self.port.in_turn() == Some(index) {
            self.begin_turn(index, entry);
        }
    }

    /// Ends the turn of the queue pair at the front of its queue. It goes to the back if it has
    /// more to send, and leaves if not.
    pub(crate) fn end_turn(&mut self, now: Time, index: u32, entry: &mut QpEntry, has_more: bool) {
        if let Some(queue) = entry.ready.take() {
            self.port.pop(queue);
        }
        self.port.end_turn();
        let is_granted = std::mem::take(&mut self.is_granted);
        if is_granted && let Some(admission) = self.admission_of(entry) {
            let called = admission.end_turn(now, entry.applicant(index));
            self.call(called);
        }
        if has_more {
            self.make_ready(index, entry);
        }
    }

    /// Books what a queue pair has in flight.
    #[inline]
    pub(crate) fn book(&mut self, index: u32, entry: &mut QpEntry) {
        // A passive end has nothing there.
        let may_change = entry.seat.has_taken() || entry.qp.in_flight() > 0;
        if may_change && let Some(admission) = self.admission_of(entry) {
            let called = admission.book(entry.applicant(index));
            self.call(called);
        }
    }

    /// A queue pair has learned something about the path to its peer.
    #[inline]
    pub(crate) fn signal(&mut self, now: Time, index: u32, entry: &mut QpEntry, signal: Signal) {
        if let Some(admission) = self.admission_of(entry) {
            let called = admission.signal(now, entry.applicant(index), signal);
            self.call(called);
        }
    }

    /// The share of a queue pair in what all may have in flight to its peer.
    pub(crate) fn share(&self, index: u32, entry: &mut QpEntry) -> u32 {
        match self
            .admission
            .as_deref()
            .filter(|_| entry.seat.peer.is_some())
        {
            Some(admission) => admission.share(entry.applicant(index)),
            None => u32::MAX,
        }
    }

    /// A queue pair has another path now, or none.
    pub(crate) fn follow_path(&mut self, now: Time, index: u32, entry: &mut QpEntry) {
        // Packets of the other services are not acknowledged, so they are not in flight for long.
        let is_answered = entry.qp.config().qp_type.is_reliable();
        let path = entry.path.filter(|_| is_answered);
        self.connect(now, index, entry, path.map(|path| path.dest));
        // If the host was interrupted in the middle of its turn, the grant was for the old peer.
        if self.port.in_turn() == Some(index) {
            self.begin_turn(index, entry);
        }
        self.change_queue(index, entry);
    }

    /// Forgets a queue pair that is gone, except for its deadlines.
    pub(crate) fn forget(&mut self, now: Time, index: u32, entry: &mut QpEntry) {
        self.connect(now, index, entry, None);
        if let Some(queue) = entry.ready {
            self.port.remove(queue, index);
        }
        if entry.used {
            self.used.retain(|used| *used != index);
        }
        self.is_pending = true; // its entry in the timer heap
    }

    fn connect(&mut self, now: Time, index: u32, entry: &mut QpEntry, address: Option<IpAddr>) {
        if let Some(admission) = &mut self.admission {
            let called = admission.connect(now, entry.applicant(index), address);
            self.call(called);
        }
    }

    /// Remembers queue pairs that may have room now, until none is at hand.
    #[inline]
    fn call(&mut self, called: Called) {
        let [packets, responses] = called;
        if packets.is_some() || responses.is_some() {
            let [first, second, _] = &mut self.called;
            *first = packets.or(*first);
            *second = responses.or(*second);
            self.is_pending = true;
        }
    }

    /// Whether there is anything to do when no queue pair is at hand; not again until more comes.
    #[inline]
    pub(crate) fn take_pending(&mut self) -> Option<[Option<u32>; 3]> {
        match std::mem::take(&mut self.is_pending) {
            true => Some(std::mem::take(&mut self.called)),
            false => None,
        }
    }

    /// The path that a queue pair shares with others, for display.
    pub(crate) fn path(&self, entry: &QpEntry) -> Option<PathLook> {
        self.admission.as_ref()?.path(&entry.seat)
    }

    /// When queue pairs that wait for room are looked at.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.admission.as_ref()?.poll_timeout()
    }

    /// Returns the queue pairs that are to look for room, as what is in flight seems to be lost.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Vec<u32> {
        match &mut self.admission {
            Some(admission) => admission.handle_timeout(now),
            None => Vec::new(),
        }
    }

    /// Compares the lists with the queue pairs.
    ///
    /// # Panics
    /// Panics if they do not agree.
    pub(crate) fn audit(&self, now: Time, qps: &Table<Box<QpEntry>>) {
        let listed = qps.iter();
        self.port
            .audit(listed.filter_map(|(index, entry)| Some((entry.ready?, index))));
        assert!(!self.timers.are_stale(qps.len()), "{:?}", self.timers);
        self.timers.audit(now);
        if let Some(admission) = &self.admission {
            let audited = qps.iter().map(|(index, entry)| Audited {
                index,
                qp: &entry.qp,
                seat: &entry.seat,
                is_ready: entry.ready.is_some(),
                is_in_turn: self.port.in_turn() == Some(index),
            });
            admission.audit(&audited.collect::<Vec<_>>());
        }
    }

    /// What limits a queue pair together with others.
    #[inline]
    fn admission_of(&mut self, entry: &QpEntry) -> Option<&mut Box<dyn Admission>> {
        self.admission
            .as_mut()
            .filter(|_| entry.seat.peer.is_some())
    }
}

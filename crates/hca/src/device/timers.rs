//! Deadlines: when the host must call again, and what happens then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_transport::{Span, Time};

use super::Hca;
use super::carrier::CARRIER;

/// Four times the largest timeout code of a queue pair: 9.8 hours.
const WAIT_MAX: Span = Span::from_nanos(4 * (4096 << 31));

/// The deadlines of all queue pairs.
///
/// An ACK moves its queue pair's deadline further away, millions of times a second. So the heap
/// holds at most one early entry for each: when that one comes up, whoever took it looks at the
/// true deadline and puts the queue pair back if it lies later. An entry that an earlier one, or
/// the end of its queue pair, made useless stays until it comes up, or until there are too many of
/// its kind.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
}

impl Timers {
    pub(super) fn push(&mut self, at: Time, index: u32) {
        self.heap.push(Reverse((at, index)));
    }

    /// The earliest entry.
    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the earliest entry if it is due.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<(Time, u32)> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    pub(super) fn shrink(&mut self) {
        self.heap.shrink_to_fit();
    }

    /// Whether most entries are useless, where `owners` queue pairs have at most one good one each.
    pub(super) fn are_stale(&self, owners: usize) -> bool {
        self.heap.len() > 2 * owners + 64
    }

    /// Checks that nothing is put off for longer than the longest timer runs, which the program sets.
    ///
    /// # Panics
    /// Panics if something is.
    pub(super) fn audit(&self, now: Time) {
        let latest = now.after(WAIT_MAX);
        assert!(
            self.heap.iter().all(|Reverse((at, _))| *at <= latest),
            "{self:?}"
        );
    }

    /// Drops the entries that `is_good` does not know.
    pub(super) fn retain(&mut self, is_good: impl Fn(Time, u32) -> bool) {
        self.heap
            .retain(|Reverse((at, index))| is_good(*at, *index));
    }
}

impl Hca {
    /// Tells the device what time it is: lets timers run out and releases packets that the
    /// impairment held back. What has arrived since then may have been taken already.
    pub fn handle_timeout(&mut self, now: Time) {
        self.common.now = self.common.now.max(now);
        self.refresh();
        self.release_received();
        self.write_off(now);
        if let Some(cm) = self.cm.get_mut() {
            cm.handle_timeout(now);
        }
        self.tell_cm();
        while let Some((at, index)) = self.timers.pop_due(now) {
            if index == CARRIER {
                if self.carrier_waits_until(at) {
                    self.follow_schedule();
                }
                continue;
            }
            let Some(entry) = self.qps.get_mut(index) else {
                continue;
            };
            if entry.timer_at != Some(at) {
                continue; // an earlier owner of this index, or replaced by an earlier entry
            }
            entry.timer_at = None;
            let turn = entry
                .limiter
                .as_mut()
                .is_some_and(|it| it.wake(&self.config.host, now));
            if entry
                .qp
                .poll_timeout()
                .is_some_and(|deadline| deadline <= now)
            {
                let qpn = entry.qp.qpn();
                self.with_qp(qpn, |qp, host| qp.handle_timeout(now, host));
            } else {
                if turn {
                    self.make_ready(index);
                }
                self.settle(index);
            }
        }
    }

    /// When [`Self::handle_timeout`] wants to be called, or [`Self::poll_transmit`] again for a
    /// packet that waits for the port, or that an impairment holds back.
    pub fn poll_timeout(&self) -> Option<Time> {
        let busy_until = self.common.serializer.busy_until(self.common.now);
        let port = busy_until.filter(|_| self.next_priority().is_some());
        let link = earlier(self.egress.next(), self.ingress.next());
        let link = earlier(link, port);
        let cm = self.cm.get().and_then(|cm| cm.poll_timeout());
        let others = earlier(self.written_off_at, cm);
        earlier(self.timers.next(), earlier(link, others))
    }

    /// Whether a queue pair's timer may be due. Packets that an impairment holds back are none of
    /// these.
    pub fn timers_are_due(&self, now: Time) -> bool {
        self.timers.next().is_some_and(|at| at <= now)
    }

    /// Makes sure the timer heap has an entry no later than the queue pair's deadline.
    pub(crate) fn settle(&mut self, index: u32) {
        let Some(entry) = self.qps.get_mut(index) else {
            return;
        };
        if let Some(at) = entry.next_deadline() {
            self.wake_at(at, index);
        }
    }

    /// Puts a queue pair into the timer heap.
    pub(super) fn wake_at(&mut self, at: Time, index: u32) {
        self.timers.push(at, index);
        self.tidy_timers();
    }

    pub(super) fn tidy_timers(&mut self) {
        if self.timers.are_stale(self.qps.len()) {
            let (qps, carrier) = (&self.qps, self.carrier.as_deref());
            let is_good = |at, index| match index {
                CARRIER => carrier.is_some_and(|it| it.waits_until(at)),
                _ => qps.get(index).is_some_and(|e| e.timer_at == Some(at)),
            };
            self.timers.retain(is_good);
        }
    }
}

/// The earlier of two deadlines.
#[inline]
pub(super) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (either, None) | (None, either) => either,
    }
}

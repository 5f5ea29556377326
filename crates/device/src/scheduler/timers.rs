//! The deadlines of all queue pairs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_transport::{Span, Time};

/// Four times the largest timeout code of a queue pair: 9.8 hours.
const WAIT_MAX: Span = Span::from_nanos(4 * (4096 << 31));

/// The deadlines of all queue pairs.
///
/// An ACK moves its queue pair's deadline further away, millions of times a second. So the heap
/// holds at most one early entry for each: when that one comes up, the device compares it with the
/// true deadline and puts the queue pair back if it lies later. An entry that an earlier one, or
/// the end of its queue pair, made useless stays until it comes up, or until there are too many of
/// its kind. A queue pair that returns to the deadline of such an entry gets another one: when a rate
/// limiter makes it sleep before each of the packets that one timeout covers, there is a copy of the
/// timeout for each.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// With more entries, most of them may be useless.
    full: usize,
}

impl Timers {
    pub(crate) fn push(&mut self, at: Time, index: u32) {
        self.heap.push(Reverse((at, index)));
    }

    /// The earliest entry.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the earliest entry if it is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Time, u32)> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    pub(crate) fn shrink(&mut self) {
        self.heap.shrink_to_fit();
    }

    /// Whether the number of entries has reached the limit above which most may be useless.
    pub(crate) fn is_full(&self) -> bool {
        self.heap.len() > self.full
    }

    /// Whether most entries are useless, given that each of `owners` queue pairs has at most one
    /// valid entry.
    pub(crate) fn are_stale(&self, owners: usize) -> bool {
        self.heap.len() > Self::full(owners)
    }

    /// Drops the entries that `is_good` does not know, and copies of the others, if most are useless.
    pub(crate) fn tidy(&mut self, owners: usize, is_good: impl Fn(Time, u32) -> bool) {
        if self.are_stale(owners) {
            let mut entries = std::mem::take(&mut self.heap).into_vec();
            entries.retain(|Reverse((at, index))| is_good(*at, *index));
            entries.sort_unstable();
            entries.dedup();
            self.heap = entries.into();
        }
        self.full = Self::full(owners);
    }

    fn full(owners: usize) -> usize {
        2 * owners + 64
    }

    /// Checks that nothing is put off for longer than the longest timer runs, which the program sets.
    ///
    /// # Panics
    /// Panics if something is.
    pub(crate) fn audit(&self, now: Time) {
        let latest = now.after(WAIT_MAX);
        assert!(
            self.heap.iter().all(|Reverse((at, _))| *at <= latest),
            "{self:?}"
        );
    }
}

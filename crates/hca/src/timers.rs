use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_transport::Time;

/// The deadlines of all queue pairs.
///
/// An ACK moves its queue pair's deadline further away, millions of times a second. So the heap
/// holds at most one early entry for each: when that one comes up, whoever took it looks at the
/// true deadline and puts the queue pair back if it lies later. An entry that an earlier one, or
/// the end of its queue pair, made useless stays until it comes up, or until there are too many of
/// its kind.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
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

    /// Whether most entries are useless, where `owners` queue pairs have at most one good one each.
    pub(crate) fn are_stale(&self, owners: usize) -> bool {
        self.heap.len() > 2 * owners + 64
    }

    /// Drops the entries that `is_good` does not know.
    pub(crate) fn retain(&mut self, is_good: impl Fn(Time, u32) -> bool) {
        self.heap
            .retain(|Reverse((at, index))| is_good(*at, *index));
    }
}

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_transport::Time;

/// The deadlines of all queue pairs.
///
/// An ACK moves its queue pair's deadline further away, millions of times a second. So the heap
/// holds at most one early entry for each: when that one comes up, whoever took it looks at the
/// true deadline and puts the queue pair back if it lies later.
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
}

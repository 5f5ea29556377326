//! Completions that fault rules hold back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use ferroce_device::{Completion, Time};
use ferroce_os::{Clock, spawn};
use ferroce_wire::Qpn;

use crate::events::CompQueue;

/// How often a thread that waits for a completion looks whether there is an earlier one, or none.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How many completions a queue holds back at most. Beyond that, the earliest ones come early.
const HELD_MAX: usize = 1 << 16;

/// Those of a completion queue.
#[derive(Default)]
pub(crate) struct Late {
    /// Whether there are some. Programs that poll look at this alone.
    is_any: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// With the times at which they come.
    waiting: Vec<(Time, Completion)>,
    /// A thread waits for the time of the first of them.
    is_awaited: bool,
}

impl Late {
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Holds a completion back until `due`.
    pub(crate) fn hold(&self, due: Time, completion: Completion) {
        let mut held = self.held();
        let behind = held.waiting.partition_point(|(other, _)| *other <= due);
        held.waiting.insert(behind, (due, completion));
        if let Some(over) = held.waiting.len().checked_sub(HELD_MAX) {
            let early = held.waiting.iter_mut().take(over);
            early.for_each(|(due, _)| *due = Time::ZERO);
        }
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Hands out up to `max` of those whose time has come, and returns how many.
    pub(crate) fn take(&self, now: Time, max: usize, mut each: impl FnMut(Completion)) -> usize {
        let mut held = self.held();
        let due = held.waiting.iter().take_while(|(due, _)| *due <= now);
        let count = due.count().min(max);
        held.waiting
            .drain(..count)
            .for_each(|(_, completion)| each(completion));
        self.is_any
            .store(!held.waiting.is_empty(), Ordering::Relaxed);
        count
    }

    /// Forgets those of a queue pair that is gone, or all.
    pub(crate) fn forget(&self, of: Option<Qpn>) {
        let mut held = self.held();
        let stays = |it: &Completion| of.is_some_and(|qpn| it.qpn != qpn);
        held.waiting.retain(|(_, completion)| stays(completion));
        self.is_any
            .store(!held.waiting.is_empty(), Ordering::Relaxed);
    }

    /// Announces the next one when its time has come, if the queue is armed then.
    pub(crate) fn announce(self: &Arc<Self>, route: &Arc<CompQueue>) {
        let mut held = self.held();
        if held.waiting.is_empty() || held.is_awaited {
            return;
        }
        let (late, route) = (Arc::downgrade(self), Arc::clone(route));
        let watch = move || {
            while let Some(wait) = late.upgrade().and_then(|late| late.step(&route)) {
                sleep(wait);
            }
        };
        // Without a thread the program finds the completion when it polls.
        held.is_awaited = spawn("ferroce-late".to_owned(), watch).is_ok();
    }

    /// How long to wait; `None` when the time has come, and if there are none any more.
    fn step(&self, route: &CompQueue) -> Option<Duration> {
        let mut held = self.held();
        let next = held.waiting.first().map(|(due, _)| *due);
        let left_ns = next.map(|due| due.since(Clock.now()).as_nanos());
        if let Some(ns @ 1..) = left_ns {
            return Some(Duration::from_nanos(ns).min(LOOK_AGAIN));
        }
        held.is_awaited = false;
        if next.is_some() {
            route.announce_if_armed();
        }
        None
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ferroce_device::WcOpcode;

    use super::*;

    #[test]
    fn past_the_bound_the_earliest_come_at_once() {
        let late = Late::default();
        let hold = |id: u64| {
            let due = Time::from_nanos(1_000_000 + id);
            late.hold(due, Completion::success(id, WcOpcode::Send, Qpn::new(2)));
        };
        let take = |now, max| {
            let mut ids = Vec::new();
            late.take(Time::from_nanos(now), max, |it| ids.push(it.wr_id));
            ids
        };
        let bound = HELD_MAX as u64;
        (0..bound).for_each(hold);
        assert!(take(1, 8).is_empty());
        hold(bound);
        hold(bound + 1);
        assert_eq!(take(1, 8), [0, 1]);
        assert_eq!(take(2_000_000, 2 * HELD_MAX).len(), HELD_MAX);
        assert!(!late.is_any());
    }
}

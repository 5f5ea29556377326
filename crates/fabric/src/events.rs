//! The event queue: at most one event for each of a fixed number of sources.
//!
//! A source is anything that can state when it needs attention next: a host, a port, the far end of
//! a line. The queue therefore never holds more entries than there are sources, none of them is
//! ever out of date, and the order depends only on times and the sources' numbers.
//!
//! Nearly all events are no further ahead than a frame takes to cross a line. They are in a ring of
//! buckets, each so short that it seldom holds more than one or two. Finding, moving and removing
//! one costs a few words of memory and no comparisons that a processor cannot predict. Others,
//! mainly timers, and entries that do not fit into a bucket, are in a heap.

mod heap;
mod ring;

use ferroce_base::time::{Span, Time};

use self::heap::Heap;
use self::ring::Ring;

/// Whose event it is; sources with lower numbers go first at the same time.
pub(crate) type Source = u32;

/// The next event of each source.
#[derive(Debug)]
pub(crate) struct EventQueue {
    near: Ring,
    far: Heap,
    /// The earliest, if it is known.
    front: Option<(Time, Source)>,
}

impl EventQueue {
    /// For this many sources, most of whose events lie not further ahead than `horizon`.
    pub(crate) fn new(sources: usize, horizon: Span) -> Self {
        Self {
            near: Ring::new(sources, horizon),
            far: Heap::new(sources),
            front: None,
        }
    }

    /// The earliest event.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<(Time, Source)> {
        if self.front.is_none() {
            let near = loop {
                match self.near.first() {
                    Ok(near) => break near,
                    // Hosts that work in step have many events at the same moment.
                    Err(source) => self.put_far(source),
                }
            };
            self.front = match (near, self.far.first()) {
                (Some(near), Some(far)) => Some(near.min(far)),
                (one, other) => one.or(other),
            };
        }
        self.front
    }

    /// Says when a source wants attention next, in place of what it said before: not before the event
    /// that [`Self::peek`] told last.
    #[inline]
    pub(crate) fn set(&mut self, source: Source, at: Option<Time>) {
        if self.near.at(source) == at && at.is_some() {
            return;
        }
        if self.front.is_some_and(|(_, first)| first == source) {
            self.front = None;
        }
        self.near.remove(source);
        let Some(at) = at else {
            return self.far.set(source, None);
        };
        if self.near.insert(source, at) {
            self.far.set(source, None);
        } else {
            self.far.set(source, Some(at));
        }
        if self.front.is_some_and(|first| (at, source) < first) {
            self.front = Some((at, source));
        }
    }

    #[cold]
    fn put_far(&mut self, source: Source) {
        let at = self.near.at(source);
        self.near.remove(source);
        self.far.set(source, at);
    }

    /// Time has come that far: nothing is before it.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        self.near.advance(now);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_source() {
        for (seed, spread) in [(1, 10), (2, 10_000), (3, 3_000_000), (4, 1_000_000_000)] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let sources = 200;
            let mut queue = EventQueue::new(sources as usize, Span::from_nanos(1_000));
            let mut model = BTreeSet::new();
            let mut times = vec![None; sources as usize];
            let mut now = 0;
            for _ in 0..20_000 {
                assert_eq!(queue.peek(), model.first().copied(), "seed {seed}");
                let mut source = rng.random_range(0..sources);
                if rng.random_bool(0.5)
                    && let Some((at, first)) = queue.peek()
                {
                    now = at.as_picos();
                    queue.advance(at);
                    source = first;
                }
                let at = now + rng.random_range(0..spread);
                let next = rng.random_bool(0.9).then(|| Time::from_picos(at));
                if let Some(old) = std::mem::replace(&mut times[source as usize], next) {
                    model.remove(&(old, source));
                }
                model.extend(next.map(|next| (next, source)));
                queue.set(source, next);
            }
        }
    }
}

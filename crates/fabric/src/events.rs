//! What happens next: one entry at most for each of a fixed number of sources.

use ferroce_time::Time;

/// Whose next event it is; sources with lower numbers go first at the same time.
pub(crate) type Source = u32;

/// Children of a node: more make the heap flatter, and four 16-byte entries fill a cache line.
const ARITY: usize = 4;
const ABSENT: u32 = u32::MAX;

/// The next event of each source, earliest first.
///
/// A source is something that can say when it wants attention next: a host's timers, a switch port,
/// the far end of a link. So the queue never holds more than there are sources, nothing in it is
/// ever out of date, and the order depends on nothing but times and numbers.
#[derive(Debug)]
pub(crate) struct EventQueue {
    heap: Vec<Entry>,
    /// Where each source's entry is in `heap`.
    places: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    at: Time,
    source: Source,
}

impl EventQueue {
    pub(crate) fn new(sources: usize) -> Self {
        Self {
            heap: Vec::with_capacity(sources),
            places: vec![ABSENT; sources],
        }
    }

    /// The earliest event.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(Time, Source)> {
        self.heap.first().map(|first| (first.at, first.source))
    }

    /// Says when a source wants attention next: in place of what it said before.
    #[inline]
    pub(crate) fn set(&mut self, source: Source, at: Option<Time>) {
        let place = self.places[source as usize];
        match (at, place) {
            (None, ABSENT) => {}
            (None, place) => self.remove(place as usize),
            (Some(at), ABSENT) => {
                self.heap.push(Entry { at, source });
                self.rise(self.heap.len() - 1, Entry { at, source });
            }
            (Some(at), place) => {
                let (place, entry) = (place as usize, Entry { at, source });
                if entry <= self.heap[place] {
                    self.rise(place, entry);
                } else {
                    self.sink(place, entry);
                }
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let source = self.heap[place].source;
        self.places[source as usize] = ABSENT;
        let Some(last) = self.heap.pop() else { return };
        if place < self.heap.len() {
            if last <= self.heap[place] {
                self.rise(place, last);
            } else {
                self.sink(place, last);
            }
        }
    }

    /// Puts an entry at a place or further up.
    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Puts an entry at a place or further down.
    fn sink(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else {
                break;
            };
            if entry <= self.heap[least] {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    #[inline]
    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.places[entry.source as usize] = place as u32;
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
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let sources = 50;
        let mut queue = EventQueue::new(sources as usize);
        let mut model = BTreeSet::new();
        let mut at = vec![None; sources as usize];
        for _ in 0..100_000 {
            let source = rng.random_range(0..sources);
            let next = rng
                .random_bool(0.8)
                .then(|| Time::from_picos(rng.random_range(0..100)));
            if let Some(old) = std::mem::replace(&mut at[source as usize], next) {
                model.remove(&(old, source));
            }
            model.extend(next.map(|next| (next, source)));
            queue.set(source, next);
            assert_eq!(queue.peek(), model.first().copied());
        }
    }
}

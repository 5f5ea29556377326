//! Events at any time, in a heap whose entries can be found and moved.

use ferroce_base::time::Time;

use super::Source;

/// Children of a node: more make the heap flatter, and four 16-byte entries fill a cache line.
const ARITY: usize = 4;
const ABSENT: u32 = u32::MAX;

/// One event at most of each source, earliest first.
#[derive(Debug)]
pub(super) struct Heap {
    heap: Vec<Entry>,
    /// Where each source's entry is in `heap`.
    places: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    at: Time,
    source: Source,
}

impl Heap {
    pub(super) fn new(sources: usize) -> Self {
        Self {
            heap: Vec::with_capacity(sources),
            places: vec![ABSENT; sources],
        }
    }

    /// The earliest event.
    #[inline]
    pub(super) fn first(&self) -> Option<(Time, Source)> {
        self.heap.first().map(|first| (first.at, first.source))
    }

    /// Says when a source wants attention next: in place of what it said before.
    #[inline]
    pub(super) fn set(&mut self, source: Source, at: Option<Time>) {
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

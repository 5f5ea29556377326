//! Events of the near future, in a ring of short buckets.

use ferroce_base::time::{Span, Time};

use super::Source;

const NONE: u32 = u32::MAX;
const WORD: usize = u64::BITS as usize;
const BUCKETS_MIN: usize = WORD * WORD;
const BUCKETS_MAX: usize = 1 << 18;
/// Entries of a bucket that are looked at to find the earliest.
const LOOKS_MAX: usize = 8;

/// Buckets of equal length, each a list of sources, from the present on. The ring is as long as the
/// events that it takes lie ahead, so that all of one bucket belong to the same lap.
#[derive(Debug)]
pub(super) struct Ring {
    /// The first source in each bucket.
    heads: Vec<u32>,
    /// A bit for each bucket that has any.
    used: Vec<u64>,
    /// A bit for each word of `used` that is not zero.
    used_words: Vec<u64>,
    entries: Vec<Entry>,
    /// A bucket takes 2^shift ps.
    shift: u32,
    /// The bucket of the present, counted from the beginning of time.
    now: u64,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    /// Its bucket in the ring.
    bucket: u32,
    next: u32,
    previous: u32,
}

impl Ring {
    /// For this many sources with events that lie not further ahead than `horizon`.
    pub(super) fn new(sources: usize, horizon: Span) -> Self {
        let buckets = (4 * sources)
            .next_power_of_two()
            .clamp(BUCKETS_MIN, BUCKETS_MAX);
        let width = horizon.as_picos() / buckets as u64 + 1;
        let words = buckets / WORD;
        Self {
            heads: vec![NONE; buckets],
            used: vec![0; words],
            used_words: vec![0; words / WORD],
            entries: vec![
                Entry {
                    at: Time::NEVER,
                    bucket: NONE,
                    next: NONE,
                    previous: NONE,
                };
                sources
            ],
            shift: width.next_power_of_two().ilog2(),
            now: 0,
            count: 0,
        }
    }

    /// When a source's event is, if it is here.
    #[inline]
    pub(super) fn at(&self, source: Source) -> Option<Time> {
        let entry = &self.entries[source as usize];
        (entry.bucket != NONE).then_some(entry.at)
    }

    /// Nothing lies before `now`.
    #[inline]
    pub(super) fn advance(&mut self, now: Time) {
        self.now = now.as_picos() >> self.shift;
    }

    /// Takes an event of a source that has none here; false if it lies too far ahead.
    #[inline]
    pub(super) fn insert(&mut self, source: Source, at: Time) -> bool {
        let lap = (at.as_picos() >> self.shift).max(self.now);
        if lap - self.now >= self.heads.len() as u64 {
            return false;
        }
        let bucket = lap as usize % self.heads.len();
        let next = std::mem::replace(&mut self.heads[bucket], source);
        if next == NONE {
            self.used[bucket / WORD] |= 1 << (bucket % WORD);
            self.used_words[bucket / WORD / WORD] |= 1 << (bucket / WORD % WORD);
        } else {
            self.entries[next as usize].previous = source;
        }
        self.entries[source as usize] = Entry {
            at,
            bucket: bucket as u32,
            next,
            previous: NONE,
        };
        self.count += 1;
        true
    }

    /// Drops a source's event, if it is here.
    #[inline]
    pub(super) fn remove(&mut self, source: Source) {
        let Entry {
            bucket,
            next,
            previous,
            ..
        } = self.entries[source as usize];
        if bucket == NONE {
            return;
        }
        self.entries[source as usize].bucket = NONE;
        self.count -= 1;
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous != NONE {
            self.entries[previous as usize].next = next;
            return;
        }
        let bucket = bucket as usize;
        self.heads[bucket] = next;
        if next == NONE {
            let word = &mut self.used[bucket / WORD];
            *word &= !(1 << (bucket % WORD));
            if *word == 0 {
                self.used_words[bucket / WORD / WORD] &= !(1 << (bucket / WORD % WORD));
            }
        }
    }

    /// The earliest event; or, if it shares its bucket with too many to look at each time, any of them.
    #[inline]
    pub(super) fn first(&self) -> Result<Option<(Time, Source)>, Source> {
        if self.count == 0 {
            return Ok(None);
        }
        let from = self.now as usize % self.heads.len();
        let Some(bucket) = self.used_from(from).or_else(|| self.used_from(0)) else {
            return Ok(None);
        };
        let mut source = self.heads[bucket];
        let mut first = (Time::NEVER, NONE);
        for _ in 0..LOOKS_MAX {
            let entry = &self.entries[source as usize];
            first = first.min((entry.at, source));
            source = entry.next;
            if source == NONE {
                return Ok(Some(first));
            }
        }
        Err(source)
    }

    /// The first bucket in use from this one to the end of the ring.
    #[inline]
    fn used_from(&self, bucket: usize) -> Option<usize> {
        let word = bucket / WORD;
        let here = self.used[word] & u64::MAX << (bucket % WORD);
        if here != 0 {
            return Some(word * WORD + here.trailing_zeros() as usize);
        }
        let (mut outer, after) = ((word + 1) / WORD, (word + 1) % WORD);
        let mut words = self.used_words.get(outer)? & u64::MAX << after;
        while words == 0 {
            outer += 1;
            words = *self.used_words.get(outer)?;
        }
        let word = outer * WORD + words.trailing_zeros() as usize;
        Some(word * WORD + self.used[word].trailing_zeros() as usize)
    }
}

//! The counters of a device.

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_transport::Counter;

/// The counters of one process of a device. One thread at a time writes; any thread may read.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Counters([AtomicU64; Counter::COUNT]);

/// The same in memory that several processes map.
///
/// In C layout, and zeros are a valid content; cache lines of its own, since each has another writer.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct CounterSlab(pub(crate) Counters);

impl Default for Counters {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Counter::COUNT])
    }
}

impl Counters {
    /// The value of a counter.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let cell = &self.0[counter as usize];
        let sum = cell.load(Ordering::Relaxed).wrapping_add(n);
        cell.store(sum, Ordering::Relaxed);
    }

    /// Adds all of them to `sums`.
    pub(crate) fn add_to(&self, sums: &mut [u64; Counter::COUNT]) {
        for (sum, cell) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
        }
    }
}

impl CounterSlab {
    /// The value of a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.0.get(counter)
    }
}

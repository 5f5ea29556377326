use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ferroce_transport::Counter;

use crate::histogram::{Histogram, HistogramConfig, HistogramError};

const ROCE_ACCL_WORDS: usize = 32;

/// What the device and its observers share: registers, histogram, counters.
///
/// Only atomics in C layout, so that it can live in a `Box` or in memory that several processes
/// map. The device writes counters from one thread at a time; anybody may read.
#[derive(Debug)]
#[repr(C)]
pub struct DeviceState {
    /// Rises with every register write.
    generation: AtomicU32,
    /// The values of ROCE_ACCL, as dwords of the register in host order.
    roce_accl: [AtomicU32; ROCE_ACCL_WORDS],
    histogram: Histogram,
    counters: [AtomicU64; Counter::COUNT],
}

impl DeviceState {
    pub(crate) fn new(roce_accl: &[u8; 4 * ROCE_ACCL_WORDS]) -> Self {
        let state = Self {
            generation: AtomicU32::new(0),
            roce_accl: [const { AtomicU32::new(0) }; ROCE_ACCL_WORDS],
            histogram: Histogram::new(HistogramConfig::default()),
            counters: [const { AtomicU64::new(0) }; Counter::COUNT],
        };
        state.store_roce_accl(roce_accl);
        state
    }

    /// The value of a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Ordering::Relaxed)
    }

    /// Adds to a counter. One writer at a time: the owner of the device.
    #[inline]
    pub(crate) fn count(&self, counter: Counter, n: u64) {
        let cell = &self.counters[counter as usize];
        cell.store(
            cell.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// How the waits of adaptive retransmission are binned.
    pub fn histogram_config(&self) -> HistogramConfig {
        self.histogram.config()
    }

    /// Changes the binning; another layout starts from zero.
    pub fn configure_histogram(&self, config: HistogramConfig) -> Result<(), HistogramError> {
        self.histogram.configure(config)
    }

    /// The counts, one for each bin.
    pub fn histogram(&self) -> Vec<u64> {
        self.histogram.counts()
    }

    /// Sets all counts to zero.
    pub fn clear_histogram(&self) {
        self.histogram.clear();
    }

    pub(crate) fn record_wait(&self, wait_ns: u64) {
        self.histogram.record(wait_ns);
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn load_roce_accl(&self) -> [u8; 4 * ROCE_ACCL_WORDS] {
        let mut bytes = [0; 4 * ROCE_ACCL_WORDS];
        for (dword, word) in bytes.chunks_exact_mut(4).zip(&self.roce_accl) {
            dword.copy_from_slice(&word.load(Ordering::Relaxed).to_be_bytes());
        }
        bytes
    }

    pub(crate) fn store_roce_accl(&self, bytes: &[u8; 4 * ROCE_ACCL_WORDS]) {
        let (dwords, _) = bytes.as_chunks::<4>();
        for (dword, word) in dwords.iter().zip(&self.roce_accl) {
            word.store(u32::from_be_bytes(*dword), Ordering::Relaxed);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }
}

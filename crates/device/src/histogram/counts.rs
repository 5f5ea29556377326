//! The counts of a histogram, which may change while they are read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::HistogramConfig;

/// Where the epoch lies: in the configuration word above [`HistogramConfig::pack`]'s bits, in a bin
/// above the count, which would take a millennium to get there.
pub(super) const EPOCH_SHIFT: u32 = 52;
const COUNT_MASK: u64 = (1 << EPOCH_SHIFT) - 1;

/// The histogram in the device's state, counted and read by several processes without a lock.
///
/// Every layout has an epoch, and so has the count in a bin. A count from another epoch than the
/// layout's is zero. So one store changes the layout and clears all bins, and a process that was
/// about to count under the old layout notices before it could corrupt the new one.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Histogram {
    config: AtomicU64,
    bins: [AtomicU64; HistogramConfig::BINS_MAX as usize],
    /// How often a layout took the place of another one.
    layout_changes: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            config: AtomicU64::new(HistogramConfig::default().pack()),
            bins: [const { AtomicU64::new(0) }; HistogramConfig::BINS_MAX as usize],
            layout_changes: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub(crate) fn config(&self) -> HistogramConfig {
        HistogramConfig::unpack(self.config.load(Ordering::Acquire))
    }

    fn epoch(&self) -> u64 {
        epoch_of(self.config.load(Ordering::Acquire))
    }

    /// Changes the layout, which has been checked. The counts start again if it is another one, or
    /// of another function; the switches alone keep them (D25). One caller at a time.
    pub(crate) fn configure(&self, config: HistogramConfig) {
        if config.has_layout_of(&self.config()) {
            let word = config.pack() | self.epoch() << EPOCH_SHIFT;
            self.config.store(word, Ordering::Release);
        } else {
            self.restart(config);
        }
    }

    /// How often the layout, or the function whose waits are counted, became another.
    pub(crate) fn layout_changes(&self) -> u64 {
        self.layout_changes.load(Ordering::Relaxed)
    }

    /// Starts from zero with a layout. One caller at a time.
    pub(crate) fn restart(&self, config: HistogramConfig) {
        let old = self.config();
        // Memory full of zeros has no layout yet.
        if old.bins > 0 && !config.has_layout_of(&old) {
            self.layout_changes.fetch_add(1, Ordering::Relaxed);
        }
        let epoch = epoch_of((self.epoch() + 1) << EPOCH_SHIFT);
        let word = config.pack() | epoch << EPOCH_SHIFT;
        self.config.store(word, Ordering::Release);
        // They count as zero already. This is for the day on which the epochs start over.
        for bin in &self.bins {
            let stale = |word| (word >> EPOCH_SHIFT != epoch).then_some(fresh(epoch, 0));
            let _ = bin.fetch_update(Ordering::Relaxed, Ordering::Relaxed, stale);
        }
    }

    /// Counts a wait of a function, if it is one whose waits are counted.
    pub(crate) fn record(&self, vhca_id: u16, wait_ns: u64) {
        loop {
            let word = self.config.load(Ordering::Acquire);
            let config = HistogramConfig::unpack(word);
            // The word may come from memory that other processes write: no bin is taken for granted.
            let Some(bin) = self.bins.get(config.bin_of(wait_ns)) else {
                return;
            };
            if !config.enabled || config.vhca_id.is_some_and(|only| only != vhca_id) {
                return;
            }
            let epoch = epoch_of(word);
            let old = bin.load(Ordering::Acquire);
            let new = fresh(epoch, count_in(old, epoch) + 1);
            let unchanged = self.config.load(Ordering::Acquire) == word;
            if unchanged
                && bin
                    .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
    }

    /// The layout, and the counts in it.
    pub(crate) fn snapshot(&self) -> (HistogramConfig, Vec<u64>) {
        loop {
            let word = self.config.load(Ordering::Acquire);
            let count = |bin: &AtomicU64| count_in(bin.load(Ordering::Acquire), epoch_of(word));
            let config = HistogramConfig::unpack(word);
            let counts = self
                .bins
                .iter()
                .take(config.bins.into())
                .map(count)
                .collect();
            if self.config.load(Ordering::Relaxed) == word {
                return (config, counts);
            }
        }
    }

    pub(crate) fn counts(&self) -> Vec<u64> {
        self.snapshot().1
    }

    /// The counts, which start from zero: each wait is in one answer. One caller at a time.
    pub(crate) fn take(&self) -> Vec<u64> {
        let epoch = self.epoch();
        let take = |bin: &AtomicU64| count_in(bin.swap(fresh(epoch, 0), Ordering::AcqRel), epoch);
        let bins = self.config().bins.into();
        self.bins.iter().take(bins).map(take).collect()
    }
}

fn epoch_of(config: u64) -> u64 {
    config >> EPOCH_SHIFT
}

fn fresh(epoch: u64, count: u64) -> u64 {
    epoch << EPOCH_SHIFT | count & COUNT_MASK
}

fn count_in(bin: u64, epoch: u64) -> u64 {
    if bin >> EPOCH_SHIFT == epoch {
        bin & COUNT_MASK
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::BinWidthMode;
    use crate::histogram::tests::{MS, layout};

    #[test]
    fn a_new_layout_clears_and_the_switch_alone_does_not() {
        let histogram = Histogram::default();
        histogram.configure(layout(4, BinWidthMode::Fixed));
        histogram.record(0, 60 * MS);
        histogram.configure(HistogramConfig {
            enabled: false,
            ..histogram.config()
        });
        histogram.record(0, 60 * MS);
        assert_eq!(histogram.counts(), [0, 1, 0, 0]);
        assert_eq!(histogram.layout_changes(), 1);
        histogram.configure(layout(5, BinWidthMode::Fixed));
        assert_eq!(histogram.counts(), [0, 0, 0, 0, 0]);
        assert_eq!(histogram.layout_changes(), 2);
        histogram.restart(layout(5, BinWidthMode::Fixed));
        assert_eq!(histogram.layout_changes(), 2, "the same again");
        histogram.record(0, 60 * MS);
        assert_eq!(histogram.take(), [0, 1, 0, 0, 0]);
        assert_eq!(histogram.counts(), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn epochs_that_start_over_bring_no_old_counts_back() {
        let histogram = Histogram::default();
        histogram.configure(layout(4, BinWidthMode::Fixed));
        histogram.record(0, 0);
        for _ in 0..=u16::MAX {
            histogram.restart(layout(4, BinWidthMode::Fixed));
        }
        assert_eq!(histogram.counts(), [0; 4]);
    }

    /// Three threads count while one takes: each wait is in one answer.
    #[test]
    fn no_wait_is_lost_or_told_twice() {
        const EACH: u64 = 50_000;
        let histogram = Histogram::default();
        let counted = std::thread::scope(|scope| {
            let count = || (0..EACH).for_each(|n| histogram.record(0, n * MS / 10));
            let counters: Vec<_> = (0..3).map(|_| scope.spawn(count)).collect();
            let mut sum = 0;
            while counters.iter().any(|thread| !thread.is_finished()) {
                sum += histogram.take().iter().sum::<u64>();
            }
            sum + histogram.take().iter().sum::<u64>()
        });
        assert_eq!(counted, 3 * EACH);
    }

    /// A wait belongs to bin 0 of one layout and to bin 1 of the other, never elsewhere.
    #[test]
    fn no_wait_is_counted_in_a_layout_it_was_not_binned_for() {
        let (narrow, wide) = (
            layout(4, BinWidthMode::Fixed),
            HistogramConfig {
                bin0_width: 1000,
                ..layout(5, BinWidthMode::Fixed)
            },
        );
        let histogram = Histogram::default();
        histogram.configure(narrow);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        histogram.record(0, 60 * MS);
                    }
                });
            }
            for _ in 0..2_000 {
                let counts = histogram.take();
                assert_eq!([counts[0], counts[2], counts[3]], [0; 3], "narrow");
                histogram.configure(wide);
                assert_eq!(histogram.take()[1..], [0; 4], "wide");
                histogram.configure(narrow);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

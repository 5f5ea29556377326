use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// Unit of the bin widths; the values of the register field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the name is the value")]
pub enum TimeUnit {
    Nsec = 0,
    Usec = 1,
    Usec100 = 2,
    Msec = 3,
}

impl TimeUnit {
    /// All units, by their value.
    pub const ALL: [Self; 4] = [Self::Nsec, Self::Usec, Self::Usec100, Self::Msec];

    /// Length in nanoseconds.
    pub const fn nanos(self) -> u64 {
        match self {
            Self::Nsec => 1,
            Self::Usec => 1_000,
            Self::Usec100 => 100_000,
            Self::Msec => 1_000_000,
        }
    }
}

/// How the bins after the first grow; the values of the register field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BinWidthMode {
    /// Each as wide as bin 1.
    Fixed = 0,
    /// Each twice as wide as the one before it.
    Double = 1,
}

/// How the waits of adaptive retransmission are sorted into bins (seed 004).
///
/// Bins are half open: bin 0 holds `0..bin0_width`, bin 1 the next `bin1_width`, and so on; the
/// last bin has no upper end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistogramConfig {
    /// Number of bins, 1 to [`Self::BINS_MAX`].
    pub bins: u8,
    /// Growth of the bins after bin 0.
    pub mode: BinWidthMode,
    /// Unit of the widths.
    pub unit: TimeUnit,
    /// Width of bin 0 in units, not 0.
    pub bin0_width: u16,
    /// Width of bin 1 in units, not 0 if there is a bin 1.
    pub bin1_width: u16,
    /// Whether anything is counted.
    pub enabled: bool,
    /// Whether a read through the register sets all counts to zero.
    pub clear_on_read: bool,
    /// The only function whose waits are counted; `None` for the device and all its functions. This
    /// device has one function, [`Self::VHCA_ID`].
    pub vhca_id: Option<u16>,
}

/// A histogram layout the device cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{field} is {value}, allowed is {}", allowed(*min, *max))]
pub struct HistogramError {
    /// Name of the register field.
    pub field: &'static str,
    /// Value given.
    pub value: u32,
    /// Smallest allowed.
    pub min: u32,
    /// Largest allowed.
    pub max: u32,
}

fn allowed(min: u32, max: u32) -> String {
    match min == max {
        true => min.to_string(),
        false => format!("{min} to {max}"),
    }
}

impl Default for HistogramConfig {
    /// Octaves from 1 ms to 16 s: every timeout a person configures has its bin.
    fn default() -> Self {
        Self {
            bins: 16,
            mode: BinWidthMode::Double,
            unit: TimeUnit::Msec,
            bin0_width: 1,
            bin1_width: 1,
            enabled: true,
            clear_on_read: false,
            vhca_id: None,
        }
    }
}

impl HistogramConfig {
    /// The device's only function.
    pub const VHCA_ID: u16 = 0;

    /// Largest number of bins this device offers (`bin_num_max`).
    pub const BINS_MAX: u8 = 64;

    /// Whether the device can have this layout.
    pub fn check(&self) -> Result<(), HistogramError> {
        let fields = [
            ("bin_num", u32::from(self.bins), Self::BINS_MAX.into()),
            ("bin0_width", self.bin0_width.into(), u16::MAX.into()),
            ("bin1_width", self.bin1_width.into(), u16::MAX.into()),
        ];
        for (field, value, max) in fields {
            let counts = field != "bin1_width" || self.bins > 1;
            if counts && !(1..=max).contains(&value) {
                return Err(HistogramError {
                    field,
                    value,
                    min: 1,
                    max,
                });
            }
        }
        match self.vhca_id {
            Some(other) if other != Self::VHCA_ID => Err(HistogramError {
                field: "vhca_id",
                value: other.into(),
                min: Self::VHCA_ID.into(),
                max: Self::VHCA_ID.into(),
            }),
            _ => Ok(()),
        }
    }

    /// The bin that a wait belongs to.
    pub fn bin_of(&self, wait_ns: u64) -> usize {
        let first_end = u64::from(self.bin0_width) * self.unit.nanos();
        let last = usize::from(self.bins.saturating_sub(1));
        let Some(beyond) = wait_ns.checked_sub(first_end) else {
            return 0;
        };
        let step = (u64::from(self.bin1_width) * self.unit.nanos()).max(1);
        let steps = beyond / step;
        let index = match self.mode {
            BinWidthMode::Fixed => steps,
            // Bins of 1, 2, 4 … steps begin at 0, 1, 3, 7 … steps.
            BinWidthMode::Double => u64::from((steps + 1).ilog2()),
        };
        usize::try_from(index)
            .unwrap_or(usize::MAX)
            .saturating_add(1)
            .min(last)
    }

    /// Where a bin begins and ends in nanoseconds; the last one ends nowhere.
    pub fn edges_ns(&self, bin: usize) -> (u64, Option<u64>) {
        let start = |bin: usize| -> u64 {
            if bin == 0 {
                return 0;
            }
            let steps = match self.mode {
                BinWidthMode::Fixed => bin as u64 - 1,
                BinWidthMode::Double => (1u64 << (bin - 1).min(62)) - 1,
            };
            let first = u64::from(self.bin0_width) * self.unit.nanos();
            let step = u64::from(self.bin1_width) * self.unit.nanos();
            steps.saturating_mul(step).saturating_add(first)
        };
        let end = (bin + 1 < usize::from(self.bins)).then(|| start(bin + 1));
        (start(bin), end)
    }

    /// The layout as one word, so that readers in other processes see all of it or nothing.
    fn pack(&self) -> u64 {
        u64::from(self.bin0_width)
            | u64::from(self.bin1_width) << 16
            | u64::from(self.bins) << 32
            | (self.mode as u64) << 40
            | (self.unit as u64) << 41
            | u64::from(self.enabled) << 43
            | u64::from(self.clear_on_read) << 44
            | u64::from(self.vhca_id.is_some()) << 45
    }

    fn unpack(word: u64) -> Self {
        Self {
            bin0_width: word as u16,
            bin1_width: (word >> 16) as u16,
            bins: (word >> 32) as u8,
            mode: if word >> 40 & 1 == 0 {
                BinWidthMode::Fixed
            } else {
                BinWidthMode::Double
            },
            unit: TimeUnit::ALL[(word >> 41 & 3) as usize],
            enabled: word >> 43 & 1 == 1,
            clear_on_read: word >> 44 & 1 == 1,
            vhca_id: (word >> 45 & 1 == 1).then_some(Self::VHCA_ID),
        }
    }
}

/// Where the epoch lies: in the configuration word above [`HistogramConfig::pack`]'s bits, in a bin
/// above the count, which would take a millennium to get there.
const EPOCH_SHIFT: u32 = 48;
const COUNT_MASK: u64 = (1 << EPOCH_SHIFT) - 1;

/// The histogram in the device's state, counted and read by several processes without a lock.
///
/// Every layout has an epoch, and so has the count in a bin. A count of another epoch than the
/// layout's is zero, so one store changes the layout and clears all bins, and a process that was
/// about to count under the old layout finds out before it could spoil the new one.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Histogram {
    config: AtomicU64,
    bins: [AtomicU64; HistogramConfig::BINS_MAX as usize],
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            config: AtomicU64::new(HistogramConfig::default().pack()),
            bins: [const { AtomicU64::new(0) }; HistogramConfig::BINS_MAX as usize],
        }
    }

    pub(crate) fn config(&self) -> HistogramConfig {
        HistogramConfig::unpack(self.config.load(Ordering::Acquire))
    }

    fn epoch(&self) -> u64 {
        epoch_of(self.config.load(Ordering::Acquire))
    }

    /// Changes the layout, which has been checked. The counts start again if it is another one, or
    /// of another function; the switches alone keep them (D25). One caller at a time.
    pub(crate) fn configure(&self, config: HistogramConfig) {
        let old = self.config();
        let same_layout = HistogramConfig {
            enabled: old.enabled,
            clear_on_read: old.clear_on_read,
            ..config
        } == old;
        if same_layout {
            let word = config.pack() | self.epoch() << EPOCH_SHIFT;
            self.config.store(word, Ordering::Release);
        } else {
            self.restart(config);
        }
    }

    /// Starts from zero with a layout. One caller at a time.
    pub(crate) fn restart(&self, config: HistogramConfig) {
        let epoch = u64::from((self.epoch() as u16).wrapping_add(1));
        let word = config.pack() | epoch << EPOCH_SHIFT;
        self.config.store(word, Ordering::Release);
        // They count as zero already. This is for the day on which the epochs start over.
        for bin in &self.bins {
            let stale = |word| (word >> EPOCH_SHIFT != epoch).then_some(fresh(epoch, 0));
            let _ = bin.fetch_update(Ordering::Relaxed, Ordering::Relaxed, stale);
        }
    }

    /// Counts a wait.
    pub(crate) fn record(&self, wait_ns: u64) {
        loop {
            let word = self.config.load(Ordering::Acquire);
            let config = HistogramConfig::unpack(word);
            // The word may come from memory that other processes write: no bin is taken for granted.
            let Some(bin) = self.bins.get(config.bin_of(wait_ns)) else {
                return;
            };
            if !config.enabled {
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

    const MS: u64 = 1_000_000;

    fn layout(bins: u8, mode: BinWidthMode) -> HistogramConfig {
        let unit = TimeUnit::Msec;
        HistogramConfig {
            bins,
            mode,
            unit,
            bin0_width: 50,
            bin1_width: 100,
            ..HistogramConfig::default()
        }
    }

    #[test]
    fn edges_are_those_of_the_specification() {
        let starts = |config: HistogramConfig| -> Vec<u64> {
            (0..config.bins.into())
                .map(|bin| config.edges_ns(bin).0 / MS)
                .collect()
        };
        assert_eq!(starts(layout(4, BinWidthMode::Fixed)), [0, 50, 150, 250]);
        assert_eq!(
            starts(layout(5, BinWidthMode::Double)),
            [0, 50, 150, 350, 750]
        );
        assert_eq!(layout(4, BinWidthMode::Fixed).edges_ns(3), (250 * MS, None));
    }

    #[test]
    fn every_wait_falls_between_the_edges_of_its_bin() {
        for config in [
            layout(4, BinWidthMode::Fixed),
            layout(64, BinWidthMode::Double),
            layout(1, BinWidthMode::Double),
        ] {
            for wait in
                (0..2000)
                    .map(|n| n * MS / 2)
                    .chain([i64::MAX as u64, 0, 49_999_999, 50 * MS - 1])
            {
                let bin = config.bin_of(wait);
                let (low, high) = config.edges_ns(bin);
                assert!(
                    low <= wait && high.is_none_or(|high| wait < high),
                    "{wait} in {bin}"
                );
            }
        }
    }

    #[test]
    fn a_new_layout_clears_and_the_switch_alone_does_not() {
        let histogram = Histogram::new();
        histogram.configure(layout(4, BinWidthMode::Fixed));
        histogram.record(60 * MS);
        histogram.configure(HistogramConfig {
            enabled: false,
            ..histogram.config()
        });
        histogram.record(60 * MS);
        assert_eq!(histogram.counts(), [0, 1, 0, 0]);
        histogram.configure(layout(5, BinWidthMode::Fixed));
        assert_eq!(histogram.counts(), [0, 0, 0, 0, 0]);
        histogram.record(60 * MS);
        assert_eq!(histogram.take(), [0, 1, 0, 0, 0]);
        assert_eq!(histogram.counts(), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = layout(4, BinWidthMode::Fixed);
        let error = HistogramConfig { bins: 65, ..good }.check();
        assert_eq!(
            error.unwrap_err().to_string(),
            "bin_num is 65, allowed is 1 to 64"
        );
        for (bins, bin1_width, is_legal) in [(1, 0, true), (2, 0, false), (0, 1, false)] {
            let config = HistogramConfig {
                bins,
                bin1_width,
                ..good
            };
            assert_eq!(config.check().is_ok(), is_legal, "{bins} bins");
        }
    }

    #[test]
    fn epochs_that_start_over_bring_no_old_counts_back() {
        let histogram = Histogram::new();
        histogram.configure(layout(4, BinWidthMode::Fixed));
        histogram.record(0);
        for _ in 0..=u16::MAX {
            histogram.restart(layout(4, BinWidthMode::Fixed));
        }
        assert_eq!(histogram.counts(), [0; 4]);
    }

    /// Three threads count while one takes: each wait is in one answer.
    #[test]
    fn no_wait_is_lost_or_told_twice() {
        const EACH: u64 = 50_000;
        let histogram = Histogram::new();
        let counted = std::thread::scope(|scope| {
            let count = || (0..EACH).for_each(|n| histogram.record(n * MS / 10));
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
        let histogram = Histogram::new();
        histogram.configure(narrow);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        histogram.record(60 * MS);
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

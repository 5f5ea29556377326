//! The histogram of waits: its configuration and its bins.

mod counts;

use thiserror::Error;

pub(crate) use self::counts::Histogram;

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

/// How the waits of adaptive retransmission are sorted into bins, as the register ADP_RETX_HISTOGRAM_CONFIG has it.
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
    /// The only function whose waits are counted, by [`Function::vhca_id`]; `None` for this one and,
    /// on a PF, all its VFs.
    ///
    /// [`Function::vhca_id`]: crate::Function::vhca_id
    pub vhca_id: Option<u16>,
}

/// A histogram layout the device cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{field} is {value}; allowed: {}", allowed(*min, *max))]
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
    /// Largest number of bins this device offers (`bin_num_max`).
    pub const BINS_MAX: u8 = 64;

    /// Whether a device can have this layout. Which functions there are is the device's matter.
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
        Ok(())
    }

    /// Whether both sort the waits of the same functions into the same bins; the switches may differ.
    pub(crate) fn has_layout_of(&self, other: &Self) -> bool {
        let same_switches = Self {
            enabled: other.enabled,
            clear_on_read: other.clear_on_read,
            ..*self
        };
        same_switches == *other
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
            | (self.mode as u64) << 39
            | (self.unit as u64) << 40
            | u64::from(self.enabled) << 42
            | u64::from(self.clear_on_read) << 43
            | self.vhca_id.map_or(0, |id| u64::from(id) + 1) << 44
    }

    fn unpack(word: u64) -> Self {
        Self {
            bin0_width: word as u16,
            bin1_width: (word >> 16) as u16,
            bins: (word >> 32) as u8 & 0x7f,
            mode: if word >> 39 & 1 == 0 {
                BinWidthMode::Fixed
            } else {
                BinWidthMode::Double
            },
            unit: TimeUnit::ALL[(word >> 40 & 3) as usize],
            enabled: word >> 42 & 1 == 1,
            clear_on_read: word >> 43 & 1 == 1,
            vhca_id: ((word >> 44) as u8).checked_sub(1).map(u16::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Function;

    pub(super) const MS: u64 = 1_000_000;

    /// Bins of milliseconds, 50 for the first and 100 for the second.
    pub(super) fn layout(bins: u8, mode: BinWidthMode) -> HistogramConfig {
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
    fn a_layout_survives_its_word() {
        let base = layout(HistogramConfig::BINS_MAX, BinWidthMode::Double);
        let ids = [None, Some(0), Some(Function::VFS_MAX.into())];
        for (vhca_id, unit) in ids.into_iter().zip(TimeUnit::ALL) {
            for switch in [false, true] {
                let config = HistogramConfig {
                    unit,
                    vhca_id,
                    enabled: switch,
                    clear_on_read: !switch,
                    bin0_width: u16::MAX,
                    ..base
                };
                assert_eq!(HistogramConfig::unpack(config.pack()), config);
                assert_eq!(config.pack() >> counts::EPOCH_SHIFT, 0, "{config:?}");
            }
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = layout(4, BinWidthMode::Fixed);
        let error = HistogramConfig { bins: 65, ..good }.check();
        assert_eq!(
            error.unwrap_err().to_string(),
            "bin_num is 65; allowed: 1 to 64"
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
}

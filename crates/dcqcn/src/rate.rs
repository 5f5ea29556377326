//! Rates, in whole bits per second.

use core::fmt;

use ferroce_base::time::Span;

/// A rate in bit/s, at most [`Rate::MAX`].
///
/// Parameters are given in Mb/s, but a cut of a slow flow must not vanish in rounding, so the state
/// of a flow uses single bits.
///
/// ```
/// use ferroce_dcqcn::Rate;
/// use ferroce_base::time::Span;
/// assert_eq!(Rate::from_mbps(40_000).to_string(), "40 Gb/s");
/// assert_eq!(Rate::from_mbps(40_000).transmission(1_000), Span::from_nanos(200));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// The largest rate, 2^32 - 1 Mb/s: the maximum of a 32-bit field in Mb/s.
    pub const MAX: Self = Self::from_mbps(u32::MAX);

    /// Creates a rate of `mbps` megabits (10^6 bits) per second.
    #[must_use]
    pub const fn from_mbps(mbps: u32) -> Self {
        Self(mbps as u64 * 1_000_000)
    }

    /// Creates a rate of `bps` bits per second, clipped to [`Rate::MAX`].
    #[must_use]
    pub const fn from_bps(bps: u64) -> Self {
        if bps > Self::MAX.0 {
            Self::MAX
        } else {
            Self(bps)
        }
    }

    /// Returns the bits per second.
    #[must_use]
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// Returns how long `bytes` take at this rate, rounded up; [`Span::NEVER`] at rate 0.
    #[must_use]
    pub fn transmission(self, bytes: u32) -> Span {
        const PS_PER_SECOND: u64 = 1_000_000_000_000;
        let (bits, bps) = (u64::from(bytes) * 8, self.0);
        if bps == 0 {
            return Span::NEVER;
        }
        // Of anything that is one packet.
        if let Some(scaled) = bits.checked_mul(PS_PER_SECOND) {
            return Span::from_picos(scaled.div_ceil(bps));
        }
        let ps = (u128::from(bits) * u128::from(PS_PER_SECOND)).div_ceil(u128::from(bps));
        u64::try_from(ps).map_or(Span::NEVER, Span::from_picos)
    }

    /// The middle between this rate and a higher one, rounded up: rounding down would never get
    /// there.
    pub(crate) const fn halfway_to(self, target: Self) -> Self {
        Self((self.0 + target.0).div_ceil(2))
    }

    /// `numerator / 2^shift` of this rate, rounded down. The fraction must not exceed 1.
    pub(crate) fn scaled(self, numerator: u64, shift: u32) -> Self {
        let product = u128::from(self.0) * u128::from(numerator);
        // A fraction of a u64 is a u64.
        #[expect(clippy::cast_possible_truncation)]
        let scaled = (product >> shift) as u64;
        Self(scaled)
    }

    /// `percent` (at most 100) of this rate, rounded down.
    pub(crate) const fn percent(self, percent: u32) -> Self {
        Self(self.0 * percent as u64 / 100)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_bps, digits, unit) = match self.0 {
            1_000_000_000.. => (1_000_000_000, 9, "Gb/s"),
            1_000_000.. => (1_000_000, 6, "Mb/s"),
            1_000.. => (1_000, 3, "kb/s"),
            _ => (1, 0, "bit/s"),
        };
        let (whole, rest) = (self.0 / unit_bps, self.0 % unit_bps);
        if rest == 0 {
            return f.pad(&alloc::format!("{whole} {unit}"));
        }
        let rest = alloc::format!("{rest:0digits$}");
        f.pad(&alloc::format!(
            "{whole}.{} {unit}",
            rest.trim_end_matches('0')
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn prints_exactly_in_the_largest_unit() {
        for (bps, text) in [
            (0, "0 bit/s"),
            (1_000, "1 kb/s"),
            (1_500_000, "1.5 Mb/s"),
            (20_218_000_000, "20.218 Gb/s"),
        ] {
            assert_eq!(Rate::from_bps(bps).to_string(), text);
        }
    }

    #[test]
    fn no_value_overflows() {
        assert_eq!(Rate::from_bps(u64::MAX), Rate::MAX);
        assert_eq!(Rate::MAX.percent(100), Rate::MAX);
        assert_eq!(Rate::MAX.scaled(1 << 27, 27), Rate::MAX);
        assert_eq!(Rate::MAX.halfway_to(Rate::MAX), Rate::MAX);
        assert_eq!(Rate::from_bps(0).transmission(1), Span::NEVER);
        assert_eq!(
            Rate::from_bps(1).transmission(u32::MAX),
            Span::NEVER,
            "longer than the clock runs"
        );
    }
}

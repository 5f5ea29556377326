//! Lengths of time.

use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Rem, Sub};
use core::time::Duration;

use super::{PS_PER_NS, picos};

/// A length of time, in whole picoseconds.
///
/// Arithmetic saturates at [`Span::ZERO`] and [`Span::NEVER`]; it never wraps or panics. The type
/// has its own name because a [`Duration`] counts in nanoseconds, takes 16 bytes and panics.
///
/// It prints exactly, in the largest unit it reaches:
///
/// ```
/// use ferroce_base::time::Span;
/// assert_eq!(Span::from_nanos(268_435_456).to_string(), "268.435456 ms");
/// assert_eq!(Span::from_nanos(4_000).to_string(), "4 us");
/// assert_eq!(Span::from_picos(1_280).to_string(), "1.28 ns");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// The longest span, about 213 days. Stands for a span that does not end.
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates a span of `ps` picoseconds.
    #[must_use]
    pub const fn from_picos(ps: u64) -> Self {
        Self(ps)
    }

    /// Creates a span of `ns` nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(picos(ns, PS_PER_NS))
    }

    /// Creates a span of `us` microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(picos(us, 1_000 * PS_PER_NS))
    }

    /// Creates a span of `ms` milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(picos(ms, 1_000_000 * PS_PER_NS))
    }

    /// Creates a span of `s` seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(picos(s, 1_000_000_000 * PS_PER_NS))
    }

    /// Returns the span in picoseconds.
    #[must_use]
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// Returns the span in whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0 / PS_PER_NS
    }

    /// Returns `n` times this span. For constants; elsewhere use `*`.
    #[must_use]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// Returns this span doubled `n` times.
    #[must_use]
    pub const fn doubled(self, n: u32) -> Self {
        // Those that lose a bit on the way.
        if n > self.0.leading_zeros() && self.0 != 0 {
            return Self::NEVER;
        }
        match self.0.checked_shl(n) {
            Some(ps) => Self(ps),
            None => Self::ZERO,
        }
    }
}

impl Add for Span {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;

    #[inline]
    fn mul(self, n: u64) -> Self {
        self.times(n)
    }
}

impl Mul<Span> for u64 {
    type Output = Span;

    #[inline]
    fn mul(self, span: Span) -> Span {
        span.times(self)
    }
}

/// Rounds down, like any integer.
impl Div<u64> for Span {
    type Output = Self;

    #[inline]
    fn div(self, n: u64) -> Self {
        Self(self.0 / n)
    }
}

/// How many times the other span fits into this one.
impl Div for Span {
    type Output = u64;

    #[inline]
    fn div(self, other: Self) -> u64 {
        self.0 / other.0
    }
}

/// What is left of this span when the other one no longer fits.
impl Rem for Span {
    type Output = Self;

    #[inline]
    fn rem(self, other: Self) -> Self {
        Self(self.0 % other.0)
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Self::add)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        u64::try_from(duration.as_nanos()).map_or(Self::NEVER, Self::from_nanos)
    }
}

/// Picoseconds beyond the last nanosecond are dropped.
impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_agree() {
        assert_eq!(Span::from_secs(1), Span::from_millis(1_000));
        assert_eq!(Span::from_millis(1), Span::from_micros(1_000));
        assert_eq!(Span::from_micros(1), Span::from_nanos(1_000));
        assert_eq!(Span::from_nanos(1), Span::from_picos(1_000));
    }

    #[test]
    fn nanoseconds_saturate_and_never_stays_never() {
        let last = Span::NEVER.as_nanos();
        assert_eq!(Span::from_nanos(last - 1).as_nanos(), last - 1);
        assert_eq!(Span::from_nanos(last), Span::NEVER);
        assert_eq!(Span::from_nanos(u64::MAX), Span::NEVER);
        assert_eq!(
            Span::from_secs(18_446_744),
            Span::from_millis(18_446_744_000)
        );
        assert_eq!(Span::from_secs(18_446_745), Span::NEVER);
    }

    #[test]
    fn durations_saturate_and_round_down() {
        assert_eq!(Span::from(Duration::MAX), Span::NEVER);
        assert_eq!(Span::from(Duration::from_millis(3)), Span::from_millis(3));
        assert_eq!(
            Duration::from(Span::from_picos(1_999)),
            Duration::from_nanos(1)
        );
    }

    #[test]
    fn the_longest_ack_timeout_and_its_retries_are_exact() {
        let timeout = Span::from_nanos(4_096).doubled(31);
        assert_eq!(timeout.as_nanos(), 4_096 << 31);
        assert!(
            timeout * 8 * 4 < Span::NEVER,
            "every total of plain InfiniBand"
        );
    }

    proptest! {
        /// All arithmetic is that of u128, clipped.
        #[test]
        fn nothing_wraps(a: u64, b: u64, n in 0_u32..200) {
            let clipped = |wide: u128| Span(u64::try_from(wide).unwrap_or(u64::MAX));
            let (wide_a, wide_b) = (u128::from(a), u128::from(b));
            prop_assert_eq!(Span(a) + Span(b), clipped(wide_a + wide_b));
            prop_assert_eq!(Span(a) - Span(b), clipped(wide_a.saturating_sub(wide_b)));
            prop_assert_eq!(Span(a) * b, clipped(wide_a * wide_b));
            let doubled = (0..n).fold(Span(a), |span, _| span + span);
            prop_assert_eq!(Span(a).doubled(n), doubled);
        }
    }
}

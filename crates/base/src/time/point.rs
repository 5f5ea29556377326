//! Points in time.

use core::fmt;

use super::{PS_PER_NS, Span, picos};

/// A point in time: whole picoseconds since the host's epoch.
///
/// The host chooses the epoch (program start, simulation start); the layers below only compare and
/// add times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The host's epoch.
    pub const ZERO: Self = Self(0);

    /// The end of time, about 213 days after the epoch. A deadline here is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the point `ps` picoseconds after the epoch.
    #[must_use]
    pub const fn from_picos(ps: u64) -> Self {
        Self(ps)
    }

    /// Returns the point `ns` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(picos(ns, PS_PER_NS))
    }

    /// Returns the picoseconds since the epoch.
    #[must_use]
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// Returns the whole nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0 / PS_PER_NS
    }

    /// Returns the point `span` later.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.as_picos()))
    }

    /// Returns the point `span` earlier, but not before the epoch.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.as_picos()))
    }

    /// Returns the time from `earlier` to this point, or [`Span::ZERO`] if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_picos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            return f.write_str("never");
        }
        let (ns, ps) = (self.0 / PS_PER_NS, self.0 % PS_PER_NS);
        write!(f, "{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)?;
        if ps > 0 {
            write!(f, "{ps:03}")?;
        }
        f.write_str("s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_at_both_ends() {
        let second = Span::from_secs(1);
        assert_eq!(Time::ZERO.before(second), Time::ZERO);
        assert_eq!(Time::NEVER.after(second), Time::NEVER);
        assert_eq!(Time::from_nanos(u64::MAX), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::NEVER), Span::ZERO);
        assert_eq!(Time::from_nanos(Time::NEVER.as_nanos()), Time::NEVER);
    }

    #[test]
    fn a_point_is_written_in_seconds() {
        for (time, text) in [
            (Time::ZERO, "0.000000000s"),
            (Time::from_nanos(1_500_000_001), "1.500000001s"),
            (Time::from_picos(1_280), "0.000000001280s"),
            (Time::NEVER, "never"),
        ] {
            assert_eq!(format!("{time:?}"), text);
        }
    }
}

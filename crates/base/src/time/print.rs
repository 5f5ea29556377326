//! Human-readable spans.

use core::fmt::{self, Write as _};

use super::Span;

/// Unit, its picoseconds, and how many digits come behind its point.
const UNITS: [(&str, u64, usize); 5] = [
    ("s", 1_000_000_000_000, 12),
    ("ms", 1_000_000_000, 9),
    ("us", 1_000_000, 6),
    ("ns", 1_000, 3),
    ("ps", 1, 0),
];

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => return f.pad("never"),
            Self::ZERO => return f.pad("0 ns"),
            _ => {}
        }
        let ps = self.as_picos();
        let [.., smallest] = UNITS;
        let (unit, size, digits) = UNITS
            .into_iter()
            .find(|(_, size, _)| ps >= *size)
            .unwrap_or(smallest);
        let (whole, mut rest, mut digits) = (ps / size, ps % size, digits);
        while rest > 0 && rest % 10 == 0 {
            (rest, digits) = (rest / 10, digits - 1);
        }
        let mut text = Text::default();
        match rest {
            0 => write!(text, "{whole} {unit}")?,
            _ => write!(text, "{whole}.{rest:0digits$} {unit}")?,
        }
        f.pad(text.as_str())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Unit, its picoseconds, and from how many tenths of it on it is used.
const COARSE_UNITS: [(&str, u64, u64); 7] = [
    ("d", 86_400_000_000_000_000, 20),
    ("h", 3_600_000_000_000_000, 20),
    ("min", 60_000_000_000_000, 100),
    ("s", 1_000_000_000_000, 10),
    ("ms", 1_000_000_000, 10),
    ("us", 1_000_000, 10),
    ("ns", 1_000, 0),
];

/// A span rounded for people: `60.1 s`, `268 ms`. Returned by [`Span::about`], [`Span::at_least`]
/// and [`Span::at_most`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounded {
    span: Span,
    to: To,
}

/// Where to round to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Down,
    Nearest,
    Up,
}

impl Span {
    /// Rounds the span for people: one decimal below 100 of its unit, otherwise none.
    ///
    /// ```
    /// use ferroce_base::time::Span;
    /// let total = Span::from_nanos(60_129_542_144);
    /// assert_eq!(total.about().to_string(), "60.1 s");
    /// assert_eq!(total.at_least().to_string(), "60.1 s");
    /// assert_eq!(total.at_most().to_string(), "60.2 s");
    /// ```
    #[must_use]
    pub const fn about(self) -> Rounded {
        self.rounded(To::Nearest)
    }

    /// Like [`about`](Self::about), but rounded down, for a lower bound.
    #[must_use]
    pub const fn at_least(self) -> Rounded {
        self.rounded(To::Down)
    }

    /// Like [`about`](Self::about), but rounded up, for an upper bound.
    #[must_use]
    pub const fn at_most(self) -> Rounded {
        self.rounded(To::Up)
    }

    const fn rounded(self, to: To) -> Rounded {
        Rounded { span: self, to }
    }
}

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.span, Span::NEVER | Span::ZERO) {
            return self.span.fmt(f);
        }
        let (tenths, unit) = self.tenths(self.span.as_picos());
        let mut text = Text::default();
        match tenths % 10 {
            0 => write!(text, "{} {unit}", tenths / 10)?,
            digit => write!(text, "{}.{digit} {unit}", tenths / 10)?,
        }
        f.pad(text.as_str())
    }
}

impl Rounded {
    /// Tenths of a unit. Rounding may lead into the next larger one.
    fn tenths(&self, ps: u64) -> (u64, &'static str) {
        let [.., smallest] = COARSE_UNITS;
        let (unit, size, _) = COARSE_UNITS
            .into_iter()
            .find(|(_, size, from)| ps >= size / 10 * from)
            .unwrap_or(smallest);
        let step = if ps >= 100 * size { size } else { size / 10 };
        let steps = match self.to {
            To::Down => ps / step,
            To::Nearest => ps / step + u64::from(ps % step >= step.div_ceil(2)),
            To::Up => ps.div_ceil(step),
        };
        match steps.saturating_mul(step) {
            rounded if rounded == ps || unit == smallest.0 => (steps * step / (size / 10), unit),
            rounded => self.tenths(rounded),
        }
    }
}

/// A short text on the stack; the longest span has 8 + 1 + 12 digits and a unit.
#[derive(Default)]
struct Text {
    bytes: [u8; 32],
    length: usize,
}

impl Text {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_exactly_in_the_largest_unit() {
        for (span, text) in [
            (Span::ZERO, "0 ns"),
            (Span::from_picos(7), "7 ps"),
            (Span::from_picos(1_280), "1.28 ns"),
            (Span::from_nanos(999), "999 ns"),
            (Span::from_nanos(1_000), "1 us"),
            (Span::from_nanos(1_050), "1.05 us"),
            (Span::from_nanos(4_294_967_296), "4.294967296 s"),
            (Span::from_secs(60), "60 s"),
            (Span::from_picos(u64::MAX - 1), "18446744.073709551614 s"),
            (Span::NEVER, "never"),
        ] {
            assert_eq!(span.to_string(), text);
            assert_eq!(format!("{span:?}"), text);
        }
    }

    #[test]
    fn a_span_is_rounded_for_people() {
        for (ns, down, up) in [
            (999, "999 ns", "999 ns"),
            (4_000, "4 us", "4 us"),
            (16_384_000, "16.3 ms", "16.4 ms"),
            (268_435_456, "268 ms", "269 ms"),
            (999_999_999, "999 ms", "1 s"),
            (99_990_000, "99.9 ms", "100 ms"),
            (8_589_934_592, "8.5 s", "8.6 s"),
            (599_000_000_000, "599 s", "599 s"),
            (600_000_000_000, "10 min", "10 min"),
            (61_572_000_000_000, "17.1 h", "17.2 h"),
            (180_000_000_000_000, "2 d", "2.1 d"),
        ] {
            let span = Span::from_nanos(ns);
            assert_eq!(span.at_least().to_string(), down);
            assert_eq!(span.at_most().to_string(), up);
        }
        assert_eq!(Span::from_nanos(4_294_967_296).about().to_string(), "4.3 s");
        assert_eq!(Span::from_nanos(4_194_304).about().to_string(), "4.2 ms");
        assert_eq!(Span::from_nanos(268_435_456).about().to_string(), "268 ms");
        assert_eq!(Span::NEVER.at_most().to_string(), "never");
        assert_eq!(Span::ZERO.at_least().to_string(), "0 ns");
        assert_eq!(Span::from_picos(1).at_most().to_string(), "0.1 ns");
        assert_eq!(
            format!("{:>8}|", Span::from_millis(5).at_most()),
            "    5 ms|"
        );
    }

    #[test]
    fn a_span_fills_the_width_of_a_column() {
        assert_eq!(format!("{:>8}|", Span::from_millis(5)), "    5 ms|");
    }
}

//! Spans for people.

use core::fmt::{self, Write as _};

use crate::Span;

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
    use std::format;
    use std::string::ToString;

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
    fn a_span_fills_the_width_of_a_column() {
        assert_eq!(format!("{:>8}|", Span::from_millis(5)), "    5 ms|");
    }
}

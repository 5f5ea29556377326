//! Times, sizes and rates: numbers with a unit.

use std::ops::RangeInclusive;

use super::{Decimal, Invalid};

/// A unit's name and how many of the smallest it is.
type Unit = (&'static str, u64);

/// A kind of quantity and its units.
#[derive(Debug)]
pub struct Quantity {
    /// The accepted forms in words: `a time in ns, us, ms, s or min`.
    forms: &'static str,
    example: &'static str,
    /// All units that can be read.
    units: &'static [Unit],
    /// The units for writing, in descending order; the last one is the smallest unit.
    written: &'static [Unit],
}

/// Times, in nanoseconds.
pub const TIME: Quantity = Quantity {
    forms: "a time in ns, us, ms, s or min",
    example: "50us",
    units: &[
        ("ns", 1),
        ("us", US),
        ("µs", US),
        ("ms", MS),
        ("s", S),
        ("min", 60 * S),
    ],
    written: &[("s", S), ("ms", MS), ("us", US), ("ns", 1)],
};

/// Sizes, in bytes.
pub const SIZE: Quantity = Quantity {
    forms: "a size in bytes, KiB, MiB or GiB (1024) or KB, MB or GB (1000)",
    example: "256KiB",
    units: SIZES,
    written: &[
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("", 1),
    ],
};

/// [`SIZE`], written in powers of 1000, as for the lengths of a switch's queues.
pub const DECIMAL_SIZE: Quantity = Quantity {
    example: "200KB",
    written: &[("MB", 1_000_000), ("KB", 1_000), ("B", 1)],
    ..SIZE
};

/// Rates, in bits per second, with tc(8)'s unit names.
pub const RATE: Quantity = Quantity {
    forms: "a rate in bit, kbit, Mbit or Gbit a second",
    example: "2.5Gbit",
    units: RATES,
    written: RATES,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

const SIZES: &[Unit] = &[
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
];

const RATES: &[Unit] = &[
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

impl Quantity {
    /// Reads the value of a text, in the smallest unit. 0 needs no unit.
    ///
    /// # Errors
    /// Returns [`Invalid`] if the text is not such a quantity.
    pub fn read(&self, text: &str) -> Result<u64, Invalid> {
        self.parse(text).ok_or_else(|| {
            Invalid::must_be(format!("{}, for example {}", self.forms, self.example))
        })
    }

    /// Reads a value that must be within a range.
    ///
    /// # Errors
    /// Returns [`Invalid`], with the range, if the text is not such a quantity or is outside the
    /// range.
    pub fn read_in(&self, text: &str, range: RangeInclusive<u64>) -> Result<u64, Invalid> {
        let value = self.parse(text).filter(|value| range.contains(value));
        value.ok_or_else(|| {
            let [from, to] = [range.start(), range.end()].map(|end| self.write(*end));
            Invalid::must_be(format!(
                "{}, from {from} to {to}, for example {}",
                self.forms, self.example
            ))
        })
    }

    /// Writes a value in the largest unit that needs no fraction. Reading the text gives the same
    /// value.
    #[must_use]
    pub fn write(&self, value: u64) -> String {
        let fits = |(_, unit): &&Unit| value > 0 && value.is_multiple_of(*unit);
        match self.written.iter().find(fits) {
            Some((name, unit)) => format!("{}{name}", value / unit),
            None => value.to_string(),
        }
    }

    fn parse(&self, text: &str) -> Option<u64> {
        let (number, unit) = split(text.trim());
        let number: Decimal = number.parse().ok()?;
        if number == Decimal::ZERO && unit.is_empty() {
            return Some(0);
        }
        let is_it = |(name, _): &&Unit| name.eq_ignore_ascii_case(unit);
        let (_, factor) = self.units.iter().find(is_it)?;
        number.times(*factor)
    }
}

/// A number, and the unit behind it.
fn split(text: &str) -> (&str, &str) {
    let is_exponent = |at: usize| {
        let behind = text[at + 1..].trim_start_matches(['+', '-']);
        behind.starts_with(|c: char| c.is_ascii_digit())
    };
    let is_part = |(at, c): (usize, char)| match c {
        'e' | 'E' => is_exponent(at),
        '+' | '-' => at > 0 && text[..at].ends_with(['e', 'E']),
        _ => c.is_ascii_digit() || c == '.',
    };
    let end = text.char_indices().find(|it| !is_part(*it));
    let (number, unit) = text.split_at(end.map_or(text.len(), |(at, _)| at));
    (number, unit.trim_start())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_may_be_written_as_one_likes() {
        for (text, ns) in [
            ("1500000ns", 1_500_000),
            ("1500us", 1_500_000),
            ("1.5 ms", 1_500_000),
            ("0.00150S", 1_500_000),
            ("15e2µs", 1_500_000),
            ("1min", 60_000_000_000),
            ("0", 0),
            (" 0.0 ", 0),
        ] {
            assert_eq!(TIME.read(text), Ok(ns), "{text}");
        }
        for (text, bytes) in [
            ("7", 7),
            ("64M", 64 << 20),
            ("1GiB", 1 << 30),
            ("1 gb", 1_000_000_000),
            ("0.5k", 512),
            ("5KB", 5_000),
        ] {
            assert_eq!(SIZE.read(text), Ok(bytes), "{text}");
            assert_eq!(DECIMAL_SIZE.read(text), Ok(bytes), "{text}");
        }
        assert_eq!(RATE.read("2.5Gbit"), Ok(2_500_000_000));
    }

    #[test]
    fn nonsense_is_refused_with_what_is_allowed() {
        for text in [
            "",
            "us",
            "50",
            "-1us",
            "1.us.",
            "0.5ns",
            "1h",
            "1us 2us",
            "ü",
            "18446744074s",
            "99999999999999999999ns",
            "1eus",
            "1e999s",
        ] {
            assert_eq!(
                TIME.read(text).unwrap_err().to_string(),
                "must be a time in ns, us, ms, s or min, for example 50us",
                "{text}"
            );
        }
        for text in ["0.3K", "1Q", "K", "-5"] {
            assert!(SIZE.read(text).is_err(), "{text}");
        }
        for text in ["1", "1Gb", "0.5bit"] {
            assert!(RATE.read(text).is_err(), "{text}");
        }
        let error = RATE.read_in("999bit", 1_000..=1_000_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "must be a rate in bit, kbit, Mbit or Gbit a second, from 1kbit to 1Mbit, for example \
             2.5Gbit"
        );
    }

    proptest! {
        #[test]
        fn a_write_is_read_back(value in prop_oneof![
            any::<u64>(),
            (0..10_000_u64).prop_map(|n| n * 1_000_000),
            (0..10_000_u64).prop_map(|n| n << 20),
        ]) {
            for quantity in [&TIME, &SIZE, &DECIMAL_SIZE, &RATE] {
                let text = quantity.write(value);
                prop_assert_eq!(quantity.read(&text), Ok(value), "{}", text);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-zA-Zµ.e+% -]{0,30}|\\PC{0,30}") {
            for quantity in [&TIME, &SIZE, &DECIMAL_SIZE, &RATE] {
                if let Ok(value) = quantity.read(&text) {
                    prop_assert_eq!(quantity.read(&quantity.write(value)), Ok(value));
                }
            }
        }
    }
}

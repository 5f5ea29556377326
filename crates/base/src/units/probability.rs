//! Probabilities.

use std::fmt;
use std::str::FromStr;

use super::{Decimal, Invalid};

/// A probability from 0 to 1, as it was written: `0.01` or `1%`. It prints as a percentage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Probability(Decimal);

impl Probability {
    /// Probability 0.
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// The forms that [`FromStr`] accepts.
    pub const FORMS: &str = "a probability between 0 and 1 (or 0% to 100%)";

    /// Returns the probability for a device's value, or `None` if it is not a probability.
    #[must_use]
    pub fn from_f64(probability: f64) -> Option<Self> {
        Decimal::from_f64(probability).and_then(Self::new)
    }

    /// Returns the nearest float, to be compared with random draws.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.0.as_f64()
    }

    /// Returns the probability in units of one `of`-th, if that is a whole number.
    #[must_use]
    pub fn parts(self, of: u32) -> Option<u32> {
        self.0
            .times(of.into())
            .and_then(|parts| parts.try_into().ok())
    }

    fn new(number: Decimal) -> Option<Self> {
        (number <= Decimal::ONE).then_some(Self(number))
    }
}

impl FromStr for Probability {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let text = text.trim();
        let number = match text.strip_suffix('%') {
            Some(percent) => percent
                .trim_end()
                .parse::<Decimal>()
                .map(|it| it.shifted(-2)),
            None => text.parse(),
        };
        let probability = number.ok().and_then(Self::new);
        probability.ok_or_else(|| Invalid::must_be(Self::FORMS))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0.shifted(2))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fractions_and_percentages_are_the_same() {
        for (text, printed) in [
            ("0.01", "1%"),
            (" 1 % ", "1%"),
            ("1", "100%"),
            ("0", "0%"),
            ("1.5e-2", "1.5%"),
            ("0.0001%", "0.0001%"),
        ] {
            assert_eq!(text.parse::<Probability>().unwrap().to_string(), printed);
        }
        for bad in [
            "",
            "%",
            "1.1",
            "101%",
            "100.0000000001%",
            "-1%",
            "1%%",
            "nan",
            "1e-2x",
        ] {
            let error = bad.parse::<Probability>().unwrap_err().to_string();
            assert_eq!(
                error,
                "must be a probability between 0 and 1 (or 0% to 100%)"
            );
        }
    }

    proptest! {
        #[test]
        fn a_write_is_read_back(number in 0.0..=1.0) {
            let probability = Probability::from_f64(number).unwrap();
            prop_assert_eq!(probability.to_string().parse(), Ok(probability));
            prop_assert_eq!(probability.as_f64(), number);
        }

        #[test]
        fn parts_are_exact(ppm in 0..=1_000_000_u32) {
            let text = Decimal::from_f64(f64::from(ppm)).unwrap().shifted(-6).to_string();
            prop_assert_eq!(text.parse::<Probability>().unwrap().parts(1_000_000), Some(ppm));
        }
    }
}

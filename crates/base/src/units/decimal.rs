//! Exact decimal numbers.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::Invalid;

/// A non-negative decimal number: up to 38 digits and the position of its point.
///
/// ```
/// use ferroce_base::units::Decimal;
///
/// let number: Decimal = "0.125".parse().unwrap();
/// assert_eq!((number.times(1000), number.times(10)), (Some(125), None));
/// assert!(number < "0.2".parse().unwrap());
/// assert_eq!("1.5e-3".parse::<Decimal>().unwrap().to_string(), "0.0015");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Decimal {
    /// Not divisible by ten.
    digits: u128,
    exponent: i32,
}

/// Digits that always fit.
const DIGITS_MAX: u32 = 38;
/// An exponent beyond this is of no use, and below it all sums fit.
const EXPONENT_MAX: i32 = 1000;

impl Decimal {
    /// Nothing.
    pub const ZERO: Self = Self {
        digits: 0,
        exponent: 0,
    };

    /// One.
    pub const ONE: Self = Self {
        digits: 1,
        exponent: 0,
    };

    /// Returns the number that represents this one in the fewest digits, or `None` if it is
    /// negative or not finite.
    #[must_use]
    pub fn from_f64(number: f64) -> Option<Self> {
        // Display of a float is exact in that it is read as the same.
        (number >= 0.0 && number.is_finite()).then(|| number.to_string().parse().ok())?
    }

    /// The nearest float.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        // The standard library rounds correctly.
        format!("{}e{}", self.digits, self.exponent)
            .parse()
            .unwrap_or(f64::INFINITY)
    }

    /// Returns the number multiplied by `factor`, if the result is whole and fits.
    #[must_use]
    pub fn times(self, factor: u64) -> Option<u64> {
        let product = self.digits.checked_mul(factor.into())?;
        let scale = 10_u128.checked_pow(self.exponent.unsigned_abs());
        let whole = match (scale, self.exponent >= 0) {
            _ if product == 0 => 0,
            (Some(scale), true) => product.checked_mul(scale)?,
            (Some(scale), false) if product.is_multiple_of(scale) => product / scale,
            _ => return None,
        };
        u64::try_from(whole).ok()
    }

    /// The number with its point moved `places` to the right.
    #[must_use]
    pub(crate) fn shifted(self, places: i32) -> Self {
        Self::new(self.digits, self.exponent.saturating_add(places))
    }

    fn new(mut digits: u128, mut exponent: i32) -> Self {
        if digits == 0 {
            return Self::ZERO;
        }
        while digits.is_multiple_of(10) {
            (digits, exponent) = (digits / 10, exponent + 1);
        }
        Self { digits, exponent }
    }

    /// How many digits it has.
    fn count(self) -> u32 {
        self.digits.checked_ilog10().map_or(0, |log| log + 1)
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.digits == 0 || other.digits == 0 {
            return self.digits.cmp(&other.digits);
        }
        let magnitude = |it: &Self| i64::from(it.exponent) + i64::from(it.count());
        let full = |it: &Self| it.digits * 10_u128.pow(DIGITS_MAX - it.count());
        let by_magnitude = magnitude(self).cmp(&magnitude(other));
        by_magnitude.then_with(|| full(self).cmp(&full(other)))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Decimal {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse(text).ok_or_else(|| Invalid::must_be("a number, for example 20 or 1.5"))
    }
}

fn parse(text: &str) -> Option<Decimal> {
    let (mantissa, power) = match text.split_once(['e', 'E']) {
        Some((mantissa, power)) => (mantissa, power.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = || whole.bytes().chain(fraction.bytes());
    if all().next().is_none() || !all().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Zeros at both ends cost no digits.
    let last = all().zip(1..).filter(|(byte, _)| *byte != b'0').last();
    let last = last.map_or(0, |(_, end)| end);
    let significant = all().take(last).skip_while(|byte| *byte == b'0');
    let mut digits = 0_u128;
    for (place, byte) in significant.enumerate() {
        if place >= DIGITS_MAX as usize {
            return None;
        }
        digits = digits * 10 + u128::from(byte - b'0');
    }
    let behind_last = i32::try_from(whole.len()).ok()? - i32::try_from(last).ok()?;
    let exponent = power.checked_add(behind_last)?;
    let number = Decimal::new(digits, exponent);
    (-EXPONENT_MAX..=EXPONENT_MAX)
        .contains(&number.exponent)
        .then_some(number)
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits.to_string();
        let behind = self.exponent.unsigned_abs() as usize;
        if self.exponent >= 0 {
            return write!(f, "{digits}{}", "0".repeat(behind));
        }
        // One digit before the point at least.
        let digits = format!("{digits:0>width$}", width = behind + 1);
        let (whole, fraction) = digits.split_at(digits.len() - behind);
        write!(f, "{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_come_in_several_forms() {
        for (text, printed) in [
            ("0", "0"),
            ("0.000", "0"),
            ("007", "7"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1200", "1200"),
            ("0.0120", "0.012"),
            ("1.5e-2", "0.015"),
            ("15E2", "1500"),
            ("1e+3", "1000"),
        ] {
            let number: Decimal = text.parse().unwrap();
            assert_eq!(number.to_string(), printed, "{text}");
        }
        for bad in [
            "", ".", "-1", "+1", "1,5", "1.2.3", "1e", "e1", "1e1.5", "nan", "inf", "0x1",
        ] {
            assert!(bad.parse::<Decimal>().is_err(), "{bad}");
        }
        assert!("1".repeat(39).parse::<Decimal>().is_err());
        assert!("1e2000000000000".parse::<Decimal>().is_err());
    }

    proptest! {
        #[test]
        fn a_write_is_read_back(digits: u64, exponent in -60..60) {
            let number = Decimal::new(digits.into(), exponent);
            prop_assert_eq!(number.to_string().parse(), Ok(number));
        }

        #[test]
        fn floats_come_back(number in prop_oneof![0.0..1.0, 0.0..1e300]) {
            prop_assert_eq!(Decimal::from_f64(number).unwrap().as_f64(), number);
        }

        #[test]
        fn the_order_is_that_of_the_numbers(a in 0..10_000_u64, b in 0..10_000_u64, places in -8..8) {
            let of = |n: u64| Decimal::new(n.into(), places);
            prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.eE+-]{0,60}|\\PC{0,20}") {
            if let Ok(number) = text.parse::<Decimal>() {
                let _ = (number.times(u64::MAX), number.as_f64(), number.cmp(&Decimal::ZERO));
                prop_assert_eq!(number.to_string().parse(), Ok(number));
            }
        }
    }
}

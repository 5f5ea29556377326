//! Quantities as people write them: on command lines, in files and in environment variables.
//!
//! There is one grammar: a decimal number, an optional space, and a unit in upper or lower case.
//! Reading is exact: a value that is not a whole number of the smallest unit is refused, not
//! rounded. Writing uses the largest unit that needs no fraction, and reading the result gives the
//! same value.
//!
//! | | units | example |
//! |---|---|---|
//! | [`TIME`] | ns, us (or µs), ms, s, min | `1.5ms` |
//! | [`SIZE`] | B or none; KiB or K, MiB or M, GiB, TiB (1024); KB, MB, GB, TB (1000) | `64KiB` |
//! | [`RATE`] | bit, kbit, Mbit, Gbit per second, as in tc(8) | `2.5Gbit` |
//! | [`Probability`] | none, or % | `0.1%` |
//!
//! ```
//! use ferroce_base::units::{Probability, SIZE, TIME};
//!
//! assert_eq!(TIME.read("1.5ms"), Ok(1_500_000));
//! assert_eq!(SIZE.write(SIZE.read("1.5K").unwrap()), "1536");
//! assert_eq!("2%".parse::<Probability>().unwrap().parts(1_000_000), Some(20_000));
//! let error = TIME.read_in("2min", 0..=1_000_000_000).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "must be a time in ns, us, ms, s or min, from 0 to 1s, for example 50us"
//! );
//! ```
//!
//! Values are plain integers in the smallest unit: nanoseconds, bytes, bits per second. They are
//! converted to a device's own units where they are passed to it.

mod decimal;
mod probability;
mod quantity;

pub use decimal::Decimal;
pub use probability::Probability;
pub use quantity::{DECIMAL_SIZE, Quantity, RATE, SIZE, TIME};

/// The error for a text that is not a valid quantity. It states what the text must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    must: String,
}

impl Invalid {
    /// Creates the error for a text that must be `what`, such as `a time in ns`.
    pub fn must_be(what: impl Into<String>) -> Self {
        Self { must: what.into() }
    }

    /// Returns what the text must be, without "must be".
    #[must_use]
    pub fn must(&self) -> &str {
        &self.must
    }
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "must be {}", self.must)
    }
}

impl std::error::Error for Invalid {}

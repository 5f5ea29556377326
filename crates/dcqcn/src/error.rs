//! Values out of range.

use thiserror::Error;

/// The error for a field with an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invalid {field} {value}: must be {min} to {max}")]
pub struct RangeError {
    /// The field's name.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The smallest valid value.
    pub min: u64,
    /// The largest valid value.
    pub max: u64,
}

impl RangeError {
    /// Checks whether a field's value is in its range.
    ///
    /// # Errors
    /// Returns [`RangeError`] if it is not.
    pub const fn check(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), Self> {
        if value < min || value > max {
            return Err(Self {
                field,
                value,
                min,
                max,
            });
        }
        Ok(())
    }
}

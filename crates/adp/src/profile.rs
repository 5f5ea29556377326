//! A profile whose values have been checked.

use core::fmt;

use ferroce_base::time::Span;

use crate::raw::{PROFILE_SIZE, RANGE_NUM_MAX, RawProfile, RawRange};
use crate::violation::{InvalidProfile, Violation, violations};

/// A valid profile, created with [`TryFrom<RawProfile>`].
///
/// All 0x30 bytes of register fields are kept, including the entries beyond `range_num`, so that a
/// query returns exactly what was set.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Profile {
    raw: RawProfile,
    /// log2 of `time_base`.
    base_log2: u8,
}

impl Profile {
    /// Reads the profile from the profile part of a `ROCE_ACCL` register.
    pub fn from_register(bytes: &[u8; PROFILE_SIZE]) -> Result<Self, InvalidProfile> {
        Self::try_from(RawProfile::from_register(bytes))
    }

    /// Returns the profile part of a `ROCE_ACCL` register.
    #[must_use]
    pub fn to_register(&self) -> [u8; PROFILE_SIZE] {
        match self.raw.to_register() {
            Ok(bytes) => bytes,
            Err(_) => unreachable!("the values of a valid profile fit their fields"),
        }
    }

    /// Returns the field values.
    #[must_use]
    pub const fn raw(&self) -> &RawProfile {
        &self.raw
    }

    /// Returns the ranges in use, at least one, ordered by low bound.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range> + DoubleEndedIterator + '_ {
        let used = &self.raw.timeout_range[..usize::from(self.raw.range_num)];
        used.iter().map(|raw| Range { raw: *raw })
    }

    /// Returns how many exponents the initial timeout is drawn from.
    //= D1: the bound `low + size - 1` is the last one drawn; a size of 0 or 1 leaves only `low`.
    #[must_use]
    pub const fn draws(&self) -> u8 {
        match self.raw.timeout_init_range_size {
            0 => 1,
            size => size,
        }
    }

    /// Returns the duration `time_base << exponent`, or [`Span::NEVER`] if it exceeds the clock's
    /// range.
    //= D14: saturates.
    #[must_use]
    pub const fn duration(&self, exponent: u16) -> Span {
        Span::from_micros(1).doubled(self.base_log2 as u32 + exponent as u32)
    }

    /// The profile, if nothing is wrong with it.
    pub(crate) fn checked(raw: &RawProfile, violations: &[Violation]) -> Option<Self> {
        // A u16 has at most 16 trailing zeros.
        #[expect(clippy::cast_possible_truncation)]
        let base_log2 = raw.time_base.trailing_zeros() as u8;
        violations.is_empty().then_some(Self {
            raw: *raw,
            base_log2,
        })
    }

    /// Range `index`; indices beyond the table fold back into it, so that this never panics.
    pub(crate) fn range(&self, index: u8) -> Range {
        Range {
            raw: self.raw.timeout_range[usize::from(index) % RANGE_NUM_MAX],
        }
    }
}

impl TryFrom<RawProfile> for Profile {
    type Error = InvalidProfile;

    fn try_from(raw: RawProfile) -> Result<Self, InvalidProfile> {
        let violations = violations(&raw);
        Self::checked(&raw, &violations).ok_or(InvalidProfile { violations })
    }
}

impl From<Profile> for RawProfile {
    fn from(profile: Profile) -> Self {
        profile.raw
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Profile").field(&self.raw).finish()
    }
}

/// A range of a valid [`Profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    raw: RawRange,
}

impl Range {
    /// Returns the smallest exponent.
    #[must_use]
    pub const fn low(&self) -> u16 {
        self.raw.range_low_bound as u16
    }

    /// Returns the largest exponent.
    //= D2: the range is closed, `low + size` belongs to it; `exclusive` drops it for calibration,
    //= and a range keeps at least its low bound.
    #[must_use]
    pub const fn high(&self, exclusive: bool) -> u16 {
        let size = self.raw.range_size as u16;
        self.low()
            + if exclusive {
                size.saturating_sub(1)
            } else {
                size
            }
    }

    /// Returns how often each timeout is used.
    //= D13: each timeout is used at least once.
    #[must_use]
    pub const fn uses(&self) -> u16 {
        match self.raw.timeout_retry_num {
            0 => 1,
            num => num,
        }
    }

    /// Returns how the timeout shrinks.
    #[must_use]
    pub const fn dec_mode(&self) -> DecMode {
        match self.raw.dec_mode {
            0 => DecMode::Div4,
            1 => DecMode::Div2,
            _ => DecMode::LowBound,
        }
    }

    /// Returns the next range on the way down.
    #[must_use]
    pub const fn prev(&self) -> u8 {
        self.raw.prev_range_index
    }
}

/// How the timeout shrinks inside a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecMode {
    /// To a quarter, not below the low bound.
    Div4,
    /// To a half, not below the low bound.
    Div2,
    /// Directly to the low bound.
    LowBound,
}

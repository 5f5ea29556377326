//! A profile's plain values, as a register or a file holds them.

use ferroce_prm::{Image, SetError, roce_accl as reg};

/// The maximum number of timeout ranges in a profile.
pub const RANGE_NUM_MAX: usize = reg::RANGE_NUM_MAX;

/// Size of a profile in its register, in bytes.
pub const PROFILE_SIZE: usize = reg::PROFILE_SIZE;

/// A profile's field values exactly as a register or a file holds them, valid or not.
///
/// Exponents count doublings of `time_base`: a value `n` means `time_base << n`. Fields are as wide
/// as the next Rust integer, so a value may be too large for its register field;
/// [`check`](Self::check) reports this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawProfile {
    /// Base of all durations, in [`time_unit`](Self::time_unit): a power of two from 4 up.
    pub time_base: u16,
    /// Unit of the base: 1 = microsecond, everything else is reserved.
    pub time_unit: u8,
    /// The range that follows an initial timeout outside every range.
    pub start_range_index: u8,
    /// How many entries of [`timeout_range`](Self::timeout_range) are in use, 1 to 4.
    pub range_num: u8,
    /// Whether the QP's own `timeout * retry_cnt` limits an outage, instead of
    /// [`retx_total_timeout`](Self::retx_total_timeout).
    pub qp_total_timeout: bool,
    /// Exponent of the longest outage, when [`qp_total_timeout`](Self::qp_total_timeout) is not set.
    pub retx_total_timeout: u8,
    /// The smallest exponent of the initial timeout.
    pub timeout_init_low_bound: u8,
    /// How many exponents the initial timeout is drawn from; 0 means 1 (D1).
    pub timeout_init_range_size: u8,
    /// The ranges; entries from `range_num` on have no effect, but are kept.
    pub timeout_range: [RawRange; RANGE_NUM_MAX],
}

impl RawProfile {
    /// An empty profile in microseconds; not valid by itself.
    pub const EMPTY: Self = Self {
        time_base: 0,
        time_unit: 1,
        start_range_index: 0,
        range_num: 0,
        qp_total_timeout: false,
        retx_total_timeout: 0,
        timeout_init_low_bound: 0,
        timeout_init_range_size: 0,
        timeout_range: [RawRange::EMPTY; RANGE_NUM_MAX],
    };

    /// Reads the values from the profile part of a `ROCE_ACCL` register. Reserved bits are ignored.
    #[must_use]
    pub fn from_register(bytes: &[u8; PROFILE_SIZE]) -> Self {
        let mut register = [0; reg::PROFILE_OFFSET + PROFILE_SIZE];
        register[reg::PROFILE_OFFSET..].copy_from_slice(bytes);
        let Ok(image) = Image::new(&reg::ROCE_ACCL, &register[..]) else {
            unreachable!("0x40 bytes are a legal length");
        };
        // No field of a profile is wider than the type it goes to.
        #[expect(clippy::cast_possible_truncation)]
        let byte = |field| image.get(field) as u8;
        #[expect(clippy::cast_possible_truncation)]
        let half = |field| image.get(field) as u16;
        Self {
            time_base: half(&reg::TIME_BASE),
            time_unit: byte(&reg::TIME_UNIT),
            start_range_index: byte(&reg::START_RANGE_INDEX),
            range_num: byte(&reg::RANGE_NUM),
            qp_total_timeout: image.is_set(&reg::QP_TOTAL_TIMEOUT),
            retx_total_timeout: byte(&reg::RETX_TOTAL_TIMEOUT),
            timeout_init_low_bound: byte(&reg::TIMEOUT_INIT_LOW_BOUND),
            timeout_init_range_size: byte(&reg::TIMEOUT_INIT_RANGE_SIZE),
            timeout_range: core::array::from_fn(|i| RawRange {
                range_low_bound: byte(&reg::RANGE_LOW_BOUND[i]),
                range_size: byte(&reg::RANGE_SIZE[i]),
                timeout_retry_num: half(&reg::TIMEOUT_RETRY_NUM[i]),
                dec_mode: byte(&reg::DEC_MODE[i]),
                prev_range_index: byte(&reg::PREV_RANGE_INDEX[i]),
            }),
        }
    }

    /// Returns the profile part of a `ROCE_ACCL` register, with reserved bits zero. Fails if a
    /// value is too large for its field.
    pub fn to_register(&self) -> Result<[u8; PROFILE_SIZE], SetError> {
        let mut register = [0; reg::PROFILE_OFFSET + PROFILE_SIZE];
        let Ok(mut image) = Image::new(&reg::ROCE_ACCL, &mut register[..]) else {
            unreachable!("0x40 bytes are a legal length");
        };
        image.set(&reg::TIME_BASE, self.time_base.into())?;
        image.set(&reg::TIME_UNIT, self.time_unit.into())?;
        image.set(&reg::START_RANGE_INDEX, self.start_range_index.into())?;
        image.set(&reg::RANGE_NUM, self.range_num.into())?;
        image.set(&reg::QP_TOTAL_TIMEOUT, self.qp_total_timeout.into())?;
        image.set(&reg::RETX_TOTAL_TIMEOUT, self.retx_total_timeout.into())?;
        image.set(
            &reg::TIMEOUT_INIT_LOW_BOUND,
            self.timeout_init_low_bound.into(),
        )?;
        image.set(
            &reg::TIMEOUT_INIT_RANGE_SIZE,
            self.timeout_init_range_size.into(),
        )?;
        for (i, range) in self.timeout_range.iter().enumerate() {
            image.set(&reg::RANGE_LOW_BOUND[i], range.range_low_bound.into())?;
            image.set(&reg::RANGE_SIZE[i], range.range_size.into())?;
            image.set(&reg::TIMEOUT_RETRY_NUM[i], range.timeout_retry_num.into())?;
            image.set(&reg::DEC_MODE[i], range.dec_mode.into())?;
            image.set(&reg::PREV_RANGE_INDEX[i], range.prev_range_index.into())?;
        }
        let mut bytes = [0; PROFILE_SIZE];
        bytes.copy_from_slice(&register[reg::PROFILE_OFFSET..]);
        Ok(bytes)
    }
}

impl Default for RawProfile {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// One entry of [`RawProfile::timeout_range`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawRange {
    /// The smallest exponent of the range.
    pub range_low_bound: u8,
    /// How far the range reaches above its low bound.
    pub range_size: u8,
    /// How often each timeout is used before it doubles, 10 bits; 0 means 1 (D13).
    pub timeout_retry_num: u16,
    /// How the timeout shrinks: the number of a [`DecMode`](crate::DecMode).
    pub dec_mode: u8,
    /// The next range on the way down.
    pub prev_range_index: u8,
}

impl RawRange {
    /// All zeros.
    pub const EMPTY: Self = Self {
        range_low_bound: 0,
        range_size: 0,
        timeout_retry_num: 0,
        dec_mode: 0,
        prev_range_index: 0,
    };
}

//! Parameters in configuration records and commands.

use ferroce_prm::cong::select_bit;
use ferroce_prm::{Field, Image, LengthError, Register, SetError};
use thiserror::Error;

use crate::param::{Param, Vocabulary};
use crate::params::{ParamError, Params};

/// The reason why bytes could not be read as parameters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The number of bytes is too large, too small, or not a multiple of four.
    #[error(transparent)]
    Length(#[from] LengthError),
    /// One of the values is out of range or reserved.
    #[error(transparent)]
    Value(#[from] ParamError),
}

impl Params {
    /// Writes the fields that `layout` ([`ferroce_prm::cong`]) has into `bytes`, and leaves every
    /// other bit unchanged. Fields beyond the end of a shorter buffer are left out.
    ///
    /// ```
    /// use ferroce_dcqcn::Params;
    /// use ferroce_prm::cong::NV_ROCE_CC_ECN;
    ///
    /// let mut record = [0; 0x44];
    /// Params::default().encode(&NV_ROCE_CC_ECN, &mut record)?;
    /// assert_eq!(record[..8], [0x40, 0, 0, 0, 0, 0, 0x01, 0x2c], "after_time_inc, 300 us");
    /// assert_eq!(record[0x40..], [0, 0, 48, 6]);
    /// # Ok::<(), ferroce_prm::LengthError>(())
    /// ```
    pub fn encode(&self, layout: &'static Register, bytes: &mut [u8]) -> Result<(), LengthError> {
        let mut image = Image::new(layout, bytes)?;
        for (field, param) in params_in(layout) {
            match image.set(field, self.get(param)) {
                Ok(()) | Err(SetError::Beyond { .. }) => {}
                // No parameter's range exceeds its field; a test goes through them.
                Err(_) => debug_assert!(false, "{param} does not fit"),
            }
        }
        Ok(())
    }

    /// Reads parameters from `bytes`: from a command only those named by `field_select`, from a
    /// configuration record all. If a value is out of range, nothing changes.
    pub fn decode(
        &mut self,
        layout: &'static Register,
        bytes: &[u8],
        field_select: u32,
    ) -> Result<(), DecodeError> {
        let mut decoded = self.clone();
        for (param, value) in values(layout, bytes, field_select)? {
            for &param in written(&param) {
                decoded.set(param, value)?;
            }
        }
        *self = decoded;
        Ok(())
    }

    /// Like [`decode`](Self::decode), but values out of range are clipped to the nearest valid
    /// ones, as the device does.
    pub fn decode_clipped(
        &mut self,
        layout: &'static Register,
        bytes: &[u8],
        field_select: u32,
    ) -> Result<(), LengthError> {
        for (param, value) in values(layout, bytes, field_select)? {
            for &param in written(&param) {
                self.set_clipped(param, value);
            }
        }
        Ok(())
    }
}

/// What is in `bytes` and is selected.
fn values(
    layout: &'static Register,
    bytes: &[u8],
    field_select: u32,
) -> Result<impl Iterator<Item = (Param, u32)>, LengthError> {
    let image = Image::new(layout, bytes)?;
    let is_there = move |field: &Field| {
        field.offset() + 4 <= bytes.len()
            && select_bit(field).is_none_or(|bit| field_select & bit != 0)
    };
    Ok(params_in(layout)
        .filter(move |(field, _)| is_there(field))
        .map(move |(field, param)| (param, image.get(field))))
}

/// What a field sets: the records have one mask of priorities for both points.
fn written(param: &Param) -> &[Param] {
    match param {
        Param::PrioMask => &[Param::PrioMask, Param::NpPrioMask],
        other => core::slice::from_ref(other),
    }
}

fn params_in(layout: &'static Register) -> impl Iterator<Item = (&'static Field, Param)> {
    let fields = layout.fields().iter();
    fields.filter_map(|field| Some((*field, param_of(field.name())?)))
}

/// Records use mlxconfig's names, commands those of sysfs, or of debugfs without what says for which
/// point they are.
fn param_of(field: &str) -> Option<Param> {
    Param::ALL.iter().copied().find(|param| {
        let in_debugfs = param.name_in(Vocabulary::Debugfs);
        param.name_in(Vocabulary::NvConfig) == Some(field)
            || param.name_in(Vocabulary::Sysfs) == Some(field)
            || in_debugfs.and_then(|name| name.strip_prefix("np_")) == Some(field)
    })
}

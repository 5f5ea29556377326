//! The content of a register access, and why one is refused.

use ferroce_adp::InvalidProfile;
use ferroce_prm::{Image, Register, Status};
use thiserror::Error;

use crate::histogram::HistogramError;
use crate::state::WriteLockError;

/// Why a register access was refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device has no such register.
    #[error("register {id:#06x} is not supported")]
    NotSupported {
        /// The number given.
        id: u16,
    },
    /// The register can be read only.
    #[error("{register} can be read and not be written; {instead}")]
    ReadOnly {
        /// Name of the register.
        register: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// A VF wants to change what holds for the card (`BAD_OP`).
    #[error("{what}, and this is a VF: write it through its PF {pf}")]
    OfTheCard {
        /// What is the card's.
        what: &'static str,
        /// Name of the PF.
        pf: String,
    },
    /// The data is shorter than what is written or read, or not a multiple of 4, or too long.
    #[error("{register}: {len} bytes of data; {needs}")]
    BadLength {
        /// Name of the register.
        register: &'static str,
        /// Bytes given.
        len: usize,
        /// What is needed.
        needs: String,
    },
    /// A field has a value the device does not accept (`BAD_PARAM`).
    #[error("{field} = {value}: {reason}")]
    BadParam {
        /// Name of the field.
        field: &'static str,
        /// Value given.
        value: u32,
        /// What would be right.
        reason: &'static str,
    },
    /// The profile is not one the device can run (`BAD_PARAM`).
    #[error(transparent)]
    BadProfile(#[from] InvalidProfile),
    /// The histogram is not one the device can have (`BAD_PARAM`).
    #[error(transparent)]
    BadHistogram(#[from] HistogramError),
    /// No profile has this index (`BAD_INDEX`).
    #[error("adp_retx_profile_id = {index}: this device has profile 1 only")]
    BadIndex {
        /// The index given.
        index: u32,
    },
    /// See [`WriteLockError`].
    #[error(transparent)]
    Lock(#[from] WriteLockError),
}

impl RegisterError {
    /// What a command that fails so is answered with.
    pub const fn status(&self) -> Status {
        match self {
            Self::NotSupported { .. } => Status::NOT_SUPPORTED,
            Self::ReadOnly { .. } | Self::OfTheCard { .. } => Status::BAD_OPERATION,
            Self::BadLength { .. } => Status::BAD_INPUT_LENGTH,
            Self::BadParam { .. } | Self::BadProfile(_) | Self::BadHistogram(_) => {
                Status::BAD_PARAMETER
            }
            Self::BadIndex { .. } => Status::BAD_INDEX,
            Self::Lock(_) => Status::INTERNAL_ERROR,
        }
    }
}

/// The register over `data`, if `data` has one of its lengths.
pub(super) fn parse<'a>(
    register: &'static Register,
    data: &'a [u8],
) -> Result<Image<&'a [u8]>, RegisterError> {
    Image::new(register, data).map_err(|error| RegisterError::BadLength {
        register: register.name(),
        len: error.len,
        needs: format!("send 4 to {} in multiples of 4", error.max),
    })
}

/// Refuses data that ends before the last field of a register.
pub(super) fn whole(
    register: &'static Register,
    data: &[u8],
    end: usize,
) -> Result<(), RegisterError> {
    if data.len() >= end {
        return Ok(());
    }
    Err(RegisterError::BadLength {
        register: register.name(),
        len: data.len(),
        needs: format!("its fields end at byte {end}; send {}", register.size()),
    })
}

/// Answers with as much as was asked for.
pub(super) fn answer(data: &mut [u8], bytes: &[u8]) {
    let len = data.len().min(bytes.len());
    data[..len].copy_from_slice(&bytes[..len]);
    data[len..].fill(0);
}

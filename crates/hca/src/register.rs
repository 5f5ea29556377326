//! Access registers: dispatch and status codes.

mod accelerations;
mod histogram;
mod identity;
mod reset;

use ferroce_adp::InvalidProfile;
use ferroce_prm::{Image, Register, by_id};
pub use ferroce_prm::{Method, Status};
use ferroce_prm::{
    adp_retx_histogram, adp_retx_histogram_config, mfrl, mgir, nic_cap_reg, roce_accl,
};
use thiserror::Error;

use crate::histogram::HistogramError;
use crate::identity::Function;
use crate::state::{DeviceState, WriteLockError};

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

impl DeviceState {
    /// Reads or writes an access register. `data` is the register's content, and for a query also
    /// carries its index; what was refused has changed neither the device nor `data`.
    pub fn access_register(
        &self,
        id: u16,
        method: Method,
        data: &mut [u8],
    ) -> Result<(), RegisterError> {
        access(self, id, method, data)
    }
}

fn access(
    state: &DeviceState,
    id: u16,
    method: Method,
    data: &mut [u8],
) -> Result<(), RegisterError> {
    const ROCE_ACCL: u16 = roce_accl::ROCE_ACCL.id();
    const HISTOGRAM_CONFIG: u16 = adp_retx_histogram_config::ADP_RETX_HISTOGRAM_CONFIG.id();
    const HISTOGRAM: u16 = adp_retx_histogram::ADP_RETX_HISTOGRAM.id();
    const NIC_CAP: u16 = nic_cap_reg::NIC_CAP_REG.id();
    const MGIR: u16 = mgir::MGIR.id();
    const MFRL: u16 = mfrl::MFRL.id();

    let register = by_id(id).ok_or(RegisterError::NotSupported { id })?;
    let read_only = |instead| {
        let register = register.name();
        Err(RegisterError::ReadOnly { register, instead })
    };
    parse(register, data)?;
    match (id, method) {
        (ROCE_ACCL, Method::Query) => accelerations::query(state, data),
        (ROCE_ACCL, Method::Write) => accelerations::write(state, data),
        (HISTOGRAM_CONFIG, Method::Query) => {
            answer(data, &histogram::config_bytes(&state.histogram_config()));
            Ok(())
        }
        (HISTOGRAM_CONFIG, Method::Write) => state.put_histogram_config(histogram::config(data)?),
        (HISTOGRAM, Method::Query) => histogram::query(state, data),
        (HISTOGRAM, Method::Write) => {
            read_only("clear_on_read in ADP_RETX_HISTOGRAM_CONFIG sets it to zero")
        }
        (NIC_CAP, Method::Query) => {
            answer(data, &identity::capabilities());
            Ok(())
        }
        (NIC_CAP, Method::Write) => identity::write_capabilities(data),
        (MGIR, Method::Query) => {
            answer(data, &identity::mgir(state.identity()));
            Ok(())
        }
        (MGIR, Method::Write) => read_only("it shows what the device is"),
        (MFRL, Method::Query) => {
            answer(data, &reset::bytes());
            Ok(())
        }
        (MFRL, Method::Write) => {
            reset::check(data)?;
            match state.function() {
                Function::Pf { .. } => Ok(state.firmware_reset()?),
                Function::Vf { pf, .. } => Err(RegisterError::OfTheCard {
                    what: "MFRL resets the whole card",
                    pf: pf.clone(),
                }),
            }
        }
        _ => Err(RegisterError::NotSupported { id }),
    }
}

/// The register over `data`, if `data` has one of its lengths.
fn parse<'a>(
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
fn whole(register: &'static Register, data: &[u8], end: usize) -> Result<(), RegisterError> {
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
fn answer(data: &mut [u8], bytes: &[u8]) {
    let len = data.len().min(bytes.len());
    data[..len].copy_from_slice(&bytes[..len]);
    data[len..].fill(0);
}

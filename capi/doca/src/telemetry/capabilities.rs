//! What a device can do.

use ferroce_device::Method;
use ferroce_prm::adp_retx_histogram_config::{self as config, ADP_RETX_HISTOGRAM_CONFIG};
use ferroce_prm::nic_cap_reg::{self, NIC_CAP_REG};
use ferroce_prm::roce_accl::{self, ROCE_ACCL};
use ferroce_prm::{Field, Register};

use crate::error::{Code, Refusal};
use crate::registers::Registers;

use super::config::{get, query};

/// The limits of a device's histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Most bins that it can have.
    pub max_bins: u32,
    /// The units of its widths, a bit for each [`TimeUnit`](super::TimeUnit).
    pub time_units: u32,
}

impl Capabilities {
    /// Those of a device.
    ///
    /// # Errors
    ///
    /// See [`Registers::access`].
    pub fn of(registers: &dyn Registers) -> Result<Self, Refusal> {
        histogram_is_supported(registers)?;
        let data = query(registers, &ADP_RETX_HISTOGRAM_CONFIG)?;
        let field = |field| get(&ADP_RETX_HISTOGRAM_CONFIG, &data, field);
        Ok(Self {
            max_bins: field(&config::BIN_NUM_MAX),
            time_units: field(&config::TIME_UNIT_CAP),
        })
    }
}

/// Whether the device has adaptive retransmission.
///
/// # Errors
///
/// [`Code::NotSupported`] if not, and those of [`Registers::access`].
pub fn is_supported(registers: &dyn Registers) -> Result<(), Refusal> {
    let field = &roce_accl::ROCE_ADP_RETRANS_FIELD_SELECT;
    has(registers, &ROCE_ACCL, field, "adaptive retransmission")
}

/// Whether the device counts its timeouts in a histogram.
///
/// # Errors
///
/// [`Code::NotSupported`] if not, and those of [`Registers::access`].
pub fn histogram_is_supported(registers: &dyn Registers) -> Result<(), Refusal> {
    let field = &nic_cap_reg::ADP_RETX_HISTOGRAM;
    has(registers, &NIC_CAP_REG, field, "a histogram of timeouts")
}

fn has(
    registers: &dyn Registers,
    register: &'static Register,
    field: &Field,
    what: &str,
) -> Result<(), Refusal> {
    let mut data = vec![0; register.size()];
    registers.access(register.id(), Method::Query, &mut data)?;
    if get(register, &data, field) == 1 {
        return Ok(());
    }
    let what = format_args!("the device does not have {what}").to_string();
    Err(Refusal::new(Code::NotSupported, what))
}

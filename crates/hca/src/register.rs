//! Access registers: dispatch and status codes.

mod accelerations;
mod content;
mod histogram;
mod identity;
mod reset;

use ferroce_prm::by_id;
pub use ferroce_prm::{Method, Status};
use ferroce_prm::{
    adp_retx_histogram, adp_retx_histogram_config, mfrl, mgir, nic_cap_reg, roce_accl,
};

pub use self::content::RegisterError;
use self::content::{answer, parse};
use crate::identity::Function;
use crate::state::DeviceState;

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

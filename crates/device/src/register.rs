//! Access registers: dispatch and status codes.

mod histogram;
mod identity;
mod reset;

use crate::card::Feature;
use crate::error::RegisterError;
use crate::identity::Function;
use crate::state::DeviceState;
use ferroce_prm::{Image, Register, by_id};
pub use ferroce_prm::{Method, Status};
use ferroce_prm::{
    adp_retx_histogram, adp_retx_histogram_config, mfrl, mgir, nic_cap_reg, roce_accl,
};

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
    if matches!(id, HISTOGRAM_CONFIG | HISTOGRAM) {
        let present = state.identity().require(Feature::Histogram);
        present.map_err(|missing| RegisterError::NotOnCard {
            register: register.name(),
            missing,
        })?;
    }
    let request = parse(register, data)?;
    match (id, method) {
        (ROCE_ACCL, Method::Query) => {
            let index = request.get(&roce_accl::ADP_RETX_PROFILE_ID);
            let settings = state.settings();
            let shown = settings.roce_accl.of_card(state.identity().features());
            answer(data, &shown.query(state.function(), index)?);
            Ok(())
        }
        (ROCE_ACCL, Method::Write) => {
            let function = state.function();
            let identity = state.identity();
            state.change(|settings| settings.roce_accl.write(identity, function, &request))
        }
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
            answer(data, &identity::capabilities(state.identity()));
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

//! ROCE_ACCL: queries and sets.

use ferroce_prm::roce_accl as reg;
use ferroce_prm::{Field, Image};

use super::content::{RegisterError, answer, parse};
use crate::identity::Function;
use crate::settings::{Accelerations, FEATURES, profile_bytes};
use crate::state::DeviceState;

/// GET into `data`, which carries the index. Index 0 shows the active profile and its number
/// (D20).
pub(super) fn query(state: &DeviceState, data: &mut [u8]) -> Result<(), RegisterError> {
    let request = parse(&reg::ROCE_ACCL, data)?;
    let index = request.get(&reg::ADP_RETX_PROFILE_ID);
    if index > 1 {
        return Err(RegisterError::BadIndex { index });
    }
    let mut shown = state.settings().accelerations(state.function());
    if index != 0 {
        shown.put(&reg::ADP_RETX_PROFILE_ID, index);
    }
    answer(data, shown.bytes());
    Ok(())
}

/// SET from `data`. Each select bit acts alone; all of it happens or nothing (D19).
pub(super) fn write(state: &DeviceState, data: &[u8]) -> Result<(), RegisterError> {
    let request = parse(&reg::ROCE_ACCL, data)?;
    let function = state.function();
    state.change(|settings| {
        let mut register = settings.accelerations(function);
        set(&mut register, &request)?;
        let differs_for_all = settings.set_accelerations(function, register);
        match function {
            Function::Vf { pf, .. } if differs_for_all => Err(RegisterError::OfTheCard {
                what: "ROCE_ACCL is the card's but for min_ack_timeout_limit_disabled",
                pf: pf.clone(),
            }),
            _ => Ok(()),
        }
    })
}

fn set(register: &mut Accelerations, request: &Image<&[u8]>) -> Result<(), RegisterError> {
    for &select in reg::SELECTS {
        if request.is_set(select) && !has(select) {
            return Err(RegisterError::BadParam {
                field: select.name(),
                value: 1,
                reason: "this device has no such feature, and a query shows 0 here; write 0",
            });
        }
    }
    let len = request.as_inner().len();
    for feature in FEATURES {
        if request.is_set(feature.select) {
            for &field in feature.values {
                if field.offset() >= len {
                    return Err(RegisterError::BadLength {
                        register: reg::ROCE_ACCL.name(),
                        len,
                        needs: format!("{} lies beyond its end; send 64 or 128", field.name()),
                    });
                }
                register.put(field, request.get(field));
            }
        }
    }
    if request.is_set(&reg::ADP_RETX_PROFILE_SELECT) && !is_unset_profile(register, request) {
        set_profile(register, request)?;
    }
    Ok(())
}

fn has(select: &Field) -> bool {
    *select == reg::ADP_RETX_PROFILE_SELECT
        || FEATURES.iter().any(|feature| feature.select == select)
}

/// Whether the request carries what a query of index 0 returned while no profile is active: the
/// number 0 and an empty profile. mlxreg sets one field by reading the whole register and
/// writing it back, select bits and all; that must not fail for the profile that was never set. A
/// request that selects nothing else asks for number 0, which is refused as beside a profile.
fn is_unset_profile(register: &Accelerations, request: &Image<&[u8]>) -> bool {
    let mut others = FEATURES.iter().map(|feature| feature.select);
    let is_whole = others.any(|select| request.is_set(select));
    let profile = request.as_inner().get(reg::PROFILE_OFFSET..);
    is_whole
        && [
            register.get(&reg::ADP_RETX_PROFILE_ID),
            request.get(&reg::ADP_RETX_PROFILE_ID),
        ] == [0, 0]
        && profile.is_none_or(|rest| rest.iter().all(|byte| *byte == 0))
}

/// A good profile is active at once, for the whole device (D19).
fn set_profile(register: &mut Accelerations, request: &Image<&[u8]>) -> Result<(), RegisterError> {
    match request.get(&reg::ADP_RETX_PROFILE_ID) {
        0 => {
            let reason = "0 stands for the firmware's own timeouts and cannot be written; \
                          write profile 1; `ferroce adp reset` goes back to them";
            let field = "adp_retx_profile_id";
            return Err(RegisterError::BadParam {
                field,
                value: 0,
                reason,
            });
        }
        1 => {}
        index => return Err(RegisterError::BadIndex { index }),
    }
    let bytes = request.as_inner();
    let profile = profile_bytes(bytes).ok_or_else(|| RegisterError::BadLength {
        register: reg::ROCE_ACCL.name(),
        len: bytes.len(),
        needs: "the profile ends at byte 64; send 64 or 128".to_owned(),
    })?;
    Ok(register.activate(profile)?)
}

//! Accesses to registers of a device.

use ferroce_device::{Hca, Method, RegisterError};
use ferroce_prm::roce_accl::{self, ROCE_ACCL};
use ferroce_prm::{Field, Image};

/// Register values as bytes.
pub fn image(fields: &[(&'static Field, u32)]) -> Vec<u8> {
    let mut image = Image::new(&ROCE_ACCL, vec![0; ROCE_ACCL.size()]).unwrap();
    for (field, value) in fields {
        image.set(field, *value).unwrap();
    }
    image.into_inner()
}

/// A field of register values.
pub fn field(bytes: &[u8], field: &'static Field) -> u32 {
    Image::new(&ROCE_ACCL, bytes).unwrap().get(field)
}

/// Reads ROCE_ACCL with a profile.
pub fn query(hca: &mut Hca, index: u32) -> Vec<u8> {
    let mut bytes = image(&[(&roce_accl::ADP_RETX_PROFILE_ID, index)]);
    hca.access_register(ROCE_ACCL.id(), Method::Query, &mut bytes)
        .unwrap();
    bytes
}

/// Writes ROCE_ACCL.
///
/// # Errors
/// Those of the register.
pub fn write(hca: &mut Hca, bytes: &[u8]) -> Result<(), RegisterError> {
    let mut bytes = bytes.to_vec();
    hca.access_register(ROCE_ACCL.id(), Method::Write, &mut bytes)
}

/// Switches adaptive retransmission on or off.
pub fn switch_adaptive(hca: &mut Hca, on: bool) {
    let bytes = image(&[
        (&roce_accl::ROCE_ADP_RETRANS_FIELD_SELECT, 1),
        (&roce_accl::ROCE_ADP_RETRANS_EN, on.into()),
    ]);
    write(hca, &bytes).unwrap();
}

/// Lifts the floor of timeouts, or puts it back.
pub fn disable_floor(hca: &mut Hca, disabled: bool) {
    let bytes = image(&[
        (&roce_accl::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT, 1),
        (&roce_accl::MIN_ACK_TIMEOUT_LIMIT_DISABLED, disabled.into()),
    ]);
    write(hca, &bytes).unwrap();
}

/// Writes a profile as number 1.
pub fn set_profile(hca: &mut Hca, profile: &ferroce_adp::Profile) {
    let mut bytes = image(&[
        (&roce_accl::ADP_RETX_PROFILE_SELECT, 1),
        (&roce_accl::ADP_RETX_PROFILE_ID, 1),
    ]);
    let register = profile.to_register();
    bytes[roce_accl::PROFILE_OFFSET..][..register.len()].copy_from_slice(&register);
    write(hca, &bytes).unwrap();
}

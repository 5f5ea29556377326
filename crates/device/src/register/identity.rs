//! MGIR and NIC_CAP_REG: the device's identity and capabilities.

use ferroce_prm::mgir::{self, MGIR};
use ferroce_prm::nic_cap_reg::{self, NIC_CAP_REG};
use ferroce_prm::{Access, Field, Image};

use super::{RegisterError, parse};
use crate::card::{Feature, Firmware, Model};
use crate::identity::Identity;

/// The id by which tools know the chip; that of a ConnectX-7 if the device is not in
/// the table of cards.
fn hw_dev_id(device_id: u16) -> u32 {
    let model = Model::with_device_id(device_id);
    model.unwrap_or(Model::ConnectX7).chip_id()
}

/// MGIR of a device.
pub(super) fn mgir(identity: &Identity) -> [u8; MGIR.size()] {
    let Firmware {
        major,
        minor,
        sub_minor,
    } = identity.firmware;
    let mut bytes = [0; MGIR.size()];
    let mut image = Image::new(&MGIR, &mut bytes[..]).expect("the whole register");
    let mut put = |field: &Field, value: u32| {
        let fits = image.set(field, value);
        fits.expect("fields are as wide as what is put into them");
    };
    put(&mgir::DEVICE_ID, identity.device_id.into());
    put(&mgir::DEVICE_HW_REVISION, identity.hw_revision.into());
    put(&mgir::NUM_PORTS, 1);
    put(&mgir::HW_DEV_ID, hw_dev_id(identity.device_id));
    put(&mgir::EXTENDED_MAJOR, major);
    put(&mgir::EXTENDED_MINOR, minor);
    put(&mgir::EXTENDED_SUB_MINOR, sub_minor);
    bytes[mgir::PSID_OFFSET..][..mgir::PSID_LEN].copy_from_slice(&identity.psid);
    bytes
}

/// NIC_CAP_REG: of all that cards may have there is the histogram.
pub(super) fn capabilities(identity: &Identity) -> [u8; NIC_CAP_REG.size()] {
    let mut bytes = [0; NIC_CAP_REG.size()];
    let mut image = Image::new(&NIC_CAP_REG, &mut bytes[..]).expect("the whole register");
    let has_histogram = identity.features().has(Feature::Histogram);
    let fits = image.set(&nic_cap_reg::ADP_RETX_HISTOGRAM, has_histogram.into());
    fits.expect("a bit");
    bytes
}

/// SET of NIC_CAP_REG: nothing can be switched on, and what was read may be written back.
pub(super) fn write_capabilities(data: &[u8]) -> Result<(), RegisterError> {
    let request = parse(&NIC_CAP_REG, data)?;
    for field in NIC_CAP_REG.fields() {
        let value = request.get(field);
        if field.access() == Access::Rw && value != 0 {
            return Err(RegisterError::BadParam {
                field: field.name(),
                value,
                reason: "this device does not have it; write 0",
            });
        }
    }
    Ok(())
}

//! The identity that tools read when they open a device.

use ferroce_prm::mgir;

/// What tools see of a device when they open it (MGIR).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// PCI device id, which is also verbs' `vendor_part_id`.
    pub device_id: u16,
    /// Revision of the hardware.
    pub hw_revision: u16,
    /// The three parts of the firmware's version.
    pub firmware: [u32; 3],
    /// The parameter set (PSID), filled up with zeros.
    pub psid: [u8; mgir::PSID_LEN],
}

impl Default for Identity {
    /// A ConnectX-7 whose firmware has the timeout histogram.
    fn default() -> Self {
        Self {
            device_id: 0x1021,
            hw_revision: 0,
            firmware: [28, 48, 1000],
            psid: *b"FRC0000000001\0\0\0",
        }
    }
}

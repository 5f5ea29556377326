//! MFRL, the reset of the card's firmware.

use crate::Register;

/// The register and its fields, in the order in which tools print them.
pub const MFRL: Register = Register::new("MFRL", 0x9028, 0x8, FIELDS)
    .about("Reset of the firmware, the only way back to its own timeouts.");

/// Bit of `reset_trigger`: the PCIe link is toggled, which restarts the firmware.
pub const TRIGGER_LINK: u32 = 0x8;

/// Bit of `reset_type`: everything is reset.
pub const FULL_CHIP_RESET: u32 = 0x1;

define_fields! {
    table FIELDS;
    /// Query: the available triggers. Set: the trigger to reset with, one bit each.
    RESET_TRIGGER = "reset_trigger", (0x4, 0, 8), Rw,
        values &[(1, "TRIGGER0"), (2, "TRIGGER1"), (8, "TRIGGER3"), (0x40, "TRIGGER6")];
    /// The available kinds of reset, one bit each.
    RESET_TYPE = "reset_type", (0x4, 8, 8), Ro,
        values &[
            (1, "Full_Chip_Reset"),
            (2, "Keep_Network_Port_Active_During_Reset"),
            (8, "ARM_Only_Reset"),
            (0x10, "ARM_OS_Shutdown"),
            (0x20, "Network_Reset"),
        ];
    /// Progress of a reset.
    RESET_STATE = "reset_state", (0x4, 16, 4), Ro,
        values &[
            (0, "IDLE"),
            (1, "Negotiation_In_Progress"),
            (2, "Reset_In_Progress"),
            (3, "Error_Negotiation_Timeout"),
            (4, "Error_Negotiation_Dis_Acknowledgment"),
            (5, "Error_Driver_Unload_Timeout"),
            (6, "Error"),
            (7, "ARM_OS_Shut_Down_In_Progress"),
            (8, "Waiting_For_Reset_Trigger"),
        ];
    /// How the PCIe link is toggled.
    PCI_RESET_REQ_METHOD = "pci_reset_req_method", (0x4, 21, 3), Rw,
        values &[(0, "Link_Disable"), (1, "Hot_Reset")];
    /// The selected bit of reset_type.
    RST_TYPE_SEL = "rst_type_sel", (0x4, 24, 3), Rw;
    /// The driver's answer to a request for a reset.
    PCI_SYNC_FOR_FW_UPDATE_RESP = "pci_sync_for_fw_update_resp", (0x4, 27, 2), Wo,
        values &[(0, "NONE"), (1, "Acknowledgment"), (2, "Dis_acknowledgment")];
    /// Who ensures that the card is not used during the reset.
    PCI_SYNC_FOR_FW_UPDATE_START = "pci_sync_for_fw_update_start", (0x4, 29, 2), Rw,
        values &[(0, "Legacy_Flow"), (1, "Synced_Driver_Flow"), (2, "Synced_Tool_Flow")];
    /// The PCI slot has to be rescanned.
    PCI_RESCAN_REQUIRED = "pci_rescan_required", (0x4, 31, 1), Ro;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;

    #[test]
    fn everything_lies_in_the_second_dword() {
        let mut bytes = [0; 8];
        let mut image = Image::new(&MFRL, &mut bytes[..]).unwrap();
        image.set(&RESET_TRIGGER, TRIGGER_LINK).unwrap();
        image.set(&RESET_TYPE, FULL_CHIP_RESET).unwrap();
        image.set(&RESET_STATE, 2).unwrap();
        image.set(&PCI_RESET_REQ_METHOD, 1).unwrap();
        image.set(&PCI_SYNC_FOR_FW_UPDATE_START, 1).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0x20, 0x22, 0x01, 0x08]);
    }
}

//! MGIR, the identity of a card: tools read it when they open one.

use crate::{Field, Register};

/// The register and its fields, in the order in which tools print them. Tools ask for more bytes
/// than it has.
pub const MGIR: Register = Register::new("MGIR", 0x9020, 0xa0, FIELDS)
    .up_to(0x400)
    .about("What the card is: tools read it first.");

/// Bytes of [`PSID`].
pub const PSID_LEN: usize = 16;

/// Offset of [`PSID`], bytes.
pub const PSID_OFFSET: usize = 0x30;

define_fields! {
    table NUMBERS;
    /// PCI device id.
    DEVICE_ID = "device_id", (0x0, 0, 16), Ro, at "hw_info.device_id";
    /// Revision of the hardware.
    DEVICE_HW_REVISION = "device_hw_revision", (0x0, 16, 16), Ro, at "hw_info.device_hw_revision";
    /// Core voltage in units of 50 mV.
    PVS = "pvs", (0x4, 0, 5), Ro, at "hw_info.pvs";
    /// Process technology of the chip.
    TECHNOLOGY = "technology", (0x4, 11, 5), Ro, at "hw_info.technology";
    /// Number of ports.
    NUM_PORTS = "num_ports", (0x4, 16, 12), Ro, at "hw_info.num_ports";
    /// PCI device id in recovery mode, which names the chip.
    HW_DEV_ID = "hw_dev_id", (0x8, 0, 16), Ro, at "hw_info.hw_dev_id";
    /// Who manages modules of the port.
    MODULE_MASTER_FW_DEFAULT = "module_master_fw_default", (0xc, 16, 2), Ro,
        at "hw_info.module_master_fw_default";
    /// The optics are in the chip's package.
    CPO_INDICATION = "cpo_indication", (0xc, 27, 1), Ro, at "hw_info.cpo_indication";
    /// ga counts.
    GA_VALID = "ga_valid", (0xc, 28, 1), Ro, at "hw_info.ga_valid";
    /// Firmware for development.
    DEVELOPMENT = "development", (0xc, 30, 1), Ro, at "hw_info.development";
    /// The card is but a PCIe switch.
    PCI_SWITCH_ONLY_MODE = "pci_switch_only_mode", (0xc, 31, 1), Ro,
        at "hw_info.pci_switch_only_mode";
    /// Upper part of the MAC address the card was made with; 0 stands for unknown.
    MANUFACTURING_BASE_MAC_47_32 = "manufacturing_base_mac_47_32", (0x10, 0, 16), Ro,
        at "hw_info.manufacturing_base_mac_47_32";
    /// Which of several chips it is.
    GA = "ga", (0x10, 16, 6), Ro, at "hw_info.ga";
    /// Real or emulated.
    CHIP_TYPE = "chip_type", (0x10, 24, 4), Ro, at "hw_info.chip_type",
        values &[(0, "Real_chip"), (1, "Emulation"), (2, "ChipSim"), (3, "SimX")];
    /// Lower part of the MAC address the card was made with.
    MANUFACTURING_BASE_MAC_31_0 = "manufacturing_base_mac_31_0", (0x14, 0, 32), Ro,
        at "hw_info.manufacturing_base_mac_31_0";
    /// Seconds since the last reset.
    UPTIME = "uptime", (0x1c, 0, 32), Ro, at "hw_info.uptime";
    /// Third part of the firmware's version; 0, see extended_sub_minor.
    FW_SUB_MINOR = "fw_info.sub_minor", (0x20, 0, 8), Ro;
    /// Second part of the firmware's version; 0, see extended_minor.
    FW_MINOR = "fw_info.minor", (0x20, 8, 8), Ro;
    /// First part of the firmware's version; 0, see extended_major.
    FW_MAJOR = "fw_info.major", (0x20, 16, 8), Ro;
    /// Firmware is updated securely.
    SECURED = "secured", (0x20, 24, 1), Ro, at "fw_info.secured";
    /// Firmware is signed.
    SIGNED_FW = "signed_fw", (0x20, 25, 1), Ro, at "fw_info.signed_fw";
    /// Firmware for debugging.
    DEBUG = "debug", (0x20, 26, 1), Ro, at "fw_info.debug";
    /// Firmware for development.
    DEV = "dev", (0x20, 27, 1), Ro, at "fw_info.dev";
    /// Texts may be sent with commands.
    STRING_TLV = "string_tlv", (0x20, 28, 1), Ro, at "fw_info.string_tlv";
    /// Firmware for development that is signed.
    DEV_SC = "dev_sc", (0x20, 30, 1), Ro, at "fw_info.dev_sc";
    /// Number of the firmware's build.
    BUILD_ID = "build_id", (0x24, 0, 32), Ro, at "fw_info.build_id";
    /// Year of the firmware's installation, binary coded decimal.
    YEAR = "year", (0x28, 0, 16), Ro, at "fw_info.year";
    /// Day of it.
    DAY = "day", (0x28, 16, 8), Ro, at "fw_info.day";
    /// Month of it.
    MONTH = "month", (0x28, 24, 8), Ro, at "fw_info.month";
    /// Hour and minute of it.
    HOUR = "hour", (0x2c, 0, 16), Ro, at "fw_info.hour";
    /// Third part of the version of the physical layer's values.
    BKV_SUB_MINOR = "BKV_sub_minor", (0x2c, 16, 4), Ro, at "fw_info.BKV_sub_minor";
    /// Second part of it.
    BKV_MINOR = "BKV_minor", (0x2c, 20, 4), Ro, at "fw_info.BKV_minor";
    /// First part of it.
    BKV_MAJOR = "BKV_major", (0x2c, 24, 4), Ro, at "fw_info.BKV_major";
    /// Version of the firmware's configuration file.
    INI_FILE_VERSION = "ini_file_version", (0x40, 0, 32), Ro, at "fw_info.ini_file_version";
    /// First part of the firmware's version.
    EXTENDED_MAJOR = "extended_major", (0x44, 0, 32), Ro, at "fw_info.extended_major";
    /// Second part of the firmware's version.
    EXTENDED_MINOR = "extended_minor", (0x48, 0, 32), Ro, at "fw_info.extended_minor";
    /// Third part of the firmware's version.
    EXTENDED_SUB_MINOR = "extended_sub_minor", (0x4c, 0, 32), Ro, at "fw_info.extended_sub_minor";
    /// Rises when firmware cannot be replaced under traffic.
    ISFU_MAJOR = "isfu_major", (0x50, 0, 16), Ro, at "fw_info.isfu_major";
    /// Parts of the chip that are off.
    DISABLED_TILES_BITMAP = "disabled_tiles_bitmap", (0x50, 16, 16), Ro,
        at "fw_info.disabled_tiles_bitmap";
    /// Stage of the card's life, with life_cycle_msb above it.
    LIFE_CYCLE = "life_cycle", (0x54, 0, 2), Ro, at "fw_info.life_cycle";
    /// The card starts signed firmware only.
    SEC_BOOT = "sec_boot", (0x54, 2, 1), Ro, at "fw_info.sec_boot";
    /// Firmware is encrypted.
    ENCRYPTION = "encryption", (0x54, 3, 1), Ro, at "fw_info.encryption";
    /// Upper bits of life_cycle.
    LIFE_CYCLE_MSB = "life_cycle_msb", (0x54, 4, 3), Ro, at "fw_info.life_cycle_msb";
    /// The card is in development mode.
    DEV_STATE = "dev_state", (0x54, 11, 1), Ro, at "fw_info.dev_state";
    /// Firmware can be replaced under traffic.
    ISSU_ABLE = "issu_able", (0x54, 13, 1), Ro, at "fw_info.issu_able";
    /// Mode of the chip's security processor.
    PDS = "pds", (0x54, 14, 1), Ro, at "fw_info.pds";
    /// The embedded processor is off.
    EC_OFFLOAD_ENGINE_DISABLED = "ec_offload_engine_disabled", (0x54, 15, 1), Ro,
        at "fw_info.ec_offload_engine_disabled";
    /// Value of the development fuse.
    DEV_COUNTER = "dev_counter", (0x54, 16, 5), Ro, at "fw_info.dev_counter";
    /// Third part of the oldest driver's version that fits.
    SW_SUB_MINOR = "sw_info.sub_minor", (0x60, 0, 8), Ro;
    /// Second part of it.
    SW_MINOR = "sw_info.minor", (0x60, 8, 8), Ro;
    /// First part of it.
    SW_MAJOR = "sw_info.major", (0x60, 16, 8), Ro;
    /// What expansion ROM 3 holds; 0 stands for nothing.
    ROM3_TYPE = "rom3_type", (0x64, 0, 4), Ro, at "sw_info.rom3_type";
    /// For which processors it is.
    ROM3_ARCH = "rom3_arch", (0x64, 4, 4), Ro, at "sw_info.rom3_arch";
    /// What expansion ROM 2 holds; 0 stands for nothing.
    ROM2_TYPE = "rom2_type", (0x64, 8, 4), Ro, at "sw_info.rom2_type";
    /// For which processors it is.
    ROM2_ARCH = "rom2_arch", (0x64, 12, 4), Ro, at "sw_info.rom2_arch";
    /// What expansion ROM 1 holds; 0 stands for nothing.
    ROM1_TYPE = "rom1_type", (0x64, 16, 4), Ro, at "sw_info.rom1_type";
    /// For which processors it is.
    ROM1_ARCH = "rom1_arch", (0x64, 20, 4), Ro, at "sw_info.rom1_arch";
    /// What expansion ROM 0 holds; 0 stands for nothing.
    ROM0_TYPE = "rom0_type", (0x64, 24, 4), Ro, at "sw_info.rom0_type";
    /// For which processors it is.
    ROM0_ARCH = "rom0_arch", (0x64, 28, 4), Ro, at "sw_info.rom0_arch";
    /// Third part of the version of expansion ROM 0.
    ROM0_BUILD = "rom0_version.build", (0x68, 0, 16), Ro, at "sw_info.rom0_version.build";
    /// Second part of it.
    ROM0_MINOR = "rom0_version.minor", (0x68, 16, 8), Ro, at "sw_info.rom0_version.minor";
    /// First part of it.
    ROM0_MAJOR = "rom0_version.major", (0x68, 24, 8), Ro, at "sw_info.rom0_version.major";
    /// Third part of the version of expansion ROM 1.
    ROM1_BUILD = "rom1_version.build", (0x6c, 0, 16), Ro, at "sw_info.rom1_version.build";
    /// Second part of it.
    ROM1_MINOR = "rom1_version.minor", (0x6c, 16, 8), Ro, at "sw_info.rom1_version.minor";
    /// First part of it.
    ROM1_MAJOR = "rom1_version.major", (0x6c, 24, 8), Ro, at "sw_info.rom1_version.major";
    /// Third part of the version of expansion ROM 2.
    ROM2_BUILD = "rom2_version.build", (0x70, 0, 16), Ro, at "sw_info.rom2_version.build";
    /// Second part of it.
    ROM2_MINOR = "rom2_version.minor", (0x70, 16, 8), Ro, at "sw_info.rom2_version.minor";
    /// First part of it.
    ROM2_MAJOR = "rom2_version.major", (0x70, 24, 8), Ro, at "sw_info.rom2_version.major";
    /// Third part of the version of expansion ROM 3.
    ROM3_BUILD = "rom3_version.build", (0x74, 0, 16), Ro, at "sw_info.rom3_version.build";
    /// Second part of it.
    ROM3_MINOR = "rom3_version.minor", (0x74, 16, 8), Ro, at "sw_info.rom3_version.minor";
    /// First part of it.
    ROM3_MAJOR = "rom3_version.major", (0x74, 24, 8), Ro, at "sw_info.rom3_version.major";
}

/// The card's parameter set (PSID), a byte each, filled up with zeros.
pub const PSID: [Field; PSID_LEN] = bytes!(
    "psid", "fw_info.psid", 0x30, "Letter of the card's parameter set.";
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
);

/// The branch of the firmware's sources, a byte each, filled up with zeros.
pub const DEV_BRANCH_TAG: [Field; 28] = bytes!(
    "dev_branch_tag", "dev_info.dev_branch_tag", 0x80, "Letter of the branch of the sources.";
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27
);

const FIELDS: &[&Field] = &in_order();

/// All fields in the order of the register, of each dword the lowest bits first.
const fn in_order() -> [&'static Field; NUMBERS.len() + PSID_LEN + 28] {
    let mut all = [NUMBERS[0]; NUMBERS.len() + PSID_LEN + 28];
    let (mut at, mut number, mut letter) = (0, 0, 0);
    while at < all.len() {
        if letter < PSID_LEN && (number == NUMBERS.len() || NUMBERS[number].offset() > PSID_OFFSET)
        {
            all[at] = &PSID[letter ^ 3];
            letter += 1;
        } else if number < NUMBERS.len() {
            all[at] = NUMBERS[number];
            number += 1;
        } else {
            all[at] = &DEV_BRANCH_TAG[(at - NUMBERS.len() - PSID_LEN) ^ 3];
        }
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;

    #[test]
    fn identity_lies_where_tools_look_for_it() {
        let mut bytes = [0; 0xa0];
        let mut image = Image::new(&MGIR, &mut bytes[..]).unwrap();
        image.set(&DEVICE_ID, 0x1021).unwrap();
        image.set(&HW_DEV_ID, 0x218).unwrap();
        image.set(&EXTENDED_MAJOR, 28).unwrap();
        image.set(&PSID[0], b'F'.into()).unwrap();
        image.set(&PSID[5], b'x'.into()).unwrap();
        image.set(&DEV_BRANCH_TAG[27], 1).unwrap();
        assert_eq!(bytes[..12], [0, 0, 0x10, 0x21, 0, 0, 0, 0, 0, 0, 2, 0x18]);
        assert_eq!((bytes[0x30], bytes[0x35], bytes[0x47]), (b'F', b'x', 28));
        assert_eq!(bytes[0x9b], 1);
    }

    #[test]
    fn fields_are_listed_as_they_lie() {
        assert!(FIELDS.is_sorted_by_key(|field| (field.offset(), field.lsb())));
    }

    #[test]
    fn tools_may_ask_for_a_kilobyte() {
        assert!(Image::new(&MGIR, &[0; 1024][..]).is_ok());
    }
}

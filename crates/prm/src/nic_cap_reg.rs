//! NIC_CAP_REG, the registers that a card has.

use crate::Register;

/// The register and its fields, in the order in which tools print them.
pub const NIC_CAP_REG: Register =
    Register::new("NIC_CAP_REG", 0xc00d, 0x80, FIELDS).about("Which other registers the card has.");

define_fields! {
    table FIELDS;
    /// There is EC_TIME.
    EC_TIME = "ec_time", (0x0, 0, 1), Ro;
    /// There is EC_BOOT_OPTIONS.
    EC_BOOT_OPTIONS = "ec_boot_options", (0x0, 1, 1), Ro;
    /// virtio_net_emu_tlv_enable can be set.
    VIRTIO_NET_EMU_TLV_ENABLE_SUPPORTED =
        "virtio_net_emu_tlv_enable_supported", (0x0, 2, 1), Ro;
    /// There is RCR.
    RCR = "rcr", (0x0, 3, 1), Ro;
    /// HCA_CMD_ENCAP takes the command SYNC_STEERING.
    CMD_ENCAP_SYNC_STEERING = "cmd_encap_sync_steering", (0x0, 4, 1), Ro;
    /// There is VHCA_ICM_CTRL.
    VHCA_ICM_CTRL = "vhca_icm_ctrl", (0x0, 5, 1), Ro;
    /// vnet_rx_cq_dm_enabled can be set.
    VNET_RX_CQ_DM_SUPPORTED = "vnet_rx_cq_dm_supported", (0x0, 6, 1), Ro;
    /// fw_cpu_monitoring_enabled can be set.
    FW_CPU_MONITORING_SUPPORTED = "fw_cpu_monitoring_supported", (0x0, 7, 1), Ro;
    /// There is NIC_CAP_EXT_REG.
    NIC_CAP_EXT_REG = "nic_cap_ext_reg", (0x0, 8, 1), Ro;
    /// There are ADP_RETX_HISTOGRAM_CONFIG and ADP_RETX_HISTOGRAM.
    ADP_RETX_HISTOGRAM = "adp_retx_histogram", (0x0, 17, 1), Ro;
    /// There is HOST_OS_INIT_CTRL.
    HOST_OS_INIT_CTRL_REG = "host_os_init_ctrl_reg", (0x0, 18, 1), Rw;
    /// Network devices of virtio are emulated.
    VIRTIO_NET_EMU_TLV_ENABLE = "virtio_net_emu_tlv_enable", (0x4, 0, 1), Rw;
    /// Events of virtio's receive queues are moderated.
    VNET_RX_CQ_DM_ENABLED = "vnet_rx_cq_dm_enabled", (0x4, 1, 1), Rw;
    /// The firmware's processor is watched.
    FW_CPU_MONITORING_ENABLED = "fw_cpu_monitoring_enabled", (0x4, 2, 1), Rw;
    /// Context memory of the card in units of 4 KiB; all ones stand for no limit.
    TOTAL_ICM = "total_icm", (0xc, 0, 32), Ro;
    /// The largest vhca_group_id; 0 stands for no groups.
    VHCA_GROUP_ID_MAX = "vhca_group_id_max", (0x14, 0, 16), Ro;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;

    #[test]
    fn the_histogram_is_bit_17() {
        let mut bytes = [0; 0x80];
        let mut image = Image::new(&NIC_CAP_REG, &mut bytes[..]).unwrap();
        image.set(&ADP_RETX_HISTOGRAM, 1).unwrap();
        assert_eq!(bytes[..4], [0, 2, 0, 0]);
    }
}

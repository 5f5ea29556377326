//! Structures of `infiniband/mlx5dv.h`, as far as these devices have what they are for.

use std::ffi::{c_int, c_void};

use super::object::ibv_ah;

#[repr(C)]
pub struct mlx5dv_cqe_comp_caps {
    pub max_num: u32,
    pub supported_format: u32,
}

#[repr(C)]
pub struct mlx5dv_sw_parsing_caps {
    pub sw_parsing_offloads: u32,
    pub supported_qpts: u32,
}

#[repr(C)]
pub struct mlx5dv_striding_rq_caps {
    pub min_single_stride_log_num_of_bytes: u32,
    pub max_single_stride_log_num_of_bytes: u32,
    pub min_single_wqe_log_num_of_strides: u32,
    pub max_single_wqe_log_num_of_strides: u32,
    pub supported_qpts: u32,
}

#[repr(C)]
pub struct mlx5dv_sig_caps {
    pub block_size: u64,
    pub block_prot: u32,
    pub t10dif_bg: u16,
    pub crc_type: u16,
}

#[repr(C)]
pub struct mlx5dv_dci_streams_caps {
    pub max_log_num_concurent: u8,
    pub max_log_num_errored: u8,
}

#[repr(C)]
pub struct mlx5dv_crypto_caps {
    pub failed_selftests: u16,
    pub crypto_engines: u8,
    pub wrapped_import_method: u8,
    pub log_max_num_deks: u8,
    pub flags: u32,
}

/// The most receive requests of queue pairs whose packets come in any order.
#[repr(C)]
pub struct mlx5dv_ooo_recv_wrs_caps {
    pub max_rc: u32,
    pub max_xrc: u32,
    pub max_dct: u32,
    pub max_ud: u32,
    pub max_uc: u32,
}

/// The fields up to the last one that these devices fill. Programs ask for each by a bit of `comp_mask`.
#[repr(C)]
pub struct mlx5dv_context {
    pub version: u8,
    pub flags: u64,
    pub comp_mask: u64,
    pub cqe_comp_caps: mlx5dv_cqe_comp_caps,
    pub sw_parsing_caps: mlx5dv_sw_parsing_caps,
    pub striding_rq_caps: mlx5dv_striding_rq_caps,
    pub tunnel_offloads_caps: u32,
    pub max_dynamic_bfregs: u32,
    pub max_clock_info_update_nsec: u64,
    pub flow_action_flags: u32,
    pub dc_odp_caps: u32,
    pub hca_core_clock: *mut c_void,
    pub num_lag_ports: u8,
    pub sig_caps: mlx5dv_sig_caps,
    pub dci_streams_caps: mlx5dv_dci_streams_caps,
    pub max_wr_memcpy_length: usize,
    pub crypto_caps: mlx5dv_crypto_caps,
    /// From here on later than release 44.
    pub max_dc_rd_atom: u64,
    pub max_dc_init_rd_atom: u64,
    pub reg_c0: mlx5dv_reg,
    pub ooo_recv_wrs_caps: mlx5dv_ooo_recv_wrs_caps,
}

pub const MLX5DV_CONTEXT_MASK_DC_ODP_CAPS: u64 = 1 << 7;
pub const MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS: u64 = 1 << 9;
/// Later than release 44.
pub const MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM: u64 = 1 << 14;
pub const MLX5DV_CONTEXT_MASK_OOO_RECV_WRS: u64 = 1 << 16;

/// The fields of release 44; `comp_mask` names those that came later.
#[repr(C)]
pub struct mlx5dv_context_attr {
    pub flags: u32,
    pub comp_mask: u64,
}

#[repr(C)]
pub struct mlx5dv_port {
    pub flags: u64,
    pub vport: u16,
    pub vport_vhca_id: u16,
    pub esw_owner_vhca_id: u16,
    pub rsvd0: u16,
    pub vport_steering_icm_rx: u64,
    pub vport_steering_icm_tx: u64,
    pub reg_c0: mlx5dv_reg,
}

#[repr(C)]
pub struct mlx5dv_reg {
    pub value: u32,
    pub mask: u32,
}

pub const MLX5DV_QUERY_PORT_VPORT_VHCA_ID: u64 = 1 << 1;

#[repr(C)]
pub struct mlx5dv_cq_init_attr {
    pub comp_mask: u64,
    pub cqe_comp_res_format: u8,
    pub flags: u32,
    pub cqe_size: u16,
}

pub const MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE: u64 = 1;
pub const MLX5DV_CQ_INIT_ATTR_MASK_FLAGS: u64 = 1 << 1;
pub const MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE: u64 = 1 << 2;

#[repr(C)]
pub struct mlx5dv_qp_init_attr {
    pub comp_mask: u64,
    pub create_flags: u32,
    pub dc_init_attr: mlx5dv_dc_init_attr,
    pub send_ops_flags: u64,
}

pub const MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS: u64 = 1;
pub const MLX5DV_QP_INIT_ATTR_MASK_DC: u64 = 1 << 1;
pub const MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS: u64 = 1 << 2;
pub const MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS: u64 = 1 << 3;

pub const MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE: u32 = 1 << 3;
pub const MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE: u32 = 1 << 4;
/// Later than release 44.
pub const MLX5DV_QP_CREATE_OOO_DP: u32 = 1 << 7;

/// `dct_access_key` shares its place with attributes of streams, which these devices do not have.
#[repr(C)]
pub struct mlx5dv_dc_init_attr {
    pub dc_type: c_int,
    pub dct_access_key: u64,
}

pub const MLX5DV_DCTYPE_DCT: c_int = 1;
pub const MLX5DV_DCTYPE_DCI: c_int = 2;

/// Functions that a queue pair does not have are null.
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_qp_ex {
    pub comp_mask: u64,
    pub wr_set_dc_addr: Option<unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64)>,
    pub wr_mr_interleaved: *mut c_void,
    pub wr_mr_list: *mut c_void,
    pub wr_mkey_configure: *mut c_void,
    pub wr_set_mkey_access_flags: *mut c_void,
    pub wr_set_mkey_layout_list: *mut c_void,
    pub wr_set_mkey_layout_interleaved: *mut c_void,
    pub wr_set_mkey_sig_block: *mut c_void,
    pub wr_raw_wqe: *mut c_void,
    pub wr_set_dc_addr_stream:
        Option<unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64, u16)>,
    pub wr_memcpy: *mut c_void,
    pub wr_set_mkey_crypto: *mut c_void,
}

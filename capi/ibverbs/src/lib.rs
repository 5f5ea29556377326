//! libibverbs in Rust: implements each call of `infiniband/verbs.h` on a Ferroce device.
//!
//! The functions have the names and signatures of the C library but no C symbols; `capi/libibverbs`
//! exports them with their versions. They only translate: the device ([`ferroce_device`]) implements
//! the verbs, and this crate turns pointers into handles, structures into values, and refusals into
//! error numbers.
//!
//! | module | purpose |
//! |---|---|
//! | [`abi`] | the structures of the header |
//! | [`error`] | refusals: error number and one line on stderr (`FERROCE_LOG`) |
//! | [`faults`] | the fault rules in force |
//! | `gate`, [`arena`] | the objects that programs hold pointers to, and the check of such pointers |
//! | `queue`, `events`, `late`, `routes` | events on descriptors that can be polled, and their way from the device |
//! | `devices`, `adapter`, `context` | the available devices, those that this process has open, and by whom |
//! | `pd`, `mr`, `cq`, `srq`, `qp`, ... | the calls, by the object they are about; those that use another object follow it |
//! | `chain`, `post` | work requests |
//! | `open` | what opens and closes a context, with the tables of all these calls |
//!
//! Each module uses those of rows above its own, and of its row those to its left.
//!
//! # Safety
//!
//! Every function is called from C with the arguments that the header requires. Pointers to objects
//! of the library are checked; pointers to the program's own structures cannot be.
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all calls, stated above: what verbs.h asks for"
)]

use ferroce_abi::border;

pub mod abi;
mod adapter;
mod ah;
pub mod arena;
mod async_events;
mod buf;
mod caps;
mod capture;
mod chain;
mod channel;
mod context;
mod convert;
mod cq;
mod cq_ex;
mod devices;
mod direct;
mod dm;
mod ece;
pub mod error;
mod events;
pub mod faults;
mod fork;
mod gate;
mod kern;
mod late;
mod mlx5dv;
mod mr;
mod multicast;
mod mw;
mod open;
mod opened;
mod pd;
mod port;
mod post;
mod qp;
mod qp_ex;
mod queue;
mod rate;
mod routes;
mod srq;
mod strings;
mod sysfs;
mod xrc;
mod xrc_qp;

pub use ah::{
    ibv_create_ah, ibv_create_ah_from_wc, ibv_destroy_ah, ibv_init_ah_from_wc,
    ibv_resolve_eth_l2_from_gid,
};
pub use async_events::{ibv_ack_async_event, ibv_get_async_event};
pub use buf::{ibv_alloc_buf, ibv_export_buf_dmabuf_fd, ibv_free_buf, ibv_reg_buf_mr};
pub use caps::ibv_query_device;
pub use channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event};
pub use cq::{ibv_ack_cq_events, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
pub use devices::{
    ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index, ibv_get_device_list,
    ibv_get_device_name,
};
pub use dm::{ibv_import_dm, ibv_unimport_dm};
pub use ece::{ibv_query_ece, ibv_set_ece};
pub use fork::{ibv_fork_init, ibv_is_fork_initialized};
pub use kern::{
    ibv_copy_ah_attr_from_kern, ibv_copy_path_rec_from_kern, ibv_copy_path_rec_to_kern,
    ibv_copy_qp_attr_from_kern,
};
pub use mlx5dv::{
    _mlx5dv_query_port, mlx5dv_create_cq, mlx5dv_create_qp, mlx5dv_is_supported,
    mlx5dv_modify_qp_lag_port, mlx5dv_open_device, mlx5dv_qp_ex_from_ibv_qp_ex,
    mlx5dv_query_device, mlx5dv_query_qp_lag_port,
};
pub use mr::dmabuf::ibv_reg_dmabuf_mr;
pub use mr::extended::ibv_reg_mr_ex;
pub use mr::{
    ibv_dereg_mr, ibv_import_mr, ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_mr_iova2, ibv_rereg_mr,
    ibv_unimport_mr,
};
pub use multicast::{ibv_attach_mcast, ibv_detach_mcast};
pub use open::{ibv_close_device, ibv_import_device, ibv_open_device};
pub use opened::Opened;
pub use pd::{ibv_alloc_pd, ibv_dealloc_pd, ibv_import_pd, ibv_unimport_pd};
pub use port::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_get_pkey_index, ibv_query_gid, ibv_query_gid_type,
    ibv_query_pkey, ibv_query_port, ibv_query_port_speed,
};
pub use qp::{
    ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_qp, ibv_query_qp_data_in_order,
};
pub use qp_ex::ibv_qp_to_qp_ex;
pub use queue::{EventQueue, wait};
pub use rate::{ibv_rate_to_mbps, ibv_rate_to_mult, mbps_to_ibv_rate, mult_to_ibv_rate};
pub use routes::{CmSink, RemovalSink};
pub use srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};
pub use strings::{
    ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_wc_status_str, ibv_wr_opcode_str,
};
pub use sysfs::{ibv_get_sysfs_path, ibv_read_ibdev_sysfs_file, ibv_read_sysfs_file};

/// Answers for what makes an object that this device does not have.
#[border(pointer)]
pub extern "C" fn no_object() -> *const std::ffi::c_void {
    error::set_errno(libc::EOPNOTSUPP);
    std::ptr::null()
}

//! The context of a device and the calls behind it, as `verbs.h` lays them out.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::pthread_mutex_t;

use super::attr::{
    ibv_alloc_dm_attr, ibv_cq_init_attr_ex, ibv_modify_cq_attr, ibv_parent_domain_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_srq_init_attr_ex, ibv_td_init_attr, ibv_values_ex,
    ibv_xrcd_init_attr,
};
use super::device::{ibv_device_attr_ex, ibv_port_attr};
use super::object::{
    ibv_cq, ibv_cq_ex, ibv_dm, ibv_mr, ibv_mw, ibv_pd, ibv_qp, ibv_srq, ibv_td, ibv_xrcd,
};
use super::work::{ibv_mw_bind, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc};

#[repr(C)]
pub struct ibv_device {
    pub ops: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

pub type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub type PostRecv =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub type PostSrqRecv =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// What the inline functions of `verbs.h` call; the gaps were pointers once.
#[repr(C)]
pub struct ibv_context_ops {
    pub compat_0: [*mut c_void; 7],
    pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
    pub bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub compat_create_cq: *mut c_void,
    pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub compat_1: [*mut c_void; 7],
    pub post_srq_recv: Option<PostSrqRecv>,
    pub compat_2: [*mut c_void; 4],
    pub post_send: Option<PostSend>,
    pub post_recv: Option<PostRecv>,
    pub compat_3: [*mut c_void; 5],
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// An operation that this device does not have: a null pointer, which makes the inline function
/// answer `EOPNOTSUPP`.
pub type Absent = *mut c_void;

/// The extended operations; a program reaches them from its `ibv_context`, which comes last.
#[repr(C)]
pub struct verbs_context {
    pub query_port:
        Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    pub advise_mr:
        Option<unsafe extern "C" fn(*mut ibv_pd, c_int, u32, *mut ibv_sge, u32) -> c_int>,
    pub alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
    pub read_counters: Absent,
    pub attach_counters_point_flow: Absent,
    pub create_counters: Absent,
    pub destroy_counters: Absent,
    pub reg_dm_mr:
        Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, c_uint) -> *mut ibv_mr>,
    pub alloc_dm:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm>,
    pub free_dm: Option<unsafe extern "C" fn(*mut ibv_dm) -> c_int>,
    pub modify_flow_action_esp: Absent,
    pub destroy_flow_action: Absent,
    pub create_flow_action_esp: Absent,
    pub modify_qp_rate_limit: Absent,
    pub alloc_parent_domain: Option<
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
    >,
    pub dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
    pub alloc_td:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
    pub modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
    pub post_srq_ops: Absent,
    pub destroy_rwq_ind_table: Absent,
    pub create_rwq_ind_table: Absent,
    pub destroy_wq: Absent,
    pub modify_wq: Absent,
    pub create_wq: Absent,
    pub query_rt_values:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
    pub create_cq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub priv_: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const c_void,
            *mut ibv_device_attr_ex,
            usize,
        ) -> c_int,
    >,
    pub destroy_flow: Absent,
    pub placeholder_2: *mut c_void,
    pub create_flow: Absent,
    pub placeholder_1: *mut c_void,
    pub open_qp:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
    pub create_qp_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
    pub create_srq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    pub open_xrcd:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
    pub close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
    pub placeholder_3: u64,
    pub sz: usize,
    pub context: ibv_context,
}

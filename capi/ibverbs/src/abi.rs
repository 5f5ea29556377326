//! The structures of `infiniband/verbs.h`, field by field, as in release 44, and of
//! `infiniband/mlx5dv.h`.
//!
//! Later releases only append to structures that programs allocate, and `verbs_context` grows
//! towards lower addresses, so programs built against them work as well. `tests/layout.rs` compares
//! sizes and offsets with the installed headers.
#![allow(
    non_camel_case_types,
    missing_docs,
    missing_debug_implementations,
    clippy::use_self,
    reason = "names and meaning are those of the headers"
)]

mod attr;
mod context;
mod device;
mod kern;
mod mlx5dv;
mod object;
mod work;

pub use attr::*;
pub use context::*;
pub use device::*;
pub use kern::*;
pub use mlx5dv::*;
pub use object::*;
pub use work::*;

/// Size of `ibv_port_attr` in programs built before its last fields existed.
pub const PORT_ATTR_COMPAT_LEN: usize = 48;

/// `abi_compat` of a context with a `verbs_context` around it.
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
const _: () = {
    assert!(size_of::<ibv_device>() == 664);
    assert!(size_of::<ibv_context_ops>() == 256);
    assert!(size_of::<ibv_context>() == 328);
    assert!(size_of::<verbs_context>() == 648);
    assert!(size_of::<ibv_cq_ex>() == 288);
    assert!(size_of::<ibv_qp>() == 160);
    assert!(size_of::<ibv_srq>() == 128);
    assert!(size_of::<ibv_wc>() == 48);
    assert!(size_of::<ibv_send_wr>() == 128);
    assert!(size_of::<ibv_qp_attr>() == 144);
    assert!(size_of::<ibv_qp_init_attr_ex>() == 136);
    assert!(size_of::<ibv_device_attr_ex>() == 400);
    assert!(size_of::<ibv_port_attr>() == 52);
};

//! Verbs that are inline functions of the header and call the device through its context.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::null_mut;

use ferroce_ibverbs::abi::{
    IBV_QP_INIT_ATTR_PD, ibv_context, ibv_qp, ibv_qp_init_attr_ex, ibv_srq, ibv_srq_init_attr_ex,
    ibv_xrcd, ibv_xrcd_init_attr, verbs_context,
};
use ferroce_ibverbs::ibv_create_qp;

/// `ibv_create_qp_ex`.
///
/// # Safety
/// `context` and the pointers in `init` are handles.
pub(crate) unsafe fn create_qp(
    context: *mut ibv_context,
    init: &mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    if init.comp_mask == IBV_QP_INIT_ATTR_PD {
        // SAFETY: the plain structure is the head of the other.
        return unsafe { ibv_create_qp(init.pd, std::ptr::from_mut(init).cast()) };
    }
    // SAFETY: a live context.
    match unsafe { (*extended(context)).create_qp_ex } {
        // SAFETY: as the caller promises.
        Some(create) => unsafe { create(context, init) },
        None => unsupported(),
    }
}

/// `ibv_create_srq_ex`.
///
/// # Safety
/// `context` and the pointers in `init` are handles.
pub(crate) unsafe fn create_srq(
    context: *mut ibv_context,
    init: &mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: a live context.
    match unsafe { (*extended(context)).create_srq_ex } {
        // SAFETY: as the caller promises.
        Some(create) => unsafe { create(context, init) },
        None => unsupported(),
    }
}

/// `ibv_open_xrcd` of a domain that no file stands for.
pub(crate) fn open_xrcd(context: *mut ibv_context) -> *mut ibv_xrcd {
    /// `IBV_XRCD_INIT_ATTR_FD` and `IBV_XRCD_INIT_ATTR_OFLAGS`
    const FD_AND_OFLAGS: u32 = 3;
    const NO_FILE: c_int = -1;
    let mut init = ibv_xrcd_init_attr {
        comp_mask: FD_AND_OFLAGS,
        fd: NO_FILE,
        oflags: libc::O_CREAT,
    };
    // SAFETY: a live context.
    match unsafe { (*extended(context)).open_xrcd } {
        // SAFETY: a live context and a local variable.
        Some(open) => unsafe { open(context, &raw mut init) },
        None => unsupported(),
    }
}

fn unsupported<T>() -> *mut T {
    ferroce_ibverbs::error::set_errno(libc::EOPNOTSUPP);
    null_mut()
}

/// The structure whose last field a context is.
fn extended(context: *mut ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast()
}

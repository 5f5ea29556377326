//! Shared receive queues of identifiers.

use std::ffi::c_int;
use std::ptr::null_mut;

use ferroce_abi::border;
use ferroce_ibverbs::abi::{
    IBV_QPT_XRC_RECV, IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE,
    IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQT_BASIC, IBV_SRQT_XRC, ibv_pd, ibv_srq_init_attr,
    ibv_srq_init_attr_ex,
};
use ferroce_ibverbs::error::{Error, number};
use ferroce_ibverbs::ibv_destroy_srq;

use crate::abi::rdma_cm_id;
use crate::device::Device;
use crate::id::{self, Id};
use crate::{qp, verbs};

/// Makes a shared receive queue for the queue pairs of an identifier (rdma_create_srq(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        if attr.is_null() {
            return Err(Error::Null("attr"));
        }
        // SAFETY: zero is a value of all fields, and the program's structure is its own.
        let mut init = unsafe {
            ibv_srq_init_attr_ex {
                srq_context: (*attr).srq_context,
                attr: (*attr).attr,
                comp_mask: IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
                srq_type: match id.qp_type() {
                    IBV_QPT_XRC_RECV => IBV_SRQT_XRC,
                    _ => IBV_SRQT_BASIC,
                },
                pd,
                ..std::mem::zeroed()
            }
        };
        create_srq(&id, &mut init)?;
        // SAFETY: as above.
        unsafe { (*attr).attr = init.attr };
        Ok(0)
    });
    number("rdma_create_srq", result)
}

/// [`rdma_create_srq`] with extended attributes.
#[border(number)]
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        if attr.is_null() {
            return Err(Error::Null("attr"));
        }
        // SAFETY: not null, and a structure that nothing else accesses during the call.
        create_srq(&id, unsafe { &mut *attr })?;
        Ok(0)
    });
    number("rdma_create_srq_ex", result)
}

fn create_srq(id: &Id, init: &mut ibv_srq_init_attr_ex) -> Result<(), Error> {
    let device = id.device()?;
    let abi = id.abi();
    // SAFETY: the memory of an object is never freed.
    let (srq, pd) = unsafe { ((*abi).srq, (*abi).pd) };
    if !srq.is_null() {
        return Err(Error::refused(
            libc::EINVAL,
            "the id has a shared receive queue; destroy it first",
        ));
    }
    if init.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || init.pd.is_null() {
        init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        init.pd = if pd.is_null() { device.domain()? } else { pd };
    }
    if init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && init.srq_type == IBV_SRQT_XRC {
        complete_xrc(id, device, init)?;
    }
    // SAFETY: live handles.
    let made = unsafe { verbs::create_srq(device.context, init) };
    if made.is_null() {
        return Err(Error::reported());
    }
    // SAFETY: live objects.
    unsafe {
        if (*abi).pd.is_null() {
            (*abi).pd = init.pd;
        }
        (*abi).srq = made;
    }
    Ok(())
}

/// Adds the domain and the completion queue that an XRC shared receive queue needs besides.
fn complete_xrc(id: &Id, device: &Device, init: &mut ibv_srq_init_attr_ex) -> Result<(), Error> {
    if init.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || init.xrcd.is_null() {
        init.xrcd = device.xrc_domain()?;
    }
    if init.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || init.cq.is_null() {
        let abi = id.abi();
        // SAFETY: the memory of an object is never freed.
        if unsafe { (*abi).recv_cq.is_null() } {
            qp::create_cqs(id, 0, init.attr.max_wr)?;
        }
        // SAFETY: as above.
        init.cq = unsafe { (*abi).recv_cq };
    }
    init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    Ok(())
}

/// Destroys an identifier's shared receive queue (rdma_destroy_srq(3)).
#[border(nothing)]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    let result = id::find(id).map(|id| {
        destroy(&id);
        0
    });
    number::<c_int>("rdma_destroy_srq", result);
}

pub(crate) fn destroy(id: &Id) {
    // SAFETY: the memory of an object is never freed.
    unsafe {
        let srq = std::mem::replace(&mut (*id.abi()).srq, null_mut());
        if !srq.is_null() {
            ibv_destroy_srq(srq);
        }
        if (*id.abi()).qp.is_null() {
            qp::destroy_cqs(id);
        }
    }
}

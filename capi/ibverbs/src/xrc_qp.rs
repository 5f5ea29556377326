//! XRC_RECV queue pairs, which several openers share.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_abi::pointer::read;
use ferroce_device::{QpCap, QpType};
use ferroce_fault::Target;
use ferroce_wire::Qpn;

use crate::abi::{
    IBV_QP_INIT_ATTR_XRCD, IBV_QPT_XRC_RECV, ibv_context, ibv_qp, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_open_attr,
};
use crate::error::{Error, pointer};
use crate::qp::Made;
use crate::xrc::{self, Xrcd};
use crate::{context, convert, qp};

/// Makes a queue pair that has no queues and belongs to an XRC domain.
pub(crate) fn create(
    context: *mut ibv_context,
    ex: &ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Error> {
    if ex.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 {
        let allowed = "IBV_QP_INIT_ATTR_XRCD and the XRC domain";
        return Err(Error::invalid("comp_mask", ex.comp_mask, allowed));
    }
    let xrcd = xrc::find_in(ex.xrcd, &context::find(context)?)?;
    xrcd.context.adapter.meet(Target::CreateQp, None)?;
    let device = xrcd.context.adapter.live()?;
    device.join()?;
    let qpn = device.with(|hca| hca.create_xrc_recv_qp(xrcd.id))?;
    Ok(insert(context, xrcd, qpn, ex.qp_context))
}

/// The queue pair of an XRC domain as the program sees it.
fn insert(
    context: *mut ibv_context,
    xrcd: &Xrcd,
    qpn: Qpn,
    qp_context: *mut c_void,
) -> *mut ibv_qp {
    let init = ibv_qp_init_attr {
        qp_context,
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        cap: convert::abi_cap(&QpCap::NONE),
        qp_type: IBV_QPT_XRC_RECV,
        sq_sig_all: 0,
    };
    let own = Arc::clone(&xrcd.context);
    let made = Made {
        qpn,
        qp_type: QpType::XrcRecv,
        cap: QpCap::NONE,
    };
    qp::insert(own, context, None, made, &init, ibv_qp_ex::of)
}

/// Opens an XRC_RECV queue pair of a domain once more (ibv_open_qp(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: null or a structure of the program, valid during the call.
    let attr = unsafe { read("qp_open_attr", attr) }.map_err(Error::from);
    pointer(
        "ibv_open_qp",
        attr.and_then(|attr| open_shared(context, attr)),
    )
}

fn open_shared(context: *mut ibv_context, attr: &ibv_qp_open_attr) -> Result<*mut ibv_qp, Error> {
    const NUM: u32 = 1;
    const XRCD: u32 = 1 << 1;
    const CONTEXT: u32 = 1 << 2;
    const TYPE: u32 = 1 << 3;
    const NEEDED: u32 = NUM | XRCD | TYPE;
    if attr.comp_mask & NEEDED != NEEDED || attr.comp_mask & !(NEEDED | CONTEXT) != 0 {
        let allowed = "number, XRC domain and type, and perhaps the context";
        return Err(Error::invalid("comp_mask", attr.comp_mask, allowed));
    }
    if attr.qp_type != IBV_QPT_XRC_RECV {
        return Err(Error::invalid("qp_type", attr.qp_type, "IBV_QPT_XRC_RECV"));
    }
    let qpn = convert::qpn("qp_num", attr.qp_num)?;
    let xrcd = xrc::find_in(attr.xrcd, &context::find(context)?)?;
    let device = xrcd.context.adapter.live()?;
    device.with(|hca| hca.open_xrc_recv_qp(xrcd.id, qpn))?;
    let user = match attr.comp_mask & CONTEXT != 0 {
        true => attr.qp_context,
        false => null_mut(),
    };
    Ok(insert(context, xrcd, qpn, user))
}

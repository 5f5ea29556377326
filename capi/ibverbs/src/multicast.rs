//! Multicast groups (ibv_attach_mcast(3)).

use std::ffi::c_int;

use ferroce_abi::border;
use ferroce_device::{Hca, VerbsError};
use ferroce_wire::Qpn;

use crate::abi::{ibv_gid, ibv_qp};
use crate::error::{Error, status};
use crate::qp;

/// Attaches a UD queue pair to a multicast group (ibv_attach_mcast(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    let attached = with_group(qp, gid, |hca, qpn, mgid| hca.attach_mcast(qpn, mgid));
    status("ibv_attach_mcast", attached)
}

/// Detaches a queue pair from a multicast group (ibv_attach_mcast(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    let detached = with_group(qp, gid, |hca, qpn, mgid| hca.detach_mcast(qpn, mgid));
    status("ibv_detach_mcast", detached)
}

fn with_group(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    verb: impl FnOnce(&mut Hca, Qpn, [u8; 16]) -> Result<(), VerbsError>,
) -> Result<(), Error> {
    let own = qp::find(qp)?.own();
    if gid.is_null() {
        return Err(Error::Null("gid"));
    }
    // SAFETY: not null, and valid for reads during the call as the header requires.
    let mgid = unsafe { gid.read_unaligned() }.raw;
    let device = own.context.adapter.live()?;
    device.with(|hca| verb(hca, own.qpn, mgid))?;
    Ok(())
}

//! Connections in the device.

use ferroce_device::cm::{CmError, CommId, Transport};
use ferroce_ibverbs::abi::{IBV_QPT_UC, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND};
use ferroce_ibverbs::error::Error;
use ferroce_wire::cm::{Private, RejectReason};

use crate::device::Device;
use crate::id::{Id, wrong_step};
use crate::qp;

/// A refusal of the connection manager as one of a call.
pub(crate) fn cm_error(error: CmError) -> Error {
    let errno = match error {
        CmError::InUse { .. } => libc::EADDRINUSE,
        CmError::TooMany { .. } => libc::ENOMEM,
        _ => libc::EINVAL,
    };
    Error::refused(errno, error.to_string())
}

pub(crate) fn private<const N: usize>(parts: &[&[u8]]) -> Result<Private<N>, Error> {
    Private::new(&parts.concat()).map_err(|error| Error::refused(libc::EINVAL, error.to_string()))
}

pub(crate) fn transport(id: &Id) -> Transport {
    // SAFETY: the memory of an object is never freed.
    match unsafe { (*id.abi()).qp_type } {
        IBV_QPT_UC => Transport::Uc,
        IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => Transport::Xrc,
        _ => Transport::Rc,
    }
}

/// The device and the name of a connection.
pub(crate) fn connection(id: &Id) -> Result<(&'static Device, CommId), Error> {
    let state = id.state();
    match (state.device, state.comm) {
        (Some(device), Some(comm)) => Ok((device, comm)),
        _ => Err(wrong_step("do this", state.step, "Requested and Connect")),
    }
}

/// Brings the queue pair to where it can send, and tells the peer so.
pub(crate) fn confirm(id: &Id) -> Result<(), Error> {
    qp::make_ready(id)?;
    let (device, comm) = connection(id)?;
    let ready = device.with(|hca, _| hca.cm_mut().ready(comm, Private::default()));
    ready.map_err(cm_error)
}

/// Breaks off a connection that failed on this side.
pub(crate) fn give_up(id: &Id) {
    id.state().failed = true;
    // Neither matters any more.
    let _ = qp::to_error(id);
    if let Ok((device, comm)) = connection(id) {
        let reason = RejectReason::CONSUMER;
        let _ = device.with(|hca, now| hca.cm_mut().reject(now, comm, reason, Private::default()));
    }
}

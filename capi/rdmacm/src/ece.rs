//! Options of connections (`ibv_ece`): those of identifiers with a queue pair are agreed on without the
//! program, those of queue pairs of its own by the calls.

use std::ffi::c_int;

use ferroce_abi::border;
use ferroce_abi::pointer::{put, read};
use ferroce_device::Ece;
use ferroce_ibverbs::abi::{ibv_ece, ibv_qp};
use ferroce_ibverbs::error::{Error, number};
use ferroce_ibverbs::{ibv_query_ece, ibv_set_ece};

use crate::abi::rdma_cm_id;
use crate::id::{self, Id};

/// Sets the options that the next request or reply carries (rdma_set_local_ece(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let result = id::find(id).and_then(|id| {
        without_qp(&id)?;
        // SAFETY: null or a structure of the program, valid during the call.
        let ece = unsafe { read("ece", ece)? };
        if ece.comp_mask != 0 {
            return Err(Error::invalid("comp_mask", ece.comp_mask, "0"));
        }
        if !(1..1 << 24).contains(&ece.vendor_id) {
            let allowed = "1 to 0xffffff, as ibv_query_ece returns it";
            return Err(Error::invalid("vendor_id", ece.vendor_id, allowed));
        }
        id.state().own_ece = of_program(ece);
        Ok(0)
    });
    number("rdma_set_local_ece", result)
}

/// The options of the peer's request or reply; of vendor 0 if there are none (rdma_get_remote_ece(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let result = id::find(id).and_then(|id| {
        without_qp(&id)?;
        let known = id.state().terms.peer_ece;
        // SAFETY: null or a structure of the program that may be written to.
        unsafe { put("ece", ece, known.into())? };
        Ok(0)
    });
    number("rdma_get_remote_ece", result)
}

fn without_qp(id: &Id) -> Result<(), Error> {
    // SAFETY: the memory of an object is never freed.
    if unsafe { (*id.abi()).qp.is_null() } {
        return Ok(());
    }
    let what = "the id has a queue pair, whose options the library sets; this call is for others";
    Err(Error::refused(libc::EINVAL, what))
}

/// Offers the peer what a new queue pair can have.
pub(crate) fn offer(id: &Id, qp: *mut ibv_qp) -> Result<(), Error> {
    id.state().own_ece = of_program(&query(qp)?);
    Ok(())
}

/// Sets what the peer offers or has chosen: nothing, if that is of another vendor.
pub(crate) fn agree(id: &Id, qp: *mut ibv_qp) -> Result<(), Error> {
    let (own, peer) = (query(qp)?, id.state().terms.peer_ece);
    let options = match peer.vendor_id == own.vendor_id {
        true => peer.options,
        false => 0,
    };
    let mut ece = ibv_ece { options, ..own };
    // SAFETY: a live queue pair and a local variable.
    done(unsafe { ibv_set_ece(qp, &raw mut ece) })?;
    id.state().own_ece = of_program(&ece);
    Ok(())
}

fn query(qp: *mut ibv_qp) -> Result<ibv_ece, Error> {
    let mut ece = ibv_ece::default();
    // SAFETY: a live queue pair and a local variable.
    done(unsafe { ibv_query_ece(qp, &raw mut ece) })?;
    Ok(ece)
}

fn done(errno: c_int) -> Result<(), Error> {
    match errno {
        0 => Ok(()),
        errno => Err(Error::Reported(errno)),
    }
}

fn of_program(ece: &ibv_ece) -> Ece {
    Ece {
        vendor_id: ece.vendor_id,
        options: ece.options,
    }
}

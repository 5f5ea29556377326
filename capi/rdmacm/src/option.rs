//! Options of identifiers, and what this library does not have.

use std::ffi::{c_int, c_void};

use ferroce_ibverbs::abi::{IBV_QPT_RC, IBV_QPT_XRC_SEND, ibv_ece};
use ferroce_ibverbs::error::{Error, number};

use crate::abi::*;
use crate::id::{self, Id, Step};
use crate::resolve::wrong_step;

/// Sets an option (rdma_set_option(3)).
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    // SAFETY: the program's own `optlen` bytes.
    let result = id::find(id).and_then(|id| unsafe { set(&id, level, optname, optval, optlen) });
    number("rdma_set_option", result)
}

/// # Safety
/// `length` bytes are there.
unsafe fn set(
    id: &Id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> Result<c_int, Error> {
    let read = |size: usize| -> Result<c_int, Error> {
        if value.is_null() {
            return Err(Error::Null("optval"));
        }
        if length != size {
            return Err(Error::invalid("optlen", length, "the size of the option"));
        }
        // SAFETY: as the caller promises.
        Ok(unsafe {
            match size {
                1 => value.cast::<u8>().read().into(),
                _ => value.cast::<c_int>().read_unaligned(),
            }
        })
    };
    let mut state = id.state();
    match (level, name) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => state.traffic_class = read(1)? as u8,
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
            state.reuse_port = read(size_of::<c_int>())? != 0;
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
            if state.step != Step::Idle {
                return Err(wrong_step("change its families", state.step, "Idle"));
            }
            state.only_own_family = read(size_of::<c_int>())? != 0;
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            // SAFETY: a live object.
            let qp_type = unsafe { (*id.abi()).qp_type };
            if ![IBV_QPT_RC, IBV_QPT_XRC_SEND].contains(&qp_type) {
                return Err(Error::invalid(
                    "qp_type",
                    qp_type,
                    "RC and XRC_SEND, which time out",
                ));
            }
            let timeout = read(1)?;
            if timeout > 31 {
                return Err(Error::invalid("ACK timeout", timeout, "0 to 31"));
            }
            state.ack_timeout = Some(timeout as u8);
        }
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
            return Err(Error::Unsupported("RDMA_OPTION_IB_PATH"));
        }
        (RDMA_OPTION_ID, _) => return Err(Error::invalid("optname", name, "0 to 3")),
        _ => {
            return Err(Error::invalid(
                "level",
                level,
                "RDMA_OPTION_ID and RDMA_OPTION_IB",
            ));
        }
    }
    Ok(0)
}

/// Enhanced connection establishment: the device has no options that a peer must agree to, so only
/// none can be asked for (rdma_set_local_ece(3)).
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let wanted = |_| {
        // SAFETY: the program's own structure.
        match unsafe { ece.as_ref() } {
            None => Err(Error::Null("ece")),
            Some(ece) if ece.vendor_id == 0 && ece.options == 0 => Ok(0),
            Some(_) => Err(Error::Unsupported("enhanced connection establishment")),
        }
    };
    let result = id::find(id).and_then(wanted);
    number("rdma_set_local_ece", result)
}

/// What the peer asks for: nothing (rdma_get_remote_ece(3)).
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let result = id::find(id).and_then(|_| {
        if ece.is_null() {
            return Err(Error::Null("ece"));
        }
        // SAFETY: the program's own structure.
        unsafe { ece.write(ibv_ece::default()) };
        Ok(0)
    });
    number("rdma_get_remote_ece", result)
}

/// Defines functions that answer -1 and `EOPNOTSUPP`, whatever their arguments: by the calling
/// convention of C nobody has to take those.
macro_rules! absent {
    ($($(#[$doc:meta])* $name:ident $what:literal;)*) => {
        $(
            $(#[$doc])*
            pub extern "C" fn $name() -> c_int {
                number(stringify!($name), Err(Error::Unsupported($what)))
            }
        )*
    };
}

absent! {
    /// A call of later releases.
    rdma_query_addrinfo "the query of a resolved name";
    /// A call of later releases.
    rdma_resolve_addrinfo "the asynchronous resolution of names";
    /// A call of later releases.
    rdma_write_cm_event "an event of the program's own";
}

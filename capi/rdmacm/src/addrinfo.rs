//! Names resolved by an event (rdma_resolve_addrinfo(3)), and events of the program's own.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_abi::pointer::check;
use ferroce_ibverbs::error::{Error, number};

use crate::abi::{
    RAI_DNS, RAI_SA, RDMA_CM_EVENT_ADDRINFO_RESOLVED, RDMA_CM_EVENT_USER, rdma_addrinfo, rdma_cm_id,
};
use crate::id::{self, Id, Incoming};
use crate::info::{self, Resolved};
use crate::wait::complete;

/// Events of its own that a program may leave unread in an identifier.
pub(crate) const OWN_EVENTS_MAX: u32 = 1024;

/// Looks up a node or service as `rdma_getaddrinfo` does; the event says when it is done, which is at
/// once.
#[border(number)]
pub unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        // SAFETY: null or a structure of the program, valid during the call.
        let flags = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_flags);
        if flags & RAI_SA != 0 {
            let what = match flags & RAI_DNS {
                0 => "a service of an InfiniBand subnet",
                _ => "RAI_SA with RAI_DNS",
            };
            return Err(Error::Unsupported(what));
        }
        if id.state().resolved.is_some() {
            return Err(Error::Busy("query the name resolved before first"));
        }
        // SAFETY: null or C strings and a structure, valid during the call.
        let found = unsafe { info::find(node, service, hints) }?.map_err(|code| {
            let what = format!("no such node or service (code {code} of getaddrinfo)");
            Error::refused(libc::ENOENT, what)
        })?;
        id.state().resolved = Some(Resolved(found));
        id.push(Incoming::Done {
            event: RDMA_CM_EVENT_ADDRINFO_RESOLVED,
            status: 0,
        });
        complete(&id)
    });
    number("rdma_resolve_addrinfo", result)
}

/// Hands out what `rdma_resolve_addrinfo` has found.
#[border(number)]
pub unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    let result = check("info", info).map_err(Error::from).and_then(|info| {
        let resolved = id::find(id)?.state().resolved.take();
        let Some(resolved) = resolved else {
            return Err(Error::refused(
                libc::ENOENT,
                "no name was resolved for the id",
            ));
        };
        // SAFETY: not null, and a variable that may be written to.
        unsafe { *info = resolved.0 };
        std::mem::forget(resolved);
        Ok(0)
    });
    number("rdma_query_addrinfo", result)
}

/// Gives the program an event that it has made up.
#[border(number)]
pub unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: c_int,
    status: c_int,
    arg: u64,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        if event != RDMA_CM_EVENT_USER {
            return Err(Error::invalid("event", event, "RDMA_CM_EVENT_USER"));
        }
        write(&id, status, arg)
    });
    number("rdma_write_cm_event", result)
}

fn write(id: &Arc<Id>, status: c_int, arg: u64) -> Result<c_int, Error> {
    {
        let mut state = id.state();
        if state.own_events == OWN_EVENTS_MAX {
            let what =
                format!("{OWN_EVENTS_MAX} such events of the id are unread; read them first");
            return Err(Error::refused(libc::ENOMEM, what));
        }
        state.own_events += 1;
    }
    id.push(Incoming::Own { status, arg });
    Ok(0)
}

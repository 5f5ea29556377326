//! Identifiers created in one step (rdma_create_ep(3)).

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_abi::pointer::check;
use ferroce_ibverbs::abi::{ibv_pd, ibv_qp_init_attr};
use ferroce_ibverbs::error::{Error, number};
use libc::sockaddr;

use crate::abi::{RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, rdma_addrinfo, rdma_cm_id};
use crate::channel;
use crate::id::{self, Id, Template};
use crate::{address, life, qp, resolve, srq, wait};

/// Makes a synchronous identifier for an address (rdma_create_ep(3)): bound on the passive side, on
/// the other with the way to the peer and, if there are attributes for it, with a queue pair.
#[border(number)]
pub unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let result = check("id", id).map_err(Error::from).and_then(|id| {
        // SAFETY: `id` is not null and may be written to; the others are null or structures, valid
        // during the call.
        unsafe { *id = create(res, pd, init)? };
        Ok(0)
    });
    number("rdma_create_ep", result)
}

/// # Safety
/// The pointers are null or lead to the program's structures.
unsafe fn create(
    res: *const rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> Result<*mut rdma_cm_id, Error> {
    // SAFETY: as the caller promises.
    let info = unsafe { res.as_ref() }.ok_or(Error::Null("res"))?;
    let made = life::create(null_mut(), null_mut(), info.ai_port_space, info.ai_qp_type)?;
    // SAFETY: as the caller promises.
    match unsafe { prepare(&made, info, pd, init) } {
        Ok(()) => Ok(made.abi()),
        Err(error) => {
            qp::destroy(&made);
            life::destroy(&made);
            Err(error)
        }
    }
}

/// # Safety
/// As for [`create`].
unsafe fn prepare(
    id: &Arc<Id>,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> Result<(), Error> {
    // SAFETY: as the caller promises.
    let src = unsafe { optional("ai_src_addr", info.ai_src_addr) }?;
    // SAFETY: as the caller promises.
    let init = unsafe { init.as_mut() };
    if info.ai_flags & RAI_PASSIVE != 0 {
        let v6 = info.ai_family == libc::AF_INET6;
        resolve::bind(id, src.unwrap_or_else(|| resolve::anywhere(v6)))?;
        if let Some(init) = init {
            init.qp_type = info.ai_qp_type;
            id.state().template = Some(Template(*init));
            if !pd.is_null() {
                // SAFETY: the memory of an object is never freed.
                unsafe { (*id.abi()).pd = pd };
            }
        }
        return Ok(());
    }
    // SAFETY: as the caller promises.
    let dst = unsafe { address::read("ai_dst_addr", info.ai_dst_addr) }?;
    resolve::resolve(id, src, dst)?;
    resolve::resolve_route(id)?;
    if let Some(init) = init {
        init.qp_type = info.ai_qp_type;
        // SAFETY: as the caller promises.
        unsafe { qp::create_plain(id, pd, init) }?;
    }
    Ok(())
}

/// # Safety
/// `address` is null or points to a socket address of the family it names.
unsafe fn optional(
    name: &'static str,
    address: *const sockaddr,
) -> Result<Option<SocketAddr>, Error> {
    match address.is_null() {
        true => Ok(None),
        // SAFETY: as the caller promises.
        false => unsafe { address::read(name, address) }.map(Some),
    }
}

/// Destroys an identifier and its queue pair (rdma_destroy_ep(3)).
#[border(nothing)]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    let result = id::find(id).map(|id| {
        qp::destroy(&id);
        srq::destroy(&id);
        life::destroy(&id)
    });
    number("rdma_destroy_ep", result);
}

/// Waits for a request on a synchronous identifier (rdma_get_request(3)), and gives it a queue pair
/// if the listening one was made with attributes for it.
#[border(number)]
pub unsafe extern "C" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    let result = id::find(listen).and_then(|listener| {
        let id = check("id", id)?;
        let made = request(&listener)?;
        // SAFETY: not null, and a variable that may be written to.
        unsafe { *id = made };
        Ok(0)
    });
    number("rdma_get_request", result)
}

fn request(listener: &Arc<Id>) -> Result<*mut rdma_cm_id, Error> {
    if !listener.is_sync() {
        let what = "the id reports to an event channel; take its requests from there";
        return Err(Error::refused(libc::EINVAL, what));
    }
    channel::drop_event(listener);
    // SAFETY: the memory of an object is never freed.
    let (channel, pd) = unsafe { ((*listener.abi()).channel, (*listener.abi()).pd) };
    let event = wait::next(channel)?;
    // SAFETY: a live event.
    let (kind, status, made) = unsafe { ((*event).event, (*event).status, (*event).id) };
    if kind != RDMA_CM_EVENT_CONNECT_REQUEST || status != 0 {
        // It is live.
        let _ = channel::acknowledge(event);
        return Err(Error::refused(
            libc::EINVAL,
            "the listening id reported something else",
        ));
    }
    let template = listener.state().template;
    if let Some(Template(mut init)) = template {
        let id = id::find(made)?;
        // SAFETY: its pointers are those that the program gave to the listening identifier.
        if let Err(error) = unsafe { qp::create_plain(&id, pd, &mut init) } {
            // It is live, and so is the identifier.
            let _ = channel::acknowledge(event);
            life::destroy(&id);
            return Err(error);
        }
    }
    // SAFETY: the memory of an object is never freed.
    unsafe { (*made).event = event };
    Ok(made)
}

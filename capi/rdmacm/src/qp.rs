//! Queue pairs and completion queues of identifiers.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ferroce_abi::border;
use ferroce_abi::pointer::check;
use ferroce_fault::Target;
use ferroce_ibverbs::abi::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_XRCD, IBV_QPT_UC, IBV_QPT_XRC_RECV, ibv_cq, ibv_pd,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use ferroce_ibverbs::error::{Error, number};
use ferroce_ibverbs::{
    ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
    ibv_destroy_qp, ibv_modify_qp,
};

use crate::abi::rdma_cm_id;
use crate::id::{self, Id};
use crate::{attr, ece, group, verbs};

/// States of `ibv_qp_state`.
const INIT: c_int = 1;
const RTR: c_int = 2;
const RTS: c_int = 3;
const ERR: c_int = 6;

/// Makes a queue pair for an identifier, with what it needs besides if the program has not brought
/// it, and takes it as far as it can go without the peer (rdma_create_qp(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        if init.is_null() {
            return Err(Error::Null("qp_init_attr"));
        }
        id.meet(Target::RdmaCreateQp)?;
        // SAFETY: not null, and a structure that nothing else accesses during the call.
        unsafe { create_plain(&id, pd, &mut *init) }?;
        Ok(0)
    });
    number("rdma_create_qp", result)
}

/// # Safety
/// The pointers in `init` are null or handles.
pub(crate) unsafe fn create_plain(
    id: &Id,
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
) -> Result<(), Error> {
    // SAFETY: zero is a value of all fields, and the plain structure is the head of the other.
    let mut extended = unsafe {
        let mut extended: ibv_qp_init_attr_ex = std::mem::zeroed();
        (&raw mut extended).cast::<ibv_qp_init_attr>().write(*init);
        extended
    };
    // The mask lies where the plain structure is padded.
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd;
    // SAFETY: as the caller promises.
    unsafe { create(id, &mut extended) }?;
    init.cap = extended.cap;
    Ok(())
}

/// [`rdma_create_qp`] with extended attributes.
#[border(number)]
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    init: *mut ibv_qp_init_attr_ex,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        if init.is_null() {
            return Err(Error::Null("qp_init_attr"));
        }
        id.meet(Target::RdmaCreateQp)?;
        // SAFETY: not null, and a structure that nothing else accesses during the call.
        unsafe { create(&id, &mut *init) }?;
        Ok(0)
    });
    number("rdma_create_qp_ex", result)
}

/// # Safety
/// The pointers in `init` are null or handles.
unsafe fn create(id: &Id, init: &mut ibv_qp_init_attr_ex) -> Result<(), Error> {
    let device = id.device()?;
    let abi = id.abi();
    // SAFETY: the memory of an object is never freed.
    let (qp, send_cq, recv_cq, srq, pd) = unsafe {
        let abi = &*abi;
        (abi.qp, abi.send_cq, abi.recv_cq, abi.srq, abi.pd)
    };
    if !qp.is_null() {
        return Err(Error::refused(
            libc::EINVAL,
            "the id has a queue pair; destroy it first",
        ));
    }
    if init.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || init.pd.is_null() {
        init.comp_mask |= IBV_QP_INIT_ATTR_PD;
        init.pd = if pd.is_null() { device.domain()? } else { pd };
    }
    // SAFETY: a null pointer or the program's protection domain.
    if unsafe { init.pd.as_ref() }.is_none_or(|pd| pd.context != device.context) {
        return Err(Error::refused(
            libc::EINVAL,
            "pd is not one of the id's device",
        ));
    }
    for (given, own) in [(init.send_cq, send_cq), (init.recv_cq, recv_cq)] {
        if !given.is_null() && !own.is_null() && given != own {
            return Err(Error::refused(
                libc::EINVAL,
                "the id has another completion queue already",
            ));
        }
    }
    let wanted =
        |given: *mut ibv_cq, own: *mut ibv_cq, count| match given.is_null() && own.is_null() {
            true => count,
            false => 0,
        };
    let (sends, recvs) = (
        wanted(init.send_cq, send_cq, init.cap.max_send_wr),
        wanted(init.recv_cq, recv_cq, init.cap.max_recv_wr),
    );
    create_cqs(id, sends, recvs)?;
    // SAFETY: the memory of an object is never freed.
    unsafe {
        if init.send_cq.is_null() {
            init.send_cq = (*abi).send_cq;
        }
        if init.recv_cq.is_null() {
            init.recv_cq = (*abi).recv_cq;
        }
    }
    if init.srq.is_null() {
        init.srq = srq;
    }
    if id.qp_type() == IBV_QPT_XRC_RECV
        && (init.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || init.xrcd.is_null())
    {
        init.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        init.xrcd = device.xrc_domain()?;
    }
    // SAFETY: live handles.
    let qp = unsafe { verbs::create_qp(device.context, init) };
    let begun = match qp.is_null() {
        true => Err(Error::reported()),
        false => begin(id, qp).and_then(|()| ece::offer(id, qp)),
    };
    if let Err(error) = begun {
        if !qp.is_null() {
            // SAFETY: just made.
            unsafe { ibv_destroy_qp(qp) };
        }
        destroy_cqs(id);
        return Err(error);
    }
    // SAFETY: live objects.
    unsafe {
        (*abi).pd = init.pd;
        (*abi).qp = qp;
    }
    Ok(())
}

/// Completion queues with channels of their own for those counts that are not 0.
pub(crate) fn create_cqs(id: &Id, sends: u32, recvs: u32) -> Result<(), Error> {
    let abi = id.abi();
    // SAFETY: the memory of an object is never freed.
    unsafe {
        let made = create_cq(abi, sends).and_then(|(channel, cq)| {
            if !cq.is_null() {
                (*abi).send_cq_channel = channel;
                (*abi).send_cq = cq;
            }
            create_cq(abi, recvs)
        });
        match made {
            Ok((channel, cq)) if !cq.is_null() => {
                (*abi).recv_cq_channel = channel;
                (*abi).recv_cq = cq;
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => {
                destroy_cqs(id);
                Err(error)
            }
        }
    }
}

/// # Safety
/// `id` is a live object with a device.
unsafe fn create_cq(
    id: *mut rdma_cm_id,
    count: u32,
) -> Result<(*mut ferroce_ibverbs::abi::ibv_comp_channel, *mut ibv_cq), Error> {
    if count == 0 {
        return Ok((null_mut(), null_mut()));
    }
    // SAFETY: live handles.
    unsafe {
        let verbs = (*id).verbs;
        let channel = ibv_create_comp_channel(verbs);
        if channel.is_null() {
            return Err(Error::reported());
        }
        let count = c_int::try_from(count).unwrap_or(c_int::MAX);
        let cq = ibv_create_cq(verbs, count, id.cast::<c_void>(), channel, 0);
        if cq.is_null() {
            let error = Error::reported();
            ibv_destroy_comp_channel(channel);
            return Err(error);
        }
        Ok((channel, cq))
    }
}

/// Destroys the completion queues that were made for the identifier.
pub(crate) fn destroy_cqs(id: &Id) {
    let abi = id.abi();
    // SAFETY: live objects; those without a channel of the identifier are the program's.
    unsafe {
        for (cq, channel) in [
            (&mut (*abi).recv_cq, &mut (*abi).recv_cq_channel),
            (&mut (*abi).send_cq, &mut (*abi).send_cq_channel),
        ] {
            if !channel.is_null() {
                ibv_destroy_cq(std::mem::replace(cq, null_mut()));
                ibv_destroy_comp_channel(std::mem::replace(channel, null_mut()));
            }
        }
    }
}

/// Takes a fresh queue pair as far as it can go without the peer.
fn begin(id: &Id, qp: *mut ibv_qp) -> Result<(), Error> {
    to(id, qp, INIT)?;
    if id.is_datagram() {
        to(id, qp, RTR)?;
        to(id, qp, RTS)?;
    }
    Ok(())
}

/// Takes the identifier's queue pair, if it has one, to where it can send.
pub(crate) fn make_ready(id: &Id) -> Result<(), Error> {
    // SAFETY: the memory of an object is never freed.
    let qp = unsafe { (*id.abi()).qp };
    if qp.is_null() {
        return Ok(());
    }
    // What the peer may do is known only now.
    to(id, qp, INIT)?;
    ece::agree(id, qp)?;
    to(id, qp, RTR)?;
    to(id, qp, RTS)
}

fn to(id: &Id, qp: *mut ibv_qp, state: c_int) -> Result<(), Error> {
    let (mut attr, mask) = attributes(id, state);
    modify(qp, &mut attr, mask)
}

fn modify(qp: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: c_int) -> Result<(), Error> {
    // SAFETY: a live queue pair and a local variable.
    match unsafe { ibv_modify_qp(qp, attr, mask) } {
        0 => Ok(()),
        errno => Err(Error::Reported(errno)),
    }
}

/// Takes the identifier's queue pair, if it has one, to the error state.
pub(crate) fn to_error(id: &Id) -> Result<(), Error> {
    // SAFETY: the memory of an object is never freed.
    let qp = unsafe { (*id.abi()).qp };
    if qp.is_null() {
        return Ok(());
    }
    let mut attr = ibv_qp_attr {
        qp_state: ERR,
        ..ibv_qp_attr::default()
    };
    modify(qp, &mut attr, 1)
}

fn attributes(id: &Id, state: c_int) -> (ibv_qp_attr, c_int) {
    let reliable = id.qp_type() != IBV_QPT_UC;
    attr::step(&id.state(), id.is_datagram(), reliable, state)
}

/// The attributes and their mask with which a program takes a queue pair of its own to
/// `qp_attr.qp_state` (rdma_init_qp_attr(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        id.device()?;
        let qp_attr = check("qp_attr", qp_attr)?;
        let qp_attr_mask = check("qp_attr_mask", qp_attr_mask)?;
        // SAFETY: not null, and variables that nothing else accesses during the call.
        let state = unsafe { (*qp_attr).qp_state };
        if !(INIT..=RTS).contains(&state) {
            return Err(Error::invalid(
                "qp_state",
                state,
                "IBV_QPS_INIT, _RTR and _RTS",
            ));
        }
        let (attr, mask) = attributes(&id, state);
        // SAFETY: as above.
        unsafe {
            qp_attr.write(attr);
            qp_attr_mask.write(mask);
        }
        Ok(0)
    });
    number("rdma_init_qp_attr", result)
}

/// Destroys an identifier's queue pair and what was made for it (rdma_destroy_qp(3)).
#[border(nothing)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    let result = id::find(id).map(|id| {
        destroy(&id);
        0
    });
    number::<c_int>("rdma_destroy_qp", result);
}

pub(crate) fn destroy(id: &Id) {
    group::detach_all(id);
    // SAFETY: the memory of an object is never freed.
    let srq = unsafe {
        let qp = std::mem::replace(&mut (*id.abi()).qp, null_mut());
        if !qp.is_null() {
            ibv_destroy_qp(qp);
        }
        (*id.abi()).srq
    };
    // An XRC shared receive queue completes to the identifier's queue.
    if srq.is_null() || id.qp_type() != IBV_QPT_XRC_RECV {
        destroy_cqs(id);
    }
}

//! Membership of queue pairs in multicast groups.

use std::ffi::c_void;
use std::net::IpAddr;
use std::ptr::null_mut;

use ferroce_ibverbs::error::Error;
use ferroce_ibverbs::{ibv_attach_mcast, ibv_detach_mcast};

use crate::address;
use crate::id::{Group, Id};

/// Attaches the queue pair, if there is one, to a group that the program gets to know it is in.
pub(crate) fn attach(id: &Id, address: IpAddr) -> Result<(), Error> {
    let mut state = id.state();
    let group = state
        .groups
        .iter_mut()
        .find(|group| group.address == address);
    // SAFETY: the memory of an object is never freed.
    let qp = unsafe { (*id.abi()).qp };
    let Some(group) = group.filter(|group| group.receives && !qp.is_null()) else {
        return Ok(());
    };
    let mgid = address::gid(address);
    // SAFETY: a live queue pair and a local variable.
    match unsafe { ibv_attach_mcast(qp, &raw const mgid, 0) } {
        0 => {
            group.attached = true;
            Ok(())
        }
        errno => Err(Error::Reported(errno)),
    }
}

/// What the program gave with a group.
pub(crate) fn context(id: &Id, address: IpAddr) -> *const c_void {
    let state = id.state();
    let mut groups = state.groups.iter();
    let group = groups.find(|group| group.address == address);
    group.map_or(null_mut(), |group| group.context.0)
}

/// Detaches the queue pair, which is about to be destroyed, from its groups.
pub(crate) fn detach_all(id: &Id) {
    for group in &mut id.state().groups {
        // It is attached.
        let _ = detach(id, group);
    }
}

pub(crate) fn detach(id: &Id, group: &mut Group) -> Result<(), Error> {
    if !std::mem::take(&mut group.attached) {
        return Ok(());
    }
    let mgid = address::gid(group.address);
    // SAFETY: a live object; who was attached has a queue pair.
    match unsafe { ibv_detach_mcast((*id.abi()).qp, &raw const mgid, 0) } {
        0 => Ok(()),
        errno => Err(Error::Reported(errno)),
    }
}

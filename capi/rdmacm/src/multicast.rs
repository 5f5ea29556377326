//! Multicast groups. A group's GID is its address, as that of a RoCE v2 port is.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_abi::pointer::read;
use ferroce_ibverbs::error::{Error, number};
use libc::sockaddr;

use crate::abi::*;
use crate::address;
use crate::group::detach;
use crate::id::{self, Group, GroupContext, Id, Incoming, Step, wrong_step};
use crate::wait::complete;

/// Has an identifier's queue pair get what is sent to a multicast group (rdma_join_multicast(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    let result = id::find(id).and_then(|id| {
        // SAFETY: null or a socket address of the family it names, valid during the call.
        let address = unsafe { address::read("addr", addr) }?;
        join(&id, address.ip(), true, context)
    });
    number("rdma_join_multicast", result)
}

/// [`rdma_join_multicast`], perhaps only to send (rdma_join_multicast_ex(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    const ADDRESS_AND_FLAGS: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    let result = id::find(id).and_then(|id| {
        // SAFETY: null or a structure of the program, valid during the call.
        let attr = unsafe { read("mc_join_attr", mc_join_attr)? };
        if attr.comp_mask != ADDRESS_AND_FLAGS {
            let allowed = "RDMA_CM_JOIN_MC_ATTR_ADDRESS and _JOIN_FLAGS, both";
            return Err(Error::invalid("comp_mask", attr.comp_mask, allowed));
        }
        let receives = match attr.join_flags {
            RDMA_MC_JOIN_FLAG_FULLMEMBER => true,
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => false,
            flags => {
                let allowed = "RDMA_MC_JOIN_FLAG_FULLMEMBER and _SENDONLY_FULLMEMBER";
                return Err(Error::invalid("join_flags", flags, allowed));
            }
        };
        // SAFETY: as above.
        let address = unsafe { address::read("addr", attr.addr) }?;
        join(&id, address.ip(), receives, context)
    });
    number("rdma_join_multicast_ex", result)
}

fn join(
    id: &Arc<Id>,
    address: IpAddr,
    receives: bool,
    context: *mut c_void,
) -> Result<c_int, Error> {
    let device = id.device()?;
    {
        let mut state = id.state();
        if ![Step::Bound, Step::AddressResolved].contains(&state.step) {
            return Err(wrong_step(
                "join a group",
                state.step,
                "Bound and AddressResolved",
            ));
        }
        if !id.is_datagram() {
            let what = "groups are for datagrams; make the id in port space RDMA_PS_UDP";
            return Err(Error::refused(libc::EINVAL, what));
        }
        if !address.is_multicast() || address.is_ipv4() != device.address().is_ipv4() {
            let what = format!("{address} is not a multicast address of the device's family");
            return Err(Error::refused(libc::EINVAL, what));
        }
        if state.groups.iter().any(|group| group.address == address) {
            let what = format!("the id is a member of {address} already");
            return Err(Error::refused(libc::EADDRINUSE, what));
        }
        state.groups.push(Group {
            address,
            receives,
            attached: false,
            context: GroupContext(context),
        });
    }
    id.push(Incoming::Join { address });
    complete(id)
}

/// Leaves a multicast group (rdma_leave_multicast(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let result = id::find(id).and_then(|id| {
        // SAFETY: null or a socket address of the family it names, valid during the call.
        let address = unsafe { address::read("addr", addr) }?.ip();
        let mut state = id.state();
        let position = state
            .groups
            .iter()
            .position(|group| group.address == address);
        let Some(position) = position else {
            let what = format!("the id is not a member of {address}");
            return Err(Error::refused(libc::EADDRNOTAVAIL, what));
        };
        detach(&id, &mut state.groups[position])?;
        state.groups.swap_remove(position);
        // Nor does the program hear any more that it has joined.
        id.queue().withdraw(|queued| {
            let joined = matches!(queued.what, Incoming::Join { address: of } if of == address);
            joined && Arc::ptr_eq(&queued.id, &id)
        });
        Ok(0)
    });
    number("rdma_leave_multicast", result)
}

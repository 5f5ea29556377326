//! Creating, destroying and moving identifiers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_abi::border;
use ferroce_abi::pointer::check;
use ferroce_fault::Target;
use ferroce_ibverbs::abi::{IBV_QPT_RC, IBV_QPT_UD};
use ferroce_ibverbs::error::{Error, number};
use ferroce_ibverbs::faults;
use ferroce_wire::cm::PortSpace;

use crate::abi::{RDMA_PS_IPOIB, RDMA_PS_UDP, rdma_cm_id, rdma_event_channel};
use crate::channel;
use crate::id::{IDS, Id, State, find, make};
use crate::process::lock;

/// Makes an identifier (rdma_create_id(3)). Without a channel each call on it waits for its event.
#[border(number)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    let qp_type = match ps {
        RDMA_PS_UDP | RDMA_PS_IPOIB => IBV_QPT_UD,
        _ => IBV_QPT_RC,
    };
    let result = check("id", id).map_err(Error::from).and_then(|id| {
        faults::meet_early(Target::RdmaCreateId)?;
        let made = create(channel, context, ps, qp_type)?;
        // SAFETY: not null, and a variable that may be written to.
        unsafe { *id = made.abi() };
        Ok(0)
    });
    number("rdma_create_id", result)
}

pub(crate) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: c_int,
    qp_type: c_int,
) -> Result<Arc<Id>, Error> {
    if !PortSpace::ALL
        .into_iter()
        .any(|space| c_int::from(space as u16) == ps)
    {
        return Err(Error::invalid(
            "ps",
            ps,
            "RDMA_PS_TCP, _UDP, _IPOIB and _IB",
        ));
    }
    let sync = channel.is_null();
    let channel = if sync { channel::create()? } else { channel };
    let made = make(
        channel,
        channel::find(channel)?,
        context,
        ps,
        qp_type,
        State::default(),
    );
    made.sync.store(sync, Ordering::Release);
    Ok(made)
}

/// Destroys an identifier, once its events are acknowledged (rdma_destroy_id(3)). A peer that still
/// counts on it is told.
#[border(number)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    number("rdma_destroy_id", find(id).map(|id| destroy(&id)))
}

pub(crate) fn destroy(id: &Arc<Id>) -> c_int {
    let (device, comm, listens) = {
        let mut state = id.state();
        (
            state.device,
            state.comm.take(),
            std::mem::take(&mut state.listens),
        )
    };
    for (device, service) in listens {
        // It does listen.
        let _ = device.with(|hca, _| hca.cm_mut().unlisten(service));
        id.unserve(device, service);
    }
    if let (Some(device), Some(comm)) = (device, comm) {
        // The device may have forgotten it first.
        let _ = device.with(|hca, now| hca.cm_mut().destroy(now, comm));
        id.unfollow(device, comm);
    }
    id.withdraw();
    channel::drop_event(id);
    id.wait_acknowledged();
    let pointer = id.abi();
    if id.is_sync() {
        // SAFETY: the memory of an object is never freed.
        channel::destroy(unsafe { (*pointer).channel });
    }
    id.state().claims.clear();
    IDS.remove(pointer);
    0
}

/// Moves an identifier and its events to another channel, or to one of its own
/// (rdma_migrate_id(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    number(
        "rdma_migrate_id",
        find(id).and_then(|id| migrate(&id, channel)),
    )
}

pub(crate) fn migrate(id: &Arc<Id>, to: *mut rdma_event_channel) -> Result<c_int, Error> {
    let sync = to.is_null();
    let to = if sync { channel::create()? } else { to };
    let fresh = channel::find(to)?;
    {
        let mut queue = lock(&id.queue);
        for queued in queue.withdraw(|queued| Arc::ptr_eq(&queued.id, id)) {
            fresh.push(queued);
        }
        *queue = fresh;
    }
    let was_sync = id.sync.swap(sync, Ordering::AcqRel);
    // SAFETY: the memory of an object is never freed.
    let from = unsafe { std::mem::replace(&mut (*id.abi()).channel, to) };
    if was_sync {
        channel::drop_event(id);
    }
    id.wait_acknowledged();
    if was_sync {
        channel::destroy(from);
    }
    Ok(0)
}

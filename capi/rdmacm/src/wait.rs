//! Waiting for events.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_abi::pointer::check;
use ferroce_fault::Target;
use ferroce_ibverbs::error::Error;
use ferroce_ibverbs::faults;
use ferroce_ibverbs::wait;

use crate::abi::{RDMA_CM_EVENT_REJECTED, rdma_cm_event, rdma_event_channel};
use crate::channel;
use crate::event::Delivery;
use crate::id::{Id, Queued};

/// Waits for the next event of a channel, or says `EAGAIN` if its descriptor does not block
/// (rdma_get_cm_event(3)).
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let queue = || {
        check("event", event)?;
        faults::meet_early(Target::RdmaGetCmEvent)?;
        channel::listen(channel)
    };
    let deliver = |queued: Arc<Queued>| match tell(&queued) {
        Some(delivery) => {
            // SAFETY: not null, and a variable that may be written to.
            unsafe { *event = delivery };
            Ok(true)
        }
        None => Ok(false),
    };
    wait("rdma_get_cm_event", queue, seen, deliver)
}

/// The next event of a channel, for calls that wait for it and for nothing else.
pub(crate) fn next(channel: *const rdma_event_channel) -> Result<*mut rdma_cm_event, Error> {
    loop {
        let queued = channel::listen(channel)?.take(seen)?;
        if let Some(delivery) = tell(&queued) {
            return Ok(delivery);
        }
    }
}

fn seen(queued: &Arc<Queued>) -> Arc<Queued> {
    queued.id.report();
    Arc::clone(queued)
}

/// The event as the program gets it, if there is something for the program in it.
fn tell(queued: &Queued) -> Option<*mut rdma_cm_event> {
    let Some(Delivery { mut abi, private }) = Delivery::of(queued) else {
        queued.id.acknowledge();
        return None;
    };
    let private: Box<[u8]> = private.into();
    abi.point_to(&private);
    Some(channel::report(abi.0, Arc::clone(&queued.id), private))
}

/// The end of a call that leads to an event: on a synchronous identifier it waits for it.
pub(crate) fn complete(id: &Arc<Id>) -> Result<c_int, Error> {
    if !id.is_sync() {
        return Ok(0);
    }
    channel::drop_event(id);
    // SAFETY: the memory of an object is never freed.
    let channel = unsafe { (*id.abi()).channel };
    let event = next(channel)?;
    // SAFETY: live objects, the event until it is acknowledged.
    let (kind, status) = unsafe {
        (*id.abi()).event = event;
        ((*event).event, (*event).status)
    };
    match status {
        0 => Ok(0),
        _ if kind == RDMA_CM_EVENT_REJECTED => Err(Error::refused(
            libc::ECONNREFUSED,
            "the peer rejected the connection",
        )),
        status => Err(Error::refused(
            status.abs(),
            "the connection manager reported an error",
        )),
    }
}

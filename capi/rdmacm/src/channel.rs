//! Event channels.

use std::ffi::c_int;
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_ibverbs::arena::Arena;
use ferroce_ibverbs::error::{Error, number, pointer, status};
use ferroce_ibverbs::{EventQueue, wait};

use crate::abi::{RDMA_CM_EVENT_REJECTED, rdma_cm_event, rdma_event_channel};
use crate::device::open_devices;
use crate::event::{Delivery, Incoming};
use crate::id::{Id, place, refused};

/// Events that wait for the program.
pub(crate) type Queue = EventQueue<Arc<Queued>>;

/// An event that waits for the program.
pub(crate) struct Queued {
    pub(crate) id: Arc<Id>,
    pub(crate) what: Incoming,
}

static CHANNELS: Arena<rdma_event_channel, Arc<Queue>> = Arena::new("event channel");

/// The library's part of an event: who waits for its acknowledgement, and the private data that
/// the program's part points to.
struct Reported {
    id: Arc<Id>,
    _private: Box<[u8]>,
}

static EVENTS: Arena<rdma_cm_event, Reported> = Arena::new("event");

/// The events of a channel.
pub(crate) fn find(channel: *const rdma_event_channel) -> Result<Arc<Queue>, Error> {
    Ok(Arc::clone(CHANNELS.find(channel)?.own()))
}

/// Makes an event channel (rdma_create_event_channel(3)).
#[border(pointer)]
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer("rdma_create_event_channel", create())
}

pub(crate) fn create() -> Result<*mut rdma_event_channel, Error> {
    let (queue, public) = EventQueue::new()?;
    let fd = public.into_raw_fd();
    Ok(CHANNELS.insert(rdma_event_channel { fd }, Arc::new(queue)))
}

/// Destroys an event channel (rdma_destroy_event_channel(3)). Identifiers that report to it keep
/// their events to themselves.
#[border(nothing)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    status(
        "rdma_destroy_event_channel",
        find(channel).map(|_| destroy(channel)),
    );
}

pub(crate) fn destroy(channel: *mut rdma_event_channel) {
    let Ok(object) = CHANNELS.find(channel) else {
        return;
    };
    object.own().await_reader();
    // SAFETY: a live object.
    let fd = unsafe { (*object.abi()).fd };
    if CHANNELS.remove(channel).is_some() {
        // SAFETY: the descriptor was made for the program and is its channel's to close.
        unsafe { libc::close(fd) };
    }
}

/// Waits for the next event of a channel, or says `EAGAIN` if its descriptor does not block
/// (rdma_get_cm_event(3)).
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let queue = || {
        place("event", event)?;
        listen(channel)
    };
    let deliver = |queued: Arc<Queued>| match tell(&queued) {
        Some(delivery) => {
            // SAFETY: the program's own variable, and not null.
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
        let queued = listen(channel)?.take(seen)?;
        if let Some(delivery) = tell(&queued) {
            return Ok(delivery);
        }
    }
}

/// The queue of a channel whose next event somebody waits for.
fn listen(channel: *const rdma_event_channel) -> Result<Arc<Queue>, Error> {
    let object = CHANNELS.find(channel)?;
    // Whoever has closed the descriptor must not wait on the library's own copy of it.
    // SAFETY: a live object, and a call that only looks.
    if unsafe { libc::fcntl((*object.abi()).fd, libc::F_GETFD) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    for device in open_devices() {
        device.rest();
    }
    Ok(Arc::clone(object.own()))
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
    let id = Arc::clone(&queued.id);
    let reported = Reported {
        id,
        _private: private,
    };
    Some(EVENTS.insert(abi.0, reported))
}

/// Gives an event back (rdma_ack_cm_event(3)).
#[border(number)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    number("rdma_ack_cm_event", acknowledge(event))
}

pub(crate) fn acknowledge(event: *mut rdma_cm_event) -> Result<c_int, Error> {
    let reported = EVENTS.remove(event).ok_or(Error::Handle("event"))?;
    reported.id.acknowledge();
    Ok(0)
}

/// The end of a call that leads to an event: on a synchronous identifier it waits for it.
pub(crate) fn complete(id: &Arc<Id>) -> Result<c_int, Error> {
    if !id.is_sync() {
        return Ok(0);
    }
    id.drop_event();
    // SAFETY: a live object.
    let channel = unsafe { (*id.abi()).channel };
    let event = next(channel)?;
    // SAFETY: live objects, the event until it is acknowledged.
    let (kind, status) = unsafe {
        (*id.abi()).event = event;
        ((*event).event, (*event).status)
    };
    match status {
        0 => Ok(0),
        _ if kind == RDMA_CM_EVENT_REJECTED => Err(refused(
            libc::ECONNREFUSED,
            "the peer rejected the connection",
        )),
        status => Err(refused(
            status.abs(),
            "the connection manager reported an error",
        )),
    }
}

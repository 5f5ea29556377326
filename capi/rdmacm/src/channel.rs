//! Event channels.

use std::ffi::c_int;
use std::os::fd::IntoRawFd as _;
use std::ptr::null_mut;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_ibverbs::EventQueue;
use ferroce_ibverbs::arena::Arena;
use ferroce_ibverbs::error::{Error, number, pointer, status};

use crate::abi::{rdma_cm_event, rdma_event_channel};
use crate::device::open_devices;
use crate::id::{Id, Queue};

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
    // SAFETY: the memory of an object is never freed.
    let fd = unsafe { (*object.abi()).fd };
    if CHANNELS.remove(channel).is_some() {
        // SAFETY: the descriptor was made for the program and is its channel's to close.
        unsafe { libc::close(fd) };
    }
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

/// The queue of a channel whose next event a thread waits for.
pub(crate) fn listen(channel: *const rdma_event_channel) -> Result<Arc<Queue>, Error> {
    let object = CHANNELS.find(channel)?;
    // A program that has closed the descriptor must not wait on the library's own copy of it.
    // SAFETY: a live object, and a call that only looks.
    if unsafe { libc::fcntl((*object.abi()).fd, libc::F_GETFD) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    for device in open_devices() {
        device.rest();
    }
    Ok(Arc::clone(object.own()))
}

/// An event for the program, whose private data lives as long.
pub(crate) fn report(event: rdma_cm_event, id: Arc<Id>, private: Box<[u8]>) -> *mut rdma_cm_event {
    let reported = Reported {
        id,
        _private: private,
    };
    EVENTS.insert(event, reported)
}

/// Acknowledges the event that a synchronous call has left.
pub(crate) fn drop_event(id: &Id) {
    let id = id.abi();
    // SAFETY: the memory of an object is never freed.
    let event = unsafe { std::mem::replace(&mut (*id).event, null_mut()) };
    if !event.is_null() {
        // The program may have acknowledged it itself.
        let _ = acknowledge(event);
    }
}

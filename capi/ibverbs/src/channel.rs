//! Completion channels.

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use ferroce_abi::border;
use ferroce_abi::pointer::check;

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::arena::{Arena, Object};
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};
use crate::events::Announced;
use crate::queue::{EventQueue, wait};

/// A completion channel.
pub(crate) struct Channel {
    context: ContextRef,
    queue: Arc<EventQueue<Announced>>,
    /// The program's descriptor.
    fd: c_int,
}

static CHANNELS: Arena<ibv_comp_channel, Channel> = Arena::new("completion channel");

/// A completion channel in use by completion queues.
pub(crate) fn acquire(
    pointer: *mut ibv_comp_channel,
    context: &ContextRef,
) -> Result<Arc<EventQueue<Announced>>, Error> {
    let channel = CHANNELS.find(pointer)?;
    context::check_same("completion channel", &channel.own().context, context)?;
    count_users(pointer, 1);
    Ok(Arc::clone(&channel.own().queue))
}

/// A completion queue does without its channel from now on.
pub(crate) fn release(pointer: *mut ibv_comp_channel) {
    count_users(pointer, -1);
}

fn count_users(pointer: *mut ibv_comp_channel, by: c_int) {
    let Ok(channel) = CHANNELS.find(pointer) else {
        return;
    };
    users(channel).fetch_add(by, Ordering::Relaxed);
}

/// How many completion queues use a channel.
fn users(channel: &Object<ibv_comp_channel, Channel>) -> &AtomicI32 {
    // SAFETY: an aligned field of an object, whose memory is never freed; programs only read it.
    unsafe { AtomicI32::from_ptr(&raw mut (*channel.abi()).refcnt) }
}

/// Makes a completion channel (ibv_create_comp_channel(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    pointer("ibv_create_comp_channel", create(context))
}

fn create(context: *mut ibv_context) -> Result<*mut ibv_comp_channel, Error> {
    let owner = context::find(context)?;
    let (queue, public) = EventQueue::new()?;
    let fd = public.into_raw_fd();
    let abi = ibv_comp_channel {
        context,
        fd,
        refcnt: 0,
    };
    let own = Channel {
        context: owner,
        queue: Arc::new(queue),
        fd,
    };
    Ok(CHANNELS.insert(abi, own))
}

/// Destroys a completion channel that no completion queue uses (ibv_create_comp_channel(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    status("ibv_destroy_comp_channel", destroy(channel))
}

fn destroy(pointer: *mut ibv_comp_channel) -> Result<(), Error> {
    let channel = CHANNELS.find(pointer)?;
    if users(channel).load(Ordering::Relaxed) > 0 {
        return Err(Error::Busy("completion queues report to the channel"));
    }
    if let Some(own) = CHANNELS.remove(pointer) {
        // SAFETY: the channel's descriptor, which is closed once: the channel has left the arena.
        unsafe { libc::close(own.fd) };
    }
    Ok(())
}

/// The channels of a context, when it closes.
pub(crate) fn close(context: &ContextRef) {
    for channel in CHANNELS.all() {
        if Arc::ptr_eq(&channel.own().context, context) {
            // Its queues are gone; what remains is a descriptor.
            let _ = destroy(channel.abi());
        }
    }
}

/// Waits for an event of a completion channel (ibv_get_cq_event(3)).
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let queue = || {
        check("cq", cq)?;
        check("cq_context", cq_context)?;
        let Channel { context, queue, .. } = CHANNELS.find(channel)?.own();
        context.adapter.live()?.rest();
        Ok(Arc::clone(queue))
    };
    let seen = |announced: &Announced| {
        announced.report();
        announced.cq
    };
    let deliver = |address| {
        let found = address as *mut ibv_cq;
        // SAFETY: not null, and variables that may be written to; the memory of a completion queue is
        // never freed.
        unsafe {
            *cq = found;
            *cq_context = (*found).cq_context;
        }
        Ok(true)
    };
    wait("ibv_get_cq_event", queue, seen, deliver)
}

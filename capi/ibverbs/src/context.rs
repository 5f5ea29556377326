//! Contexts: a device as one opener sees it.

use std::ffi::c_int;
use std::io;
use std::mem::offset_of;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;
use std::thread::available_parallelism;

use ferroce_abi::border;
use ferroce_abi::pointer::change;

use crate::abi::{
    IBV_VALUES_MASK_RAW_CLOCK, VERBS_ABI_IS_EXTENDED, ibv_context, ibv_context_ops, ibv_device,
    ibv_values_ex, verbs_context,
};
use crate::adapter::{self, Adapter};
use crate::arena::Arena;
use crate::error::{Error, pointer, status};
use crate::events::{AsyncQueue, close_channels};
use crate::{ah, caps, cq, cq_ex, dm, domain, import, mr, mw, pd, port, post, qp, srq, xrc};

/// What belongs to a context.
pub(crate) struct Context {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) events: Arc<AsyncQueue>,
    /// It was made by a command descriptor of another process.
    pub(crate) foreign: bool,
    async_fd: c_int,
}

/// The context that an object was made in.
pub(crate) type ContextRef = Arc<Context>;

static CONTEXTS: Arena<verbs_context, ContextRef> = Arena::new("context");

/// The context behind a program's pointer.
pub(crate) fn find(context: *const ibv_context) -> Result<ContextRef, Error> {
    CONTEXTS
        .find(around(context))
        .map(|object| Arc::clone(object.own()))
}

/// Refuses an object, called `name` in the message, of another context than the one it is to be used
/// in: the numbers of objects mean something on their own device only.
#[inline]
pub(crate) fn check_same(
    name: &'static str,
    of_object: &ContextRef,
    used_in: &ContextRef,
) -> Result<(), Error> {
    match Arc::ptr_eq(of_object, used_in) {
        true => Ok(()),
        false => Err(Error::OtherContext(name)),
    }
}

/// The structure whose last field a program points to.
fn around(context: *const ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast_mut()
        .cast()
}

/// Opens a device (ibv_open_device(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer("ibv_open_device", open(device))
}

fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Error> {
    let listed = adapter::find(device)?;
    let adapter = Adapter::attach(listed)?;
    let command = import::command_fd(&adapter);
    make(adapter, false, || command)
}

/// Makes a context; `command` is called last of all that can fail, and gives it its descriptor.
pub(crate) fn make(
    adapter: Arc<Adapter>,
    foreign: bool,
    command: impl FnOnce() -> io::Result<OwnedFd>,
) -> Result<*mut ibv_context, Error> {
    let (events, public) = AsyncQueue::new()?;
    let command = command()?;
    let events = Arc::new(events);
    adapter::write(&adapter.routes.contexts).push(Arc::downgrade(&events));
    let async_fd = public.into_raw_fd();
    let context = ibv_context {
        device: adapter.listed.pointer(),
        ops: operations(),
        cmd_fd: command.into_raw_fd(),
        async_fd,
        num_comp_vectors: available_parallelism().map_or(1, |n| n.get() as c_int),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: with_exposed_provenance_mut(VERBS_ABI_IS_EXTENDED),
    };
    let own = Arc::new(Context {
        adapter,
        events,
        foreign,
        async_fd,
    });
    let outer = CONTEXTS.insert(extended(context), own);
    // SAFETY: a pointer to an object, whose memory is never freed.
    Ok(unsafe { &raw mut (*outer).context })
}

fn operations() -> ibv_context_ops {
    ibv_context_ops {
        compat_0: [null_mut(); 7],
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        compat_create_cq: null_mut(),
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        compat_1: [null_mut(); 7],
        post_srq_recv: Some(srq::post_srq_recv),
        compat_2: [null_mut(); 4],
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        compat_3: [null_mut(); 5],
    }
}

fn extended(context: ibv_context) -> verbs_context {
    verbs_context {
        query_port: Some(port::query_port),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        read_counters: null_mut(),
        attach_counters_point_flow: null_mut(),
        create_counters: null_mut(),
        destroy_counters: null_mut(),
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        modify_flow_action_esp: null_mut(),
        destroy_flow_action: null_mut(),
        create_flow_action_esp: null_mut(),
        modify_qp_rate_limit: null_mut(),
        alloc_parent_domain: Some(domain::alloc_parent_domain),
        dealloc_td: Some(domain::dealloc_td),
        alloc_td: Some(domain::alloc_td),
        modify_cq: None,
        post_srq_ops: null_mut(),
        destroy_rwq_ind_table: null_mut(),
        create_rwq_ind_table: null_mut(),
        destroy_wq: null_mut(),
        modify_wq: null_mut(),
        create_wq: null_mut(),
        query_rt_values: Some(query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        priv_: null_mut(),
        query_device_ex: Some(caps::query_device_ex),
        destroy_flow: null_mut(),
        placeholder_2: null_mut(),
        create_flow: null_mut(),
        placeholder_1: null_mut(),
        open_qp: Some(xrc::open_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        placeholder_3: 0,
        sz: size_of::<verbs_context>(),
        context,
    }
}

/// Closes a context and destroys on the device what was made in it (ibv_open_device(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    status("ibv_close_device", close(context))
}

fn close(context: *mut ibv_context) -> Result<(), Error> {
    let own = find(context)?;
    qp::close(&own);
    srq::close(&own);
    xrc::close(&own);
    ah::close(&own);
    mw::close(&own);
    mr::close(&own);
    dm::close(&own);
    cq::close(&own);
    pd::close(&own);
    domain::close(&own);
    close_channels(&own);
    let outer = around(context);
    // SAFETY: the memory of an object is never freed.
    let command = unsafe { (*outer).context.cmd_fd };
    if CONTEXTS.remove(outer).is_some() {
        // SAFETY: descriptors of the context, which are closed once: it has left the arena.
        unsafe {
            libc::close(command);
            libc::close(own.async_fd);
        }
    }
    Ok(())
}

/// What the device's clock shows (ibv_query_rt_values_ex(3)): as with other cards, the counter that
/// timestamps are taken from, all of it in `tv_nsec`.
#[border(status)]
unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    let result = find(context).and_then(|own| {
        // SAFETY: null or a structure of the program that nothing else accesses during the call.
        let values = unsafe { change("values", values)? };
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Error::Unsupported("a value in comp_mask"));
        }
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = own.adapter.device.now().as_nanos() as _;
        }
        Ok(())
    });
    status("ibv_query_rt_values_ex", result)
}

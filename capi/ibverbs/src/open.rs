//! Opening and closing devices, and the tables of calls that programs find in a context.

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Write};
use std::mem::zeroed;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;
use std::thread::available_parallelism;

use ferroce_abi::border;
use ferroce_abi::pointer::change;

use crate::abi::{
    IBV_VALUES_MASK_RAW_CLOCK, VERBS_ABI_IS_EXTENDED, ibv_context, ibv_context_ops, ibv_device,
    ibv_values_ex, verbs_context,
};
use crate::adapter::Adapter;
use crate::context::{CONTEXTS, Context, around, find};
use crate::error::{Error, pointer, status};
use crate::events::AsyncQueue;
use crate::routes::write;
use crate::{
    ah, caps, channel, cq, cq_ex, devices, dm, fork, mr, mw, pd, port, post, qp, qp_ex, srq, xrc,
    xrc_qp,
};

/// Opens a device (ibv_open_device(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer("ibv_open_device", open(device))
}

pub(crate) fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Error> {
    let listed = devices::find(device)?;
    fork::watch();
    let adapter = Adapter::attach(listed)?;
    let command = command_fd(&adapter);
    make(adapter, false, || command)
}

/// Opens the device of a context by a copy of its `cmd_fd`, which the new context closes
/// (ibv_import_device(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    pointer("ibv_import_device", import_device(cmd_fd))
}

fn import_device(cmd_fd: c_int) -> Result<*mut ibv_context, Error> {
    if cmd_fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF).into());
    }
    let (name, identity) = read_command(cmd_fd)?;
    let listed = devices::named(&name)?;
    fork::watch();
    let own = Adapter::of_identity(listed, identity);
    let foreign = own.is_none();
    let adapter = own.map_or_else(|| Adapter::attach(listed), Ok)?;
    make(adapter, foreign, || {
        // SAFETY: the program gives the descriptor away with a call that succeeds.
        Ok(unsafe { OwnedFd::from_raw_fd(cmd_fd) })
    })
}

/// Makes a context; `command` is called last of all that can fail, and gives it its descriptor.
fn make(
    adapter: Arc<Adapter>,
    foreign: bool,
    command: impl FnOnce() -> io::Result<OwnedFd>,
) -> Result<*mut ibv_context, Error> {
    let (events, public) = AsyncQueue::new()?;
    let command = command()?;
    let events = Arc::new(events);
    write(&adapter.routes.contexts).push(Arc::downgrade(&events));
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
    // SAFETY: zero is valid for pointers and absent functions.
    let absent: ibv_context_ops = unsafe { zeroed() };
    ibv_context_ops {
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(post::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        post_srq_recv: Some(srq::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        ..absent
    }
}

fn extended(context: ibv_context) -> verbs_context {
    // SAFETY: zero is valid for numbers, pointers, mutexes and absent functions.
    let absent: verbs_context = unsafe { zeroed() };
    verbs_context {
        query_port: Some(port::query_port),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        query_rt_values: Some(query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        query_device_ex: Some(caps::query_device_ex),
        open_qp: Some(xrc_qp::open_qp),
        create_qp_ex: Some(qp_ex::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        sz: size_of::<verbs_context>(),
        context,
        ..absent
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
    pd::close_threads(&own);
    channel::close(&own);
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
/// What a command descriptor starts with.
const MARK: &str = "ferroce context of";

/// A command descriptor: a file that says which device of which process it belongs to.
fn command_fd(adapter: &Adapter) -> io::Result<OwnedFd> {
    // SAFETY: a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(c"ferroce-context".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh, and has no other owner.
    let mut file = unsafe { File::from_raw_fd(fd) };
    let name = &adapter.listed.spec.name;
    writeln!(file, "{MARK} {name} {:x}", adapter.identity)?;
    Ok(file.into())
}

/// Device and identity in a command descriptor.
fn read_command(fd: c_int) -> Result<(String, u64), Error> {
    let mut text = [0; 256];
    // SAFETY: the file is never dropped, so the descriptor is not closed; one that is not open only
    // makes the read fail.
    let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let length = file.read_at(&mut text, 0)?;
    parse_command(&text[..length]).ok_or_else(|| {
        let allowed = "copies of cmd_fd of a context of this library";
        Error::invalid("cmd_fd", fd, allowed)
    })
}

fn parse_command(text: &[u8]) -> Option<(String, u64)> {
    let line = std::str::from_utf8(text).ok()?;
    let (name, identity) = line.strip_prefix(MARK)?.trim().split_once(' ')?;
    let identity = u64::from_str_radix(identity, 16).ok()?;
    Some((name.to_owned(), identity))
}

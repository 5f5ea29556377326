//! Completion queues.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::net::IpAddr;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ferroce_abi::border;
use ferroce_abi::border::uncancelled;
use ferroce_abi::pointer::check;
use ferroce_device::{Completion, CqId, CqInit, Notify, WcFlags, WcOpcode};
use ferroce_fault::{Effect, Occasion, Target};
use ferroce_runtime::Device;
use ferroce_wire::Qpn;

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};
use crate::arena::{Arena, Object};
use crate::channel;
use crate::context::{self, ContextRef};
use crate::error::{Error, number, pointer, status};
use crate::events::{CompQueue, Reported, acknowledge, wait_acknowledged};
use crate::faults;
use crate::late::Late;
use crate::routes::{AsyncRoute, read, write};

pub(crate) struct Cq {
    pub(crate) context: ContextRef,
    pub(crate) id: CqId,
    channel: *mut ibv_comp_channel,
    /// Announcements and asynchronous events that the program has received.
    pub(crate) announced: Reported,
    pub(crate) reported: Reported,
    /// The program asked for an event and has polled no completion since.
    armed: AtomicBool,
    /// Completions that fault rules hold back.
    late: Arc<Late>,
    /// The completion that `ibv_start_poll` and its like are at.
    pub(crate) poller: Poller,
}

impl Cq {
    /// A poll would find nothing, and the program does not mean to sleep after it.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |device: &Device| device.is_idle(self.id);
        !self.armed.load(Ordering::Relaxed)
            && self.context.adapter.live().is_ok_and(is_idle)
            && !self.late.is_any()
            && !faults::is_wanted(Target::PollCq)
    }
}

// SAFETY: the channel's address is only compared and looked up.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

/// The completion that a program reads, from its `ibv_start_poll` to its `ibv_end_poll`.
pub(crate) struct Poller {
    /// Several threads may poll, one after the other.
    shared: bool,
    /// A thread is between the two.
    busy: AtomicBool,
    pub(crate) current: UnsafeCell<Completion>,
}

// SAFETY: only the thread that has set `busy` accesses `current`; on a queue that is not shared the
// program has promised that there is one thread.
unsafe impl Sync for Poller {}

impl Poller {
    pub(crate) fn new(shared: bool) -> Self {
        let nothing = Completion::success(0, WcOpcode::Send, Qpn::new(0));
        Self {
            shared,
            busy: AtomicBool::new(false),
            current: UnsafeCell::new(nothing),
        }
    }

    pub(crate) fn enter(&self) {
        while self.shared && self.busy.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    pub(crate) fn leave(&self) {
        if self.shared {
            self.busy.store(false, Ordering::Release);
        }
    }
}

static CQS: Arena<ibv_cq_ex, Cq> = Arena::new("completion queue");

pub(crate) fn find(cq: *const ibv_cq) -> Result<&'static Object<ibv_cq_ex, Cq>, Error> {
    CQS.find(cq.cast())
}

/// A completion queue of the context.
pub(crate) fn find_in(cq: *const ibv_cq, context: &ContextRef) -> Result<CqId, Error> {
    let cq = find(cq)?.own();
    context::check_same("completion queue", &cq.context, context)?;
    Ok(cq.id)
}

/// [`find`] for the data path.
#[inline]
pub(crate) fn get(cq: *const ibv_cq_ex) -> Result<&'static Object<ibv_cq_ex, Cq>, Error> {
    CQS.get(cq)
}

/// What a program asks of a completion queue.
pub(crate) struct Wanted {
    pub(crate) init: CqInit,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
    /// One thread alone will poll.
    pub(crate) single_threaded: bool,
}

/// Makes a completion queue (ibv_create_cq(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let made = (|| {
        let wanted = Wanted {
            init: CqInit {
                capacity: entries(cqe)?,
                ignore_overrun: false,
            },
            cq_context,
            channel,
            comp_vector: u32::try_from(comp_vector)
                .map_err(|_| Error::invalid("comp_vector", comp_vector, VECTORS))?,
            single_threaded: false,
        };
        create(context, &wanted, ibv_cq_ex::of).map(<*mut ibv_cq_ex>::cast)
    })();
    pointer("ibv_create_cq", made)
}

/// What is allowed as `comp_vector`.
const VECTORS: &str = "0 to num_comp_vectors of the context - 1";

/// The capacity that a program asks for.
fn entries(cqe: c_int) -> Result<u32, Error> {
    u32::try_from(cqe).map_err(|_| Error::invalid("cqe", cqe, "1 to max_cqe of the device"))
}

/// `extend` adds the functions by which the program reads completions field by field, if it asked for
/// them.
pub(crate) fn create(
    context: *mut ibv_context,
    wanted: &Wanted,
    extend: impl FnOnce(ibv_cq) -> ibv_cq_ex,
) -> Result<*mut ibv_cq_ex, Error> {
    let own = context::find(context)?;
    // SAFETY: a live context.
    let vectors = unsafe { (*context).num_comp_vectors };
    if wanted.comp_vector >= vectors.unsigned_abs() {
        return Err(Error::invalid("comp_vector", wanted.comp_vector, VECTORS));
    }
    let channel = wanted.channel;
    let queue = match channel.is_null() {
        true => None,
        false => Some(channel::acquire(channel, &own)?),
    };
    let created = own
        .adapter
        .live()?
        .with(|hca| hca.create_cq_ex(wanted.init));
    let id = created.inspect_err(|_| {
        if queue.is_some() {
            channel::release(channel);
        }
    })?;
    let (announced, reported) = (Reported::default(), Reported::default());
    let plain = ibv_cq {
        context,
        channel,
        cq_context: wanted.cq_context,
        handle: id.0,
        cqe: c_int::try_from(wanted.init.capacity).unwrap_or(c_int::MAX),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let abi = extend(plain);
    let routes = Arc::clone(&own.adapter.routes);
    let events = Arc::clone(&own.events);
    let cq = Cq {
        context: own,
        id,
        channel: if queue.is_some() { channel } else { null_mut() },
        announced: Arc::clone(&announced),
        reported: Arc::clone(&reported),
        armed: AtomicBool::new(false),
        late: Arc::default(),
        poller: Poller::new(!wanted.single_threaded),
    };
    let pointer = CQS.insert(abi, cq);
    let route = AsyncRoute {
        queue: events,
        element: pointer as u64,
        reported,
    };
    write(&routes.cqs).insert(id, route);
    if let Some(channel) = queue {
        let route = CompQueue::new(channel, pointer as usize, announced);
        write(&routes.completions).insert(id, Arc::new(route));
    }
    Ok(pointer)
}

/// Changes the capacity, to no less than the completions that wait (ibv_resize_cq(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let resized = find(cq).and_then(|object| {
        let own = object.own();
        let capacity = entries(cqe)?;
        let device = own.context.adapter.live()?;
        device.with(|hca| hca.resize_cq(own.id, capacity))?;
        // SAFETY: a live object; programs only read the field.
        unsafe { (*cq).cqe = cqe };
        Ok(())
    });
    status("ibv_resize_cq", resized)
}

/// Acknowledges events of a completion queue, which its destruction waits for
/// (ibv_get_cq_event(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    if nevents == 0 {
        return;
    }
    let acknowledge = find(cq).map(|object| {
        let cq = object.abi().cast::<ibv_cq>();
        // SAFETY: a live object with an initialised mutex and condition.
        unsafe {
            acknowledge(
                &raw mut (*cq).mutex,
                &raw mut (*cq).cond,
                &raw mut (*cq).comp_events_completed,
                nevents,
            );
        }
    });
    status("ibv_ack_cq_events", acknowledge);
}

/// Destroys a completion queue that no queue pair uses, after its events were acknowledged
/// (ibv_create_cq(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    status("ibv_destroy_cq", destroy(cq, true))
}

fn destroy(pointer: *mut ibv_cq, wait: bool) -> Result<(), Error> {
    let object = find(pointer)?;
    let cq = object.own();
    let adapter = &cq.context.adapter;
    let is_live = adapter.end(|hca| hca.destroy_cq(cq.id))?;
    cq.late.forget(None);
    if is_live {
        if let Some(queue) = write(&adapter.routes.completions).remove(&cq.id) {
            queue.withdraw();
        }
        if let Some(route) = write(&adapter.routes.cqs).remove(&cq.id) {
            route.queue.withdraw(|event| event.element == route.element);
        }
    }
    channel::release(cq.channel);
    if is_live && wait {
        // SAFETY: a live object with an initialised mutex and condition.
        unsafe {
            let wait_for = |completed: *const u32, reported: &AtomicU32| {
                wait_acknowledged(
                    &raw mut (*pointer).mutex,
                    &raw mut (*pointer).cond,
                    completed,
                    reported,
                );
            };
            wait_for(&raw const (*pointer).comp_events_completed, &cq.announced);
            wait_for(&raw const (*pointer).async_events_completed, &cq.reported);
        }
    }
    CQS.remove(pointer.cast());
    Ok(())
}

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for cq in CQS.all() {
        if Arc::ptr_eq(&cq.own().context, context) {
            // In use by another context: it goes when that one does.
            let _ = destroy(cq.abi().cast(), false);
        }
    }
}

/// Takes completions (ibv_poll_cq(3)).
#[border(quick_number)]
pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    let found = CQS.get(cq.cast());
    if found.as_ref().is_ok_and(|object| object.own().is_idle()) {
        return 0;
    }
    let polled = || {
        let cq = found?.own();
        let max = usize::try_from(num_entries).unwrap_or(0);
        let mut to = match max {
            0 => wc,
            _ => check("wc", wc)?,
        };
        let taken = take(cq, max, |completion| {
            // SAFETY: the program's array has room for `num_entries`, as the header requires.
            unsafe {
                to.write(work_completion(cq, &completion));
                to = to.add(1);
            }
        })?;
        Ok(taken as c_int)
    };
    uncancelled(|| number("ibv_poll_cq", polled()))
}

/// Takes up to `max` completions and returns how many.
pub(crate) fn take(cq: &Cq, max: usize, each: impl FnMut(Completion)) -> Result<usize, Error> {
    cq.context.adapter.meet(Target::PollCq, None)?;
    if cq.late.is_any() || faults::is_wanted(Target::Completion) {
        return take_by_rule(cq, max, each);
    }
    take_from_device(cq, max, each)
}

/// The same where fault rules may have something happen to completions.
#[cold]
fn take_by_rule(cq: &Cq, max: usize, mut each: impl FnMut(Completion)) -> Result<usize, Error> {
    let now = cq.context.adapter.device.now();
    let device = &cq.context.adapter.listed.spec.name;
    let mut given = cq.late.take(now, max, &mut each);
    let mut failed = Vec::new();
    take_from_device(cq, max - given, |mut completion| {
        let occasion = Occasion::on(Target::Completion, device).of_qp(completion.qpn.value());
        match faults::meet(occasion) {
            Some(Effect::Never) => return,
            Some(Effect::Late(by)) => return cq.late.hold(now.after(by), completion),
            Some(Effect::Twice) => cq.late.hold(now, completion),
            Some(Effect::Status { status, vendor_err }) => {
                (completion.status, completion.vendor_err) = (status, vendor_err);
                failed.push(completion.qpn);
            }
            _ => {}
        }
        given += 1;
        each(completion);
    })?;
    given += cq.late.take(now, max - given, &mut each);
    for qpn in failed {
        // The program may have destroyed it since.
        let _ = cq.context.adapter.to_error(qpn);
    }
    announce_late(cq);
    Ok(given)
}

/// Announces completions that are held back when their time comes.
fn announce_late(cq: &Cq) {
    if cq.late.is_any()
        && let Some(route) = read(&cq.context.adapter.routes.completions).get(&cq.id)
    {
        cq.late.announce(route);
    }
}

/// Forgets completions held back of a queue pair that is gone.
pub(crate) fn forget_late(context: &ContextRef, qpn: Qpn) {
    if !faults::is_in_use() {
        return;
    }
    let own = |cq: &&Object<ibv_cq_ex, Cq>| Arc::ptr_eq(&cq.own().context, context);
    for cq in CQS.all().into_iter().filter(own) {
        cq.own().late.forget(Some(qpn));
    }
}

fn take_from_device(cq: &Cq, max: usize, each: impl FnMut(Completion)) -> Result<usize, Error> {
    let device = cq.context.adapter.live()?;
    let taken = device.poll_each(cq.id, max, each)?;
    if cq.armed.load(Ordering::Relaxed) {
        if taken == 0 {
            // The last look before it sleeps.
            device.rest();
        } else {
            cq.armed.store(false, Ordering::Relaxed);
            withdraw_polled(cq)?;
        }
    }
    Ok(taken)
}

/// Takes back the announcement of completions that waited when the queue was armed, if the program has
/// polled them all. The device stays locked: another completion cannot be announced meanwhile.
#[cold]
fn withdraw_polled(cq: &Cq) -> Result<(), Error> {
    let adapter = &cq.context.adapter;
    let route = read(&adapter.routes.completions).get(&cq.id).cloned();
    let Some(route) = route else {
        return Ok(());
    };
    adapter.device.with(|hca| {
        if let Some(notify) = hca.take_polled_early(cq.id)?
            && route.withdraw()
        {
            route.arm();
            hca.req_notify_cq(cq.id, notify)?;
        }
        Ok(())
    })
}

fn work_completion(cq: &Cq, completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as c_int,
        opcode: completion.opcode as c_int,
        vendor_err: completion.vendor_err,
        byte_len: completion.byte_len,
        imm_data: imm_data(completion),
        qp_num: completion.qpn.value(),
        src_qp: completion.src_qp.value(),
        wc_flags: completion.flags.bits(),
        pkey_index: 0,
        slid: 0,
        sl: service_level(cq, completion),
        dlid_path_bits: 0,
    }
}

/// RoCE has no service levels. Cards tell instead what a datagram came with (RoCEv2 annex,
/// A17.4.5.1), and programs (UCX) look there for the kind of GRH: bit 3 for UDP, below it 1 for IPv6
/// and 2 for IPv4.
pub(crate) fn service_level(cq: &Cq, completion: &Completion) -> u8 {
    if !completion.flags.contains(WcFlags::GRH) {
        return 0;
    }
    match cq.context.adapter.listed.spec.address {
        IpAddr::V4(_) => 1 << 3 | 2,
        IpAddr::V6(_) => 1 << 3 | 1,
    }
}

/// Immediate data in network order, or the invalidated key in the machine's.
pub(crate) fn imm_data(completion: &Completion) -> u32 {
    if completion.flags.contains(WcFlags::WITH_IMM) {
        completion.imm.to_be()
    } else {
        completion.imm
    }
}

/// Asks for an event with the next completion (ibv_req_notify_cq(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let result = CQS.get(cq.cast()).and_then(|object| {
        let cq = object.own();
        let adapter = &cq.context.adapter;
        let device = adapter.live()?;
        match read(&adapter.routes.completions).get(&cq.id) {
            Some(route) => route.arm(),
            None => return Ok(()), // nobody to tell
        }
        let notify = if solicited_only == 0 {
            Notify::Any
        } else {
            Notify::Solicited
        };
        device.with(|hca| hca.req_notify_cq(cq.id, notify))?;
        cq.armed.store(true, Ordering::Relaxed);
        announce_late(cq);
        Ok(())
    });
    status("ibv_req_notify_cq", result)
}

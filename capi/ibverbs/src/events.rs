//! Completion channels and asynchronous events.
//!
//! A queue of events has an eventfd in semaphore mode that counts them: it can be polled, its reads
//! block or not as the program has set it, and it never runs full. An event may be withdrawn, and
//! before Linux 5.8 no read of an eventfd returns at once where others block; so the count is only
//! corrected while no thread waits.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_border::border;
use ferroce_os::out_of_the_way;
use libc::{pthread_cond_t, pthread_mutex_t};

use crate::abi::{ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq};
use crate::arena::{Arena, Object};
use crate::context::{self, ContextRef};
use crate::error::{Error, number, pointer, status};
use crate::{border, cq, qp, srq};

/// How many events of an object the program has got and must acknowledge.
pub(crate) type Reported = Arc<AtomicU32>;

/// Events that wait for the program to take them.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// A second descriptor of the one that the program has: it may close its own.
    fd: OwnedFd,
    /// The program's.
    public: c_int,
    entries: Mutex<Entries<E>>,
    /// Threads that wait for an event. They begin and end under the lock of `entries`.
    waiting: AtomicUsize,
    /// The thread that waited last, 0 before the first.
    last_to_wait: AtomicU64,
}

#[derive(Debug)]
struct Entries<E> {
    events: VecDeque<E>,
    /// The descriptor counts more than these: some were withdrawn.
    is_overcounted: bool,
}

impl<E> Default for Entries<E> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            is_overcounted: false,
        }
    }
}

/// How long the end of a queue waits for a thread that takes its events in a loop to come back.
const COMES_BACK: Duration = Duration::from_millis(20);

impl<E> EventQueue<E> {
    /// A queue, and the descriptor for the program.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh, and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let public = fd.try_clone()?;
        let queue = Self {
            fd: out_of_the_way(fd),
            public: public.as_raw_fd(),
            entries: Mutex::default(),
            waiting: AtomicUsize::new(0),
            last_to_wait: AtomicU64::new(0),
        };
        Ok((queue, public))
    }

    /// To be called before the program's queue goes. A thread that takes the events in a loop, and is
    /// just between two, is given the time to wait for the next one, which then never comes: that is
    /// where libraries of cards leave it, whose calls on the way to the end of a queue take longer.
    /// Programs such as rping count on it.
    pub fn await_reader(&self) {
        let last = self.last_to_wait.load(Ordering::Acquire);
        if last == 0 || last == this_thread() {
            return;
        }
        let until = Instant::now() + COMES_BACK;
        while self.waiting.load(Ordering::Acquire) == 0 && Instant::now() < until {
            thread::sleep(COMES_BACK / 200);
        }
    }

    /// Adds an event.
    pub fn push(&self, event: E) {
        let mut entries = self.entries();
        entries.events.push_back(event);
        let one = 1_u64;
        // SAFETY: eight bytes of a local variable. It cannot fail: the counter has room for 2^64.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Adds an event; if `max` of its kind wait already, in place of the oldest of them. So what a
    /// program leaves unread does not grow, and the last event says how things are.
    pub fn push_or_replace(&self, event: E, max: usize, is_of_kind: impl Fn(&E) -> bool) {
        let mut entries = self.entries();
        let events = &mut entries.events;
        if events.iter().filter(|it| is_of_kind(it)).count() >= max
            && let Some(oldest) = events.iter().position(is_of_kind)
        {
            events.remove(oldest);
            events.push_back(event);
            return;
        }
        drop(entries);
        self.push(event);
    }

    /// Takes the oldest event and has `seen` look at it before anybody can withdraw it. Blocks or
    /// not, as the descriptor is set; if the program has closed it, that is the error.
    pub fn take<R>(&self, seen: impl Fn(&E) -> R) -> io::Result<R> {
        loop {
            let descriptor = self.descriptor()?;
            self.begin_wait();
            let mut one = 0_u64;
            // SAFETY: eight bytes of a local variable.
            let got = unsafe { read(descriptor, (&raw mut one).cast(), 8) };
            let taken = self.take_after(got, &seen);
            self.end_wait();
            if let Some(taken) = taken? {
                return Ok(taken);
            }
        }
    }

    fn begin_wait(&self) {
        let _entries = self.entries();
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    fn end_wait(&self) {
        let mut entries = self.entries();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.settle(&mut entries);
    }

    /// The descriptor is readable while there are events. Those who wait read what it counts beyond
    /// them, and wait on; if no thread does, it is read here, which does not block: a thread that wants to
    /// wait needs the lock.
    fn settle(&self, entries: &mut Entries<E>) {
        if !entries.events.is_empty() || self.waiting.load(Ordering::Acquire) > 0 {
            return;
        }
        while entries.is_overcounted {
            let mut one = 0_u64;
            let mut polled = libc::pollfd {
                fd: self.fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: local variables, one of eight bytes.
            entries.is_overcounted = unsafe {
                libc::poll(&raw mut polled, 1, 0) > 0
                    && read(polled.fd, (&raw mut one).cast(), 8) > 0
            };
        }
    }

    /// The descriptor to read eight bytes from before an event is taken; an error if the program has
    /// closed its own.
    fn descriptor(&self) -> io::Result<c_int> {
        // SAFETY: no pointers.
        if unsafe { libc::fcntl(self.public, libc::F_GETFD) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(self.fd.as_raw_fd())
    }

    /// Takes the oldest event after `got` was the result of reading from the descriptor. `None` if it
    /// was withdrawn meanwhile, which leaves nothing for whom it has woken.
    fn take_after<R>(&self, got: isize, seen: impl Fn(&E) -> R) -> io::Result<Option<R>> {
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut entries = self.entries();
        Ok(entries.events.pop_front().map(|event| seen(&event)))
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.entries().events.is_empty()
    }

    /// Takes back the events that `concerned` names, as when their object is gone.
    pub fn withdraw(&self, concerned: impl Fn(&E) -> bool) -> VecDeque<E> {
        let mut entries = self.entries();
        let (withdrawn, others) = entries.events.drain(..).partition(concerned);
        entries.events = others;
        entries.is_overcounted |= !VecDeque::is_empty(&withdrawn);
        self.settle(&mut entries);
        withdrawn
    }

    fn entries(&self) -> MutexGuard<'_, Entries<E>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// What this thread waits for. More than one if a handler interrupts a wait with another.
    static AWAITED: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// A thread's wait for an event of a queue, which lives on for it. A thread that is cancelled has it
/// until it ends.
struct Wait<E>(Arc<EventQueue<E>>);

impl<E> Drop for Wait<E> {
    fn drop(&mut self) {
        self.0.end_wait();
    }
}

// The only declaration of `read` in these libraries: beside one that does not unwind, the compiler would take
// the call below for one that cannot be unwound either.
// SAFETY: read(2), by which the C library unwinds a thread that is cancelled.
unsafe extern "C-unwind" {
    fn read(fd: c_int, to: *mut c_void, len: usize) -> isize;
}

/// A call that waits for an event and can be cancelled while it does, as in any libibverbs. The
/// thread leaves the library to wait: here, where nothing would be left undone if this function never
/// returned. 0, or -1 and `errno`.
///
/// `queue` finds the queue, `seen` looks at an event in it, and `deliver` tells the program, or answers
/// false if there is nothing to tell.
pub fn wait<E: 'static, R>(
    call: &'static str,
    queue: impl Fn() -> Result<Arc<EventQueue<E>>, Error> + Copy,
    seen: impl Fn(&E) -> R + Copy,
    deliver: impl Fn(R) -> Result<bool, Error> + Copy,
) -> c_int {
    const AGAIN: c_int = 1;
    loop {
        let fd = border::number(|| number(call, queue().and_then(|queue| await_queue(queue))));
        if fd < 0 {
            return -1;
        }
        let mut one = 0_u64;
        // SAFETY: eight bytes of a local variable. Neither this function nor those that lead here
        // have anything to drop.
        let got = unsafe { read(fd, (&raw mut one).cast(), 8) };
        let done = border::number(|| {
            let taken = awaited::<E>().and_then(|wait| Ok(wait.0.take_after(got, seen)?));
            let done = taken.and_then(|taken| taken.map_or(Ok(false), deliver));
            number(call, done.map(|done| if done { 0 } else { AGAIN }))
        });
        if done != AGAIN {
            return done;
        }
    }
}

fn await_queue<E: 'static>(queue: Arc<EventQueue<E>>) -> Result<c_int, Error> {
    let fd = queue.descriptor()?;
    queue.last_to_wait.store(this_thread(), Ordering::Release);
    queue.begin_wait();
    AWAITED.with_borrow_mut(|awaited| awaited.push(Box::new(Wait(queue))));
    Ok(fd)
}

fn awaited<E: 'static>() -> Result<Box<Wait<E>>, Error> {
    let wait = AWAITED.with_borrow_mut(Vec::pop);
    let wait = wait.and_then(|wait| wait.downcast().ok());
    // Else a handler has jumped away from its own wait.
    wait.ok_or(Error::Reported(libc::EIO))
}

fn this_thread() -> u64 {
    // SAFETY: it only says which thread this is.
    unsafe { libc::pthread_self() }
}

/// An announcement of a completion queue.
pub(crate) struct Announced {
    /// The completion queue, as the program knows it.
    cq: usize,
    reported: Reported,
    is_unread: Arc<AtomicBool>,
}

/// Where the announcements of a completion queue go.
pub(crate) struct CompQueue {
    channel: Arc<EventQueue<Announced>>,
    /// The completion queue, as the program knows it.
    cq: usize,
    reported: Reported,
    /// The channel has an announcement of this queue.
    is_unread: Arc<AtomicBool>,
}

impl CompQueue {
    pub(crate) fn new(channel: Arc<EventQueue<Announced>>, cq: usize, reported: Reported) -> Self {
        Self {
            channel,
            cq,
            reported,
            is_unread: Arc::default(),
        }
    }

    /// As a card does, with one announcement until the program has taken it, however often it arms the
    /// queue.
    pub(crate) fn announce(&self) {
        if !self.is_unread.swap(true, Ordering::AcqRel) {
            self.channel.push(Announced {
                cq: self.cq,
                reported: Arc::clone(&self.reported),
                is_unread: Arc::clone(&self.is_unread),
            });
        }
    }

    /// The completion queue is gone.
    pub(crate) fn withdraw(&self) {
        self.channel.withdraw(|announced| announced.cq == self.cq);
    }
}

/// An asynchronous event.
pub(crate) struct Async {
    /// Pointer to the object, or number of the port.
    pub(crate) element: u64,
    /// The number of `ibv_event_type`.
    pub(crate) kind: c_int,
    pub(crate) reported: Option<Reported>,
}

/// The asynchronous events of a context.
pub(crate) type AsyncQueue = EventQueue<Async>;

/// A completion channel.
pub(crate) struct Channel {
    context: ContextRef,
    queue: Arc<EventQueue<Announced>>,
    /// The program's descriptor.
    fd: c_int,
}

static CHANNELS: Arena<ibv_comp_channel, Channel> = Arena::new("completion channel");

/// A completion channel in use by completion queues.
pub(crate) fn use_channel(
    pointer: *mut ibv_comp_channel,
    context: &ContextRef,
) -> Result<Arc<EventQueue<Announced>>, Error> {
    let channel = CHANNELS.find(pointer)?;
    context::check_same("completion channel", &channel.own().context, context)?;
    count_users(pointer, 1);
    Ok(Arc::clone(&channel.own().queue))
}

/// A completion queue does without its channel from now on.
pub(crate) fn release_channel(pointer: *mut ibv_comp_channel) {
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
    // SAFETY: the field of a live object, to which nobody else writes: programs only read it.
    unsafe { AtomicI32::from_ptr(&raw mut (*channel.abi()).refcnt) }
}

/// Makes a completion channel (ibv_create_comp_channel(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    pointer("ibv_create_comp_channel", create_channel(context))
}

fn create_channel(context: *mut ibv_context) -> Result<*mut ibv_comp_channel, Error> {
    let owner = context::find(context)?;
    let (queue, public) = EventQueue::new()?;
    let fd = std::os::fd::IntoRawFd::into_raw_fd(public);
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
    status("ibv_destroy_comp_channel", destroy_channel(channel))
}

fn destroy_channel(pointer: *mut ibv_comp_channel) -> Result<(), Error> {
    let channel = CHANNELS.find(pointer)?;
    if users(channel).load(Ordering::Relaxed) > 0 {
        return Err(Error::Busy("completion queues report to the channel"));
    }
    if let Some(own) = CHANNELS.remove(pointer) {
        // SAFETY: the descriptor was made for the program and is its channel's to close.
        unsafe { libc::close(own.fd) };
    }
    Ok(())
}

/// The channels of a context, when it closes.
pub(crate) fn close_channels(context: &ContextRef) {
    for channel in CHANNELS.all() {
        if Arc::ptr_eq(&channel.own().context, context) {
            // Its queues are gone; what remains is a descriptor.
            let _ = destroy_channel(channel.abi());
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
        let Channel { context, queue, .. } = CHANNELS.find(channel)?.own();
        context.adapter.live()?.rest();
        Ok(Arc::clone(queue))
    };
    let seen = |announced: &Announced| {
        announced.is_unread.store(false, Ordering::Release);
        announced.reported.fetch_add(1, Ordering::Relaxed);
        announced.cq
    };
    let deliver = |address| {
        let found = address as *mut ibv_cq;
        if !cq::confirm_announcement(found)? {
            count_acknowledged(found, 1)?;
            return Ok(false);
        }
        // SAFETY: the program's own variables; a completion queue with an event that was not
        // acknowledged cannot go away.
        unsafe {
            *cq = found;
            *cq_context = (*found).cq_context;
        }
        Ok(true)
    };
    wait("ibv_get_cq_event", queue, seen, deliver)
}

/// Acknowledges events of a completion queue, which its destruction waits for
/// (ibv_get_cq_event(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    if nevents == 0 {
        return;
    }
    status("ibv_ack_cq_events", count_acknowledged(cq, nevents));
}

fn count_acknowledged(cq: *mut ibv_cq, events: c_uint) -> Result<(), Error> {
    let cq = cq::find(cq)?.abi().cast::<ibv_cq>();
    // SAFETY: a live object with an initialised mutex and condition.
    unsafe {
        acknowledge(
            &raw mut (*cq).mutex,
            &raw mut (*cq).cond,
            &raw mut (*cq).comp_events_completed,
            events,
        );
    }
    Ok(())
}

/// Waits for an asynchronous event (ibv_get_async_event(3)).
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let queue = || {
        let context = context::find(context)?;
        // One that has failed has that to tell.
        if !context.adapter.device.has_failed() {
            context.adapter.live()?.rest();
        }
        Ok(Arc::clone(&context.events))
    };
    let seen = |event: &Async| {
        if let Some(reported) = &event.reported {
            reported.fetch_add(1, Ordering::Relaxed);
        }
        (event.element, event.kind)
    };
    let deliver = |(element, event_type)| {
        // SAFETY: the program's own structure.
        unsafe {
            event.write(ibv_async_event {
                element,
                event_type,
            });
        }
        Ok(true)
    };
    wait("ibv_get_async_event", queue, seen, deliver)
}

/// Acknowledges an asynchronous event, which the destruction of its object waits for
/// (ibv_get_async_event(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program's own structure.
    let (element, kind) = unsafe { ((*event).element, (*event).event_type) };
    let result = match kind {
        0 => cq::find(element as *mut ibv_cq).map(|object| {
            let cq = object.abi().cast::<ibv_cq>();
            // SAFETY: a live object with an initialised mutex and condition.
            unsafe {
                acknowledge(
                    &raw mut (*cq).mutex,
                    &raw mut (*cq).cond,
                    &raw mut (*cq).async_events_completed,
                    1,
                );
            }
        }),
        1..=7 | 16 => qp::find(element as *mut crate::abi::ibv_qp).map(|object| {
            let qp = object.abi().cast::<crate::abi::ibv_qp>();
            // SAFETY: as above.
            unsafe {
                acknowledge(
                    &raw mut (*qp).mutex,
                    &raw mut (*qp).cond,
                    &raw mut (*qp).events_completed,
                    1,
                );
            }
        }),
        14 | 15 => srq::find(element as *mut crate::abi::ibv_srq).map(|object| {
            let srq = object.abi();
            // SAFETY: as above.
            unsafe {
                acknowledge(
                    &raw mut (*srq).mutex,
                    &raw mut (*srq).cond,
                    &raw mut (*srq).events_completed,
                    1,
                );
            }
        }),
        _ => Ok(()),
    };
    status("ibv_ack_async_event", result);
}

/// Counts events as acknowledged, as many as the program says: some acknowledge completions, of which
/// there are more.
///
/// # Safety
/// The mutex and the condition are initialised and live, and the mutex guards `completed`.
unsafe fn acknowledge(
    mutex: *mut pthread_mutex_t,
    cond: *mut pthread_cond_t,
    completed: *mut u32,
    events: u32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        *completed = (*completed).wrapping_add(events);
        libc::pthread_cond_signal(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}

/// Whether the program has still to acknowledge what was reported to it. The counts come round, and
/// the program's may be ahead.
fn are_due(completed: u32, reported: u32) -> bool {
    (1..1 << 31).contains(&reported.wrapping_sub(completed))
}

/// Waits until the program has acknowledged what was reported to it.
///
/// # Safety
/// As for [`acknowledge`].
pub(crate) unsafe fn wait_acknowledged(
    mutex: *mut pthread_mutex_t,
    cond: *mut pthread_cond_t,
    completed: *const u32,
    reported: &AtomicU32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while are_due(*completed, reported.load(Ordering::Relaxed)) {
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(fd: &OwnedFd) -> bool {
        let mut polled = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: a local variable.
        unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
    }

    #[test]
    fn the_descriptor_is_readable_while_there_are_events() {
        let (queue, public) = EventQueue::new().unwrap();
        for event in 0..4 {
            queue.push(event);
        }
        queue.withdraw(|event| event % 2 == 0);
        assert_eq!(queue.take(|event| *event).unwrap(), 1);
        assert!(is_readable(&public));
        assert_eq!(queue.take(|event| *event).unwrap(), 3);
        assert!(
            !is_readable(&public),
            "the two withdrawn ones count no more"
        );
        queue.push(4);
        queue.withdraw(|_| true);
        assert!(!is_readable(&public));
    }

    /// Another thread waits while events come and are withdrawn, and gets those that stay.
    #[test]
    fn those_who_wait_get_what_is_not_withdrawn() {
        const EVENTS: u32 = 20_000;
        let (queue, public) = EventQueue::new().unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let taken = || queue.take(|event| *event).unwrap();
                std::iter::repeat_with(taken)
                    .take_while(|event| *event != EVENTS)
                    .collect::<Vec<u32>>()
            });
            for event in 0..EVENTS {
                queue.push(event);
                if event % 2 == 0 {
                    queue.withdraw(|it| *it == event);
                }
            }
            queue.push(EVENTS);
            let taken = reader.join().unwrap();
            let odd = taken.iter().filter(|event| **event % 2 == 1).count();
            assert_eq!(odd as u32, EVENTS / 2);
            assert!(taken.is_sorted());
        });
        assert!(!is_readable(&public));
    }

    #[test]
    fn what_a_program_does_not_read_does_not_grow() {
        const MAX: usize = 16;
        let of_port = |event: &u32| *event > 0;
        let (queue, public) = EventQueue::new().unwrap();
        // SAFETY: no pointers.
        let set = unsafe { libc::fcntl(public.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(set, 0);
        queue.push(0);
        for event in 1..=5000 {
            queue.push_or_replace(event, MAX, of_port);
        }
        let read = || queue.take(|event| *event).ok();
        let taken: Vec<u32> = std::iter::from_fn(read).collect();
        let expected: Vec<u32> = [0].into_iter().chain(4985..=5000).collect();
        assert_eq!(taken, expected, "those of other kinds, and the last ones");
    }
}

//! Queues of events that programs poll for and wait on.
//!
//! A queue has an eventfd in semaphore mode that counts them: it can be polled, its reads
//! block or not as the program has set it, and it never runs full. An event may be withdrawn, and
//! before Linux 5.8 no read of an eventfd returns at once where others block; so the count is only
//! corrected while no thread waits.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_abi::border;
use ferroce_os::out_of_the_way;

use crate::error::{Error, number};

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
        // SAFETY: fresh, and has no other owner.
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

    /// Takes the oldest event and has `seen` look at it before it can be withdrawn. Blocks or
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

    /// The descriptor is readable while there are events. Waiting threads read what it counts beyond
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
    /// was withdrawn meanwhile, which leaves nothing for the thread that it has woken.
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
    let fd = border::number(|| number(call, queue().and_then(|queue| await_queue(queue))));
    if fd < 0 {
        return -1;
    }
    loop {
        let mut one = 0_u64;
        // SAFETY: eight bytes of a local variable. Neither this function nor those that lead here
        // have anything to drop.
        let got = unsafe { read(fd, (&raw mut one).cast(), 8) };
        let done = border::number(|| {
            let done = awaited::<E>().and_then(|wait| {
                let done = wait.0.take_after(got, seen)?.map_or(Ok(false), deliver)?;
                if !done {
                    // The program may have destroyed the queue meanwhile, and does not expect this
                    // thread to return for that.
                    await_again(wait);
                }
                Ok(done)
            });
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
    await_again(Box::new(Wait(queue)));
    Ok(fd)
}

fn await_again<E: 'static>(wait: Box<Wait<E>>) {
    AWAITED.with_borrow_mut(|awaited| awaited.push(wait));
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
    fn waiting_threads_get_the_events_that_stay() {
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

    /// As when a program destroys a queue beside a thread that an event has just woken.
    #[test]
    fn a_thread_woken_for_nothing_does_not_find_the_queue_again() {
        let (queue, _public) = EventQueue::new().unwrap();
        let queue = Arc::new(queue);
        let found = AtomicUsize::new(0);
        let find = || {
            assert_eq!(found.fetch_add(1, Ordering::Relaxed), 0, "found twice");
            Ok(Arc::clone(&queue))
        };
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait("test", find, |event| *event, Ok));
            while queue.waiting.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            for _ in 0..20_000 {
                queue.push(false);
                queue.withdraw(|_| true);
            }
            queue.push(false);
            queue.push(true);
            assert_eq!(waiting.join().unwrap(), 0);
        });
        assert!(queue.is_empty());
    }

    #[test]
    fn unread_events_are_bounded() {
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

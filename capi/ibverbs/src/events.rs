//! What programs are told without asking: announcements of completion queues and asynchronous events.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{pthread_cond_t, pthread_mutex_t};

use crate::queue::EventQueue;

/// How many events of an object the program has received and must acknowledge.
pub(crate) type Reported = Arc<AtomicU32>;

/// An announcement of a completion queue.
pub(crate) struct Announced {
    /// The completion queue, as the program knows it.
    pub(crate) cq: usize,
    reported: Reported,
    is_unread: Arc<AtomicBool>,
}

impl Announced {
    /// The program gets it.
    pub(crate) fn report(&self) {
        self.is_unread.store(false, Ordering::Release);
        self.reported.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where the announcements of a completion queue go.
pub(crate) struct CompQueue {
    channel: Arc<EventQueue<Announced>>,
    /// The completion queue, as the program knows it.
    cq: usize,
    reported: Reported,
    /// The channel has an announcement of this queue.
    is_unread: Arc<AtomicBool>,
    /// The program has armed the queue, and nothing was announced since.
    is_armed: AtomicBool,
}

impl CompQueue {
    pub(crate) fn new(channel: Arc<EventQueue<Announced>>, cq: usize, reported: Reported) -> Self {
        Self {
            channel,
            cq,
            reported,
            is_unread: Arc::default(),
            is_armed: AtomicBool::new(false),
        }
    }

    /// The program arms the queue.
    pub(crate) fn arm(&self) {
        self.is_armed.store(true, Ordering::Release);
    }

    /// Announces what the device does not know of, if the queue is armed.
    pub(crate) fn announce_if_armed(&self) {
        if self.is_armed.load(Ordering::Acquire) {
            self.announce();
        }
    }

    /// As a card does, with one announcement until the program has taken it, however often it arms the
    /// queue.
    pub(crate) fn announce(&self) {
        self.is_armed.store(false, Ordering::Release);
        if !self.is_unread.swap(true, Ordering::AcqRel) {
            self.channel.push(Announced {
                cq: self.cq,
                reported: Arc::clone(&self.reported),
                is_unread: Arc::clone(&self.is_unread),
            });
        }
    }

    /// Takes an announcement back: the completion queue is gone, or it was for nothing. Returns whether the
    /// program had not taken it yet.
    pub(crate) fn withdraw(&self) -> bool {
        let withdrawn = self.channel.withdraw(|announced| announced.cq == self.cq);
        self.is_unread.store(false, Ordering::Release);
        !withdrawn.is_empty()
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

/// Counts events as acknowledged, as many as the program says: some acknowledge completions, of which
/// there are more.
///
/// # Safety
/// The mutex and the condition are initialised and live, and the mutex guards `completed`.
pub(crate) unsafe fn acknowledge(
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

/// Whether the program has still to acknowledge what was reported to it. The counts wrap, and
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

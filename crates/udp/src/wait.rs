//! Sleeping until a packet, a deadline or another thread needs attention, and the clock behind it.
//!
//! Going to sleep and waking up costs tens of microseconds on many machines, against two for a
//! datagram to a spinning receiver. So whoever waits for a reply should poll a while before it
//! comes here; the helper thread, which serves a passive device, lives here.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::sys::NotInherited;

/// Sleeps on a socket, a deadline and a [`Waker`]. One thread waits; any number wake it.
#[derive(Debug)]
pub struct Waiter {
    shared: Arc<Shared>,
}

impl Waiter {
    /// A waiter nobody has woken yet.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes two integers and touches no memory of ours.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else knows it.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        Ok(Self {
            shared: Arc::new(Shared {
                event: NotInherited::new(event),
                state: AtomicU8::new(AWAKE),
            }),
        })
    }

    /// A handle with which other threads end a wait, or the next one if none is under way.
    pub fn waker(&self) -> Waker {
        Waker {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Sleeps until `socket` is readable (or writable, if `interest_write`), `timeout` has passed
    /// (`None`: never) or a [`Waker`] fires. Of several reasons all are reported; none means that
    /// the time is up.
    ///
    /// Never returns before the time for want of a reason, and a signal is no reason. Takes `&mut`
    /// because only one thread may wait.
    ///
    /// # Errors
    /// When the kernel is out of memory.
    pub fn wait(
        &mut self,
        socket: &impl AsFd,
        timeout: Option<Duration>,
        interest_write: bool,
    ) -> io::Result<Wake> {
        self.wait_also(socket, [None; 2], timeout, interest_write)
    }

    /// [`Self::wait`] that ends also when there is something to read from one of `also`.
    pub(crate) fn wait_also(
        &mut self,
        socket: &impl AsFd,
        also: [Option<BorrowedFd<'_>>; 2],
        timeout: Option<Duration>,
        interest_write: bool,
    ) -> io::Result<Wake> {
        let state = &self.shared.state;
        let signalled = state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_err();
        // Woken already: look at the socket, but do not sleep.
        let timeout = if signalled {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        let slept = self.sleep(socket, also, timeout, interest_write);
        // Takes the signal and, with it, sight of what the waking thread wrote before.
        let woken = state.swap(AWAKE, Ordering::AcqRel) == SIGNALLED;
        let mut wake = slept?;
        wake.woken = woken;
        Ok(wake)
    }

    fn sleep(
        &self,
        socket: &impl AsFd,
        also: [Option<BorrowedFd<'_>>; 2],
        timeout: Option<Duration>,
        interest_write: bool,
    ) -> io::Result<Wake> {
        let unless_none = |fd: Option<BorrowedFd<'_>>| libc::pollfd {
            // The kernel passes over a negative one.
            fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
            events: libc::POLLIN,
            revents: 0,
        };
        let interest = libc::POLLIN | if interest_write { libc::POLLOUT } else { 0 };
        let mut fds = [
            libc::pollfd {
                fd: socket.as_fd().as_raw_fd(),
                events: interest,
                revents: 0,
            },
            libc::pollfd {
                fd: self.shared.event.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            },
            unless_none(also[0]),
            unless_none(also[1]),
        ];
        let started = timeout
            .filter(|timeout| !timeout.is_zero())
            .map(|_| Instant::now());
        let left = || match (timeout, started) {
            (Some(timeout), Some(started)) => Some(timeout.saturating_sub(started.elapsed())),
            (timeout, _) => timeout,
        };
        let mut next = timeout;
        loop {
            poll(&mut fds, next.map(stage))?;
            if fds[1].revents != 0 {
                self.shared.drain();
            }
            // The event alone is no reason: it may be the late second half of a signal that the
            // last wait has reported.
            let revents = fds[0].revents | fds[2].revents | fds[3].revents;
            if revents != 0 || self.shared.state.load(Ordering::Relaxed) == SIGNALLED {
                return Ok(Wake::of(revents));
            }
            next = left();
            if next == Some(Duration::ZERO) {
                return Ok(Wake::default());
            }
        }
    }
}

/// Why a wait ended; nothing set means that the time is up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Wake {
    /// There is something to receive, or an error to fetch.
    pub readable: bool,
    /// There is room to send. Only reported when asked for.
    pub writable: bool,
    /// A [`Waker`] fired since the last wait ended.
    pub woken: bool,
}

impl Wake {
    fn of(revents: libc::c_short) -> Self {
        Self {
            readable: revents & (libc::POLLIN | libc::POLLERR | libc::POLLHUP) != 0,
            writable: revents & libc::POLLOUT != 0,
            woken: false,
        }
    }
}

/// Ends a [`Waiter`]'s sleep from another thread.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    /// Wakes the waiter, or keeps it from falling asleep next time. Everything written before is
    /// visible to the waiter when it returns.
    ///
    /// One atomic exchange, and a system call only for the first of several calls and only if the
    /// waiter is asleep.
    pub fn wake(&self) {
        if self.shared.state.swap(SIGNALLED, Ordering::AcqRel) == ASLEEP {
            self.shared.fire();
        }
    }
}

/// The machine's monotonic time in nanoseconds (`CLOCK_MONOTONIC`, clock_gettime(2)). All processes
/// of a machine agree, so that what one of them sets for a moment to come means the same to all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Nanoseconds since about the machine's start.
    #[inline]
    pub fn now_ns(self) -> u64 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `now` is writable. Every Linux has this clock, so the call cannot fail.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        (now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64
    }
}

/// Nanoseconds of processor time that the calling thread has had (`CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_cpu_ns() -> u64 {
    let mut spent = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `spent` is writable. Every Linux has this clock, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut spent) };
    (spent.tv_sec as u64).wrapping_mul(1_000_000_000) + spent.tv_nsec as u64
}

/// Lets the calling thread's timers fire when they are due. The kernel otherwise delays them by up
/// to 50 microseconds to save wake-ups. For the helper thread; inherited by threads it starts.
///
/// # Errors
/// Where a sandbox forbids the call. Timers then fire a little late, no more.
pub fn tighten_timer_slack() -> io::Result<()> {
    // SAFETY: this option takes integers only.
    let outcome = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[derive(Debug)]
struct Shared {
    event: NotInherited<OwnedFd>,
    /// [`AWAKE`], [`ASLEEP`] or [`SIGNALLED`].
    state: AtomicU8,
}

/// The waiter is not in a wait, and nobody has woken it.
const AWAKE: u8 = 0;
/// The waiter sleeps or is about to, and needs the event to wake.
const ASLEEP: u8 = 1;
/// Somebody has woken it since the last wait ended.
const SIGNALLED: u8 = 2;

impl Shared {
    fn fire(&self) {
        let one = 1u64;
        // SAFETY: the pointer and the length describe `one`. The call cannot block, and the only
        // failure, a full counter, leaves the event as readable as we want it.
        unsafe {
            libc::write(
                self.event.as_raw_fd(),
                (&raw const one).cast(),
                size_of_val(&one),
            );
        }
    }

    fn drain(&self) {
        let mut count = 0u64;
        // SAFETY: the pointer and the length describe `count`. The call cannot block; if the event
        // is empty already, all the better.
        unsafe {
            libc::read(
                self.event.as_raw_fd(),
                (&raw mut count).cast(),
                size_of_val(&count),
            );
        }
    }
}

/// How long to sleep at a stretch towards a deadline `left` away.
///
/// However tight the thread's timer slack, the kernel takes the liberty of a thousandth of a poll's
/// timeout: 4 ms on 4 s. Sleeping all but a two-hundredth and then the rest brings that down to
/// nanoseconds, for one or two more wake-ups.
fn stage(left: Duration) -> Duration {
    const SHORT: Duration = Duration::from_millis(1);
    if left > SHORT {
        left - left / 200
    } else {
        left
    }
}

/// Polls once. A signal ends it early with nothing ready.
fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `fds` is writable and its length is passed; `timeout` is null or points at a value
    // of this frame; a null signal mask leaves the mask alone.
    let ready = unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            timeout,
            ptr::null(),
        )
    };
    if ready >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        // The kernel leaves what was there.
        fds.iter_mut().for_each(|fd| fd.revents = 0);
        return Ok(());
    }
    Err(error)
}

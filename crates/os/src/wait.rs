//! Sleeping until a packet, a deadline or another thread needs attention, and the clock for it.
//!
//! Going to sleep and waking up costs tens of microseconds on many machines, compared with two for
//! a datagram to a spinning receiver. A thread that waits for a reply should therefore poll for a
//! while before it sleeps here. The helper thread, which serves a passive device, sleeps here most
//! of the time.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use ferroce_base::time::{Span, Time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};

use crate::fork::NotInherited;

/// Sleeps on a socket, a deadline and a [`Waker`]. One thread waits; any number wake it.
#[derive(Debug)]
pub struct Waiter {
    shared: Arc<Shared>,
}

impl Waiter {
    /// A waiter that has not been woken yet.
    ///
    /// # Errors
    /// Returns an error when the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
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
    /// Never returns before the time without a reason, and a signal is not one. Takes `&mut`
    /// because only one thread may wait.
    ///
    /// # Errors
    /// Returns an error when the kernel is out of memory.
    pub fn wait(
        &mut self,
        socket: &impl AsFd,
        timeout: Option<Duration>,
        interest_write: bool,
    ) -> io::Result<Wake> {
        self.wait_also(socket, [None; 3], timeout, interest_write)
    }

    /// [`Self::wait`] that ends also when there is something to read from one of `also`.
    pub fn wait_also(
        &mut self,
        socket: &impl AsFd,
        also: [Option<BorrowedFd<'_>>; 3],
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
        also: [Option<BorrowedFd<'_>>; 3],
        timeout: Option<Duration>,
        interest_write: bool,
    ) -> io::Result<Wake> {
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, interest_write);
        let event = PollFd::from_borrowed_fd(self.shared.event.as_fd(), PollFlags::IN);
        let mut fds: [_; 5] = std::array::from_fn(|_| event.clone());
        fds[1] = PollFd::new(socket, interest);
        let mut used = 2;
        for fd in also.into_iter().flatten() {
            fds[used] = PollFd::from_borrowed_fd(fd, PollFlags::IN);
            used += 1;
        }
        let fds = &mut fds[..used];
        let started = timeout
            .filter(|timeout| !timeout.is_zero())
            .map(|_| Instant::now());
        let left = || match (timeout, started) {
            (Some(timeout), Some(started)) => Some(timeout.saturating_sub(started.elapsed())),
            (timeout, _) => timeout,
        };
        let mut next = timeout;
        loop {
            poll_once(fds, next.map(stage))?;
            let (event, others) = fds.split_first().expect("it is in front");
            if !event.revents().is_empty() {
                self.shared.drain();
            }
            // The event alone is not a reason: it may be the late second half of a signal that the
            // last wait has reported.
            let revents = others.iter().map(PollFd::revents).collect::<PollFlags>();
            if !revents.is_empty() || self.shared.state.load(Ordering::Relaxed) == SIGNALLED {
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
    fn of(revents: PollFlags) -> Self {
        Self {
            readable: revents.intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP),
            writable: revents.contains(PollFlags::OUT),
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
    /// 52 days, 2^52 ns. The times of the devices of two processes differ by a multiple of this, which
    /// is 0 unless one of them has run for weeks. A process may run for at least 161 days.
    pub const STRETCH: Span = Span::from_nanos(1 << 52);

    /// Nanoseconds since about the machine's start.
    #[inline]
    pub fn now_ns(self) -> u64 {
        nanos(clock_gettime(ClockId::Monotonic))
    }

    /// The present on the clock of this process's devices.
    #[inline]
    pub fn now(self) -> Time {
        self.time_at(self.now_ns())
    }

    /// The time of the devices at a moment of the machine's clock.
    #[inline]
    pub fn time_at(self, ns: u64) -> Time {
        Time::from_nanos(ns.saturating_sub(*ORIGIN_NS))
    }

    /// The moment of the machine's clock at a time of the devices.
    #[inline]
    pub fn nanos_at(self, time: Time) -> u64 {
        ORIGIN_NS.saturating_add(time.as_nanos())
    }
}

/// Where on the machine's clock the time of the devices begins. That of a device ends after 213 days,
/// and machines run for longer: so it begins with the stretch of [`STRETCH_NS`] in which the process
/// first asks. Processes that start in the same stretch count alike, and the times of others differ
/// by [`Clock::STRETCH`] or a multiple of it.
static ORIGIN_NS: LazyLock<u64> = LazyLock::new(|| {
    let now_ns = Clock.now_ns();
    now_ns - now_ns % STRETCH_NS
});

const STRETCH_NS: u64 = Clock::STRETCH.as_nanos();

/// Nanoseconds of processor time that the calling thread has had (`CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

#[inline]
fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000) + time.tv_nsec as u64
}

/// Lets the calling thread's timers fire when they are due. The kernel otherwise delays them by up
/// to 50 microseconds to save wake-ups. For the helper thread; inherited by threads it starts.
///
/// # Errors
/// Returns an error where a sandbox forbids the call. Timers then fire a little late, no more.
pub fn tighten_timer_slack() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}

#[derive(Debug)]
struct Shared {
    event: NotInherited<OwnedFd>,
    /// [`AWAKE`], [`ASLEEP`] or [`SIGNALLED`].
    state: AtomicU8,
}

/// The waiter is not in a wait, and no thread has woken it.
const AWAKE: u8 = 0;
/// The waiter sleeps or is about to, and needs the event to wake.
const ASLEEP: u8 = 1;
/// A thread has woken it since the last wait ended.
const SIGNALLED: u8 = 2;

impl Shared {
    fn fire(&self) {
        // Cannot block. The only failure, a full counter, leaves the event as readable as wanted.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }

    fn drain(&self) {
        // Cannot block. If the event is empty already, all the better.
        let _ = rustix::io::read(&*self.event, &mut [0; 8]);
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
fn poll_once(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(fds, timeout.as_ref()) {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::INTR) => {
            // The kernel leaves what was there.
            fds.iter_mut().for_each(PollFd::clear_revents);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

//! What a program's threads and the helper tell each other without locking the device.
//!
//! `models/` explores the orders in which they may do so.

use ferroce_device::{Span, Time};

use crate::doorbell::Waiting;
use crate::patience::{LATE, LONG_PAUSE, PAUSE, PAUSES};
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// [`Sleep::until_ps`] of a helper that looks at the device by itself, and soon.
const SOON: u64 = 0;
/// The same of one that sleeps until another thread wakes it.
const WHENEVER: u64 = u64::MAX;

/// The flags and times by which a program's threads and the helper take turns.
///
/// A device has one lock, and the thread that holds it drives the device. What is here is read without that
/// lock, so that each side knows cheaply what the other is doing: whether the program polls, until when
/// the helper sleeps, and whether it keeps watch over requests that wait.
#[derive(Debug, Default)]
pub struct Handshake {
    polls: Polls,
    sleep: Sleep,
    watch: WatchFlags,
}

/// Written at each poll, so in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Polls {
    /// When the program polled last, in picoseconds of the devices' clock; 0 while it is at rest.
    last_ps: AtomicU64,
    /// The program has posted since.
    has_posted: AtomicBool,
    /// When the program last polled after a pause in which it did something else.
    paused_ps: AtomicU64,
    /// It has paused for long since that was asked for.
    has_paused: AtomicBool,
    /// When this was looked at last, and how long the program's thread had run by then.
    checked_ps: AtomicU64,
    ran_ps: AtomicU64,
}

impl Polls {
    #[inline]
    fn note(&self, before: u64, now: Time, ran: impl FnOnce() -> Span) {
        let has_posted = self.has_posted.load(Ordering::Relaxed);
        if has_posted {
            self.has_posted.store(false, Ordering::Relaxed);
        }
        let gap = now.since(Time::from_picos(before));
        // To post some requests that wait takes a while as well, but not for long.
        let limit = if has_posted { LATE } else { PAUSE };
        if before != 0 && gap >= limit {
            self.check(gap, now, ran());
        }
    }

    /// Notes a pause if the program's thread has run in this gap between two polls. Otherwise its core had other
    /// work, and it polls as fast as it can.
    #[cold]
    fn check(&self, gap: Span, now: Time, ran: Span) {
        let order = Ordering::Relaxed;
        let since = Time::from_picos(self.checked_ps.swap(now.as_picos(), order));
        let before = Span::from_picos(self.ran_ps.swap(ran.as_picos(), order));
        // Another thread may have polled last: then this is only a guess.
        let has_run = ran - before;
        let has_not_run = now.since(since) - has_run;
        let pause = gap - has_not_run;
        if pause >= PAUSE {
            self.paused_ps.store(now.as_picos(), order);
        }
        if pause >= LONG_PAUSE {
            self.has_paused.store(true, order);
        }
    }
}

#[derive(Debug, Default)]
struct Sleep {
    /// Until when the helper sleeps if nothing arrives and no thread wakes it. It goes to sleep only
    /// by a value set while it has the device.
    until_ps: AtomicU64,
    /// It sleeps on the socket because the program polls, whatever the device's deadline.
    awaits_absence: AtomicBool,
}

/// The helper reads these all the time while it keeps watch, so they have cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WatchFlags {
    /// What waits, from [`Waiting::to_bits`].
    waiting: AtomicU64,
    /// The program does not poll any more.
    is_at_rest: AtomicBool,
    /// The helper is to keep watch.
    is_wanted: AtomicBool,
    /// It does. A thread that has the device can rely on it: the watch ends only with the device locked.
    is_kept: AtomicBool,
}

/// Polls of the program.
impl Handshake {
    /// The program polls. `ran` tells how long its thread has had a core so far.
    #[inline]
    pub fn note_poll(&self, now: Time, ran: impl FnOnce() -> Span) {
        let (last, order) = (&self.polls.last_ps, Ordering::Relaxed);
        let before = last.load(order);
        last.store(now.as_picos(), order);
        self.polls.note(before, now, ran);
        self.note_rest(false);
    }

    /// Whether the program has paused for [`LONG_PAUSE`] since the last call.
    #[inline]
    pub fn take_pause(&self) -> bool {
        let has_paused = &self.polls.has_paused;
        let is_so = has_paused.load(Ordering::Relaxed);
        if is_so {
            has_paused.store(false, Ordering::Relaxed);
        }
        is_so
    }

    /// The program has posted something that waits.
    #[inline]
    pub fn note_post(&self) {
        self.polls.has_posted.store(true, Ordering::Relaxed);
    }

    /// Whether the program did something else between polls when it polled last, such as watching memory that its
    /// peers write, so that packets wait for the helper.
    #[inline]
    pub fn pauses(&self) -> bool {
        let (paused, last) = (&self.polls.paused_ps, &self.polls.last_ps);
        let [paused, last] = [paused, last].map(|ps| ps.load(Ordering::Relaxed));
        paused != 0 && Time::from_picos(last).since(Time::from_picos(paused)) < PAUSES
    }

    /// What a program does that polls, and others do not only then. One that has come to rest, also
    /// in this moment, stays there.
    #[inline]
    pub fn note_poll_unless_at_rest(&self, now: impl FnOnce() -> Time, ran: impl FnOnce() -> Span) {
        if let Some((before, now)) = self.postpone(now) {
            self.polls.note(before, now, ran);
        }
    }

    /// What the program or the helper has just done for the program has lasted until now.
    #[inline]
    pub fn note_end(&self, now: impl FnOnce() -> Time) {
        self.postpone(now);
    }

    /// Sets the time of the last poll, unless the program is at rest; returns what it was, and what it is.
    #[inline]
    fn postpone(&self, now: impl FnOnce() -> Time) -> Option<(u64, Time)> {
        let (last, order) = (&self.polls.last_ps, Ordering::Relaxed);
        let seen = last.load(order);
        if seen == 0 {
            return None;
        }
        let now = now();
        let outcome = last.compare_exchange(seen, now.as_picos(), order, order);
        outcome.is_ok().then_some((seen, now))
    }

    /// When the program polled last; `None` if it is at rest.
    #[inline]
    pub fn last_poll(&self) -> Option<Time> {
        let last = self.polls.last_ps.load(Ordering::Relaxed);
        (last != 0).then(|| Time::from_picos(last))
    }

    /// The program stops polling. Returns whether the helper waits for that and is to be woken.
    ///
    /// The program says that it is at rest and then looks whether the helper waits for it; the helper
    /// says that it waits and then looks whether the program is at rest. Each has a fence between the
    /// two, so at least one of them sees what the other has done.
    #[must_use]
    pub fn rest(&self) -> bool {
        self.polls.last_ps.store(0, Ordering::Relaxed);
        self.note_rest(true);
        fence(Ordering::SeqCst);
        self.sleep.awaits_absence.load(Ordering::Relaxed)
    }

    /// The helper waits until the program stops polling. Returns whether the program still polls; if
    /// not, it may not know which thread to wake. See [`Self::rest`].
    #[must_use]
    pub fn await_absence(&self) -> bool {
        self.sleep.awaits_absence.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.last_poll().is_some()
    }

    /// The helper waits for that no more.
    pub fn end_absence(&self) {
        self.sleep.awaits_absence.store(false, Ordering::Relaxed);
    }
}

/// Sleep of the helper.
impl Handshake {
    /// The helper, which has the device, will sleep until then, or until it is woken.
    pub fn sleep_until(&self, until: Option<Time>) {
        let until_ps = until.map_or(WHENEVER, Time::as_picos);
        self.sleep.until_ps.store(until_ps, Ordering::Relaxed);
    }

    /// It has woken, and looks at the device.
    pub fn end_sleep(&self) {
        self.sleep.until_ps.store(SOON, Ordering::Relaxed);
    }

    /// Whether the helper sleeps longer than the device can wait, so that it is to be woken; for a
    /// thread that has the device.
    #[inline]
    pub fn sleeps_past(&self, wanted: impl FnOnce() -> Option<Time>) -> bool {
        let until = self.sleep.until_ps.load(Ordering::Relaxed);
        until != SOON && wanted().map_or(WHENEVER, Time::as_picos) < until
    }
}

/// The helper's watch over requests that wait.
impl Handshake {
    /// What waits, for a thread that does not have the device.
    #[inline]
    pub fn waiting(&self) -> Waiting {
        Waiting::from_bits(self.watch.waiting.load(Ordering::Relaxed))
    }

    /// Says what waits; for a thread that is about to let the device go.
    #[inline]
    pub fn tell(&self, waiting: Waiting) {
        let (cell, bits) = (&self.watch.waiting, waiting.to_bits());
        if cell.load(Ordering::Relaxed) != bits {
            cell.store(bits, Ordering::Relaxed);
        }
    }

    #[inline]
    fn note_rest(&self, is_at_rest: bool) {
        let cell = &self.watch.is_at_rest;
        if cell.load(Ordering::Relaxed) != is_at_rest {
            cell.store(is_at_rest, Ordering::Relaxed);
        }
    }

    /// Whether the program does not poll any more, as the watch needs to know it.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.watch.is_at_rest.load(Ordering::Relaxed)
    }

    /// Asks the helper to keep watch. Returns whether it is to be woken for that.
    #[must_use]
    pub fn ask_for_watch(&self) -> bool {
        !self.watch.is_wanted.swap(true, Ordering::Relaxed)
    }

    /// Whether the helper is asked to keep watch.
    pub fn is_watch_wanted(&self) -> bool {
        self.watch.is_wanted.load(Ordering::Relaxed)
    }

    /// Whether the helper keeps watch. For a thread that has the device, it does so until that thread
    /// lets the device go.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watch.is_kept.load(Ordering::Relaxed)
    }

    /// The helper keeps watch.
    pub fn begin_watch(&self) {
        let begun = self.watch.is_kept.swap(true, Ordering::Relaxed);
        debug_assert!(!begun, "one thread keeps watch");
    }

    /// The helper, which has the device and has sent all that waited, keeps watch no more.
    pub fn end_watch(&self) {
        self.watch.is_wanted.store(false, Ordering::Relaxed);
        self.watch.is_kept.store(false, Ordering::Relaxed);
    }
}

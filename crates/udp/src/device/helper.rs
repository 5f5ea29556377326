//! The helper thread: serves the device while the program does not.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::progress::{Held, STREAM_PACKETS, Shared};
use crate::engine::{Engine, Transmitted};
use crate::wait::{Clock, Waiter, tighten_timer_slack};

/// A program that has polled within this time is at it: whoever spins polls far more often.
const POLLING: Duration = Duration::from_micros(20);
/// How long after the program's last poll the helper thread, once it stands back, stays out of its
/// way.
const STAND_BACK: Duration = Duration::from_micros(200);
/// A program that has polled within this time goes on soon, perhaps when it sees what arrives in
/// its memory: its core is better left to it.
const AROUND: Duration = Duration::from_millis(10);
/// How often it looks meanwhile: each look takes a core from a program that spins on it, and a
/// program that stops polling without a word leaves its peers waiting for the next look.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// So often in a row the helper must be woken for nothing, since the program polls, until it stands
/// back.
const SPARED_MAX: u32 = 4;
/// How long the helper leaves an acknowledgement to a program that is around: if the packet is what
/// the program waits for, both leave with its next request, as when the program had polled.
const LEAVE: Duration = Duration::from_micros(20);
/// How long the helper thread spins after a packet before it sleeps: waking up costs more.
const SPIN: Duration = Duration::from_micros(50);
/// [`Shared::helper_until_ns`] of a helper that looks at the device by itself, and soon.
pub(super) const SOON: u64 = 0;
/// The same of one that sleeps until somebody wakes it.
pub(super) const WHENEVER: u64 = u64::MAX;

impl Shared {
    /// The time since the program's last poll; for ever if it rests.
    fn since_poll(&self) -> Duration {
        match self.last_poll_ns.load(Ordering::Relaxed) {
            0 => Duration::MAX,
            last => Duration::from_nanos(Clock.now_ns().saturating_sub(last)),
        }
    }

    /// The engine for the helper, unless a program that is around has it. That counts as a poll,
    /// since it may last: a window takes hundreds of microseconds to send, and a helper that queues
    /// up for its lock costs such a program a system call each time.
    fn lock_for_helper(&self) -> Option<Held<'_>> {
        if self.is_at_rest() {
            return Some(self.lock());
        }
        let engine = self.try_lock();
        if engine.is_none() {
            self.note_poll_unless_at_rest();
        }
        engine
    }

    /// The helper thread: serves the device while the program does not.
    pub(super) fn help(&self, mut waiter: Waiter) {
        let _on_panic = FailOnPanic(self);
        let _ = self.helper.set(thread::current());
        // Without it timers are up to 50 us late.
        let _ = tighten_timer_slack();
        let mut last_packet = Clock.now_ns();
        let mut stands_back = false;
        let mut spared = 0;
        while !self.stop.load(Ordering::Acquire) {
            let since_poll = self.since_poll();
            if stands_back && since_poll < STAND_BACK {
                thread::park_timeout(LOOK_AGAIN);
                continue;
            }
            stands_back = false;
            if since_poll < POLLING {
                spared += 1;
                stands_back = spared > SPARED_MAX || !self.await_absence(&mut waiter);
                continue;
            }
            let is_around = since_poll < AROUND;
            self.give_way();
            let Some(mut engine) = self.lock_for_helper() else {
                continue;
            };
            spared = 0;
            let began = Engine::now();
            let mut received = self.receive_round(&mut engine);
            if let Ok(0) = received {
                // Before it rests, not only what is announced: whoever sent it may have died before
                // he could.
                received = Ok(engine.receive_mail(&self.socket));
            }
            let due = engine.run_timers(began, &self.socket);
            let is_little = matches!(received, Ok(1..=STREAM_PACKETS));
            if is_around && is_little && !due {
                let left = engine.hca.wants_transmit();
                self.deferred.store(left, Ordering::Relaxed);
                self.publish(&mut engine);
                drop(engine);
                thread::park_timeout(LEAVE);
                match self.lock_for_helper() {
                    Some(again) => engine = again,
                    None => continue,
                }
            }
            let sent = engine.transmit(&self.socket);
            let more = sent == Transmitted::More;
            self.deferred.store(more, Ordering::Relaxed);
            self.publish(&mut engine);
            let now = Clock.now_ns();
            let spun = now.saturating_sub(last_packet) >= SPIN.as_nanos() as u64;
            let deadline = engine.poll_timeout();
            let blocked = engine.is_blocked();
            let idle = matches!(received, Ok(0)) && !more;
            let sleeps = idle && (spun || is_around) && !engine.hca.rest();
            if sleeps {
                let until = deadline.map_or(WHENEVER, |at| Clock.nanos_at(at));
                self.helper_until_ns.store(until, Ordering::Relaxed);
            }
            drop(engine);

            match received {
                Ok(0) if sleeps => {
                    let left = deadline
                        .map(|at| Duration::from_nanos(Clock.nanos_at(at).saturating_sub(now)));
                    let woken = waiter.wait_also(&self.socket, self.besides(), left, blocked);
                    self.helper_until_ns.store(SOON, Ordering::Relaxed);
                    if woken.is_err() {
                        thread::park_timeout(LOOK_AGAIN);
                    }
                }
                Ok(0) => thread::yield_now(),
                Ok(_) => last_packet = now,
                // The socket is gone for good; timers still run, so that queue pairs fail in time.
                Err(_) => thread::park_timeout(LOOK_AGAIN),
            }
        }
    }

    /// Where packets arrive besides the device's own socket.
    fn besides(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let mailbox = self.mailbox.as_ref().map(|mailbox| mailbox.as_fd());
        [mailbox, Some(self.groups.as_fd())]
    }

    /// The helper, while the program polls: waits until something arrives that the program leaves
    /// lying, as one does that has turned to looking at its memory. False if nothing arrives for a
    /// while that stays longer than a program takes that polls.
    fn await_absence(&self, waiter: &mut Waiter) -> bool {
        self.awaits_absence.store(true, Ordering::SeqCst);
        // If the program came to rest before that, it did not know whom to wake.
        let left = match self.last_poll_ns.load(Ordering::SeqCst) {
            0 => Duration::ZERO,
            _ => LOOK_AGAIN,
        };
        let woken = waiter.wait_also(&self.socket, self.besides(), Some(left), false);
        self.awaits_absence.store(false, Ordering::SeqCst);
        match woken {
            Ok(wake) if wake.readable => thread::park_timeout(POLLING),
            Ok(wake) if wake.woken => {}
            _ => return false,
        }
        true
    }
}

/// Has the device fail when the helper thread dies of a panic.
struct FailOnPanic<'a>(&'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail();
        }
    }
}

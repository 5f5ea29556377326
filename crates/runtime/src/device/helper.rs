//! The helper: serves the device while the program does not.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use ferroce_device::Time;
use ferroce_driver::patience::{COUNT, LEAVE, LOOK_AGAIN, POLLING};
use ferroce_driver::{Helper, Look, Next, Waited};
use ferroce_os::{Clock, Program, Waiter, shorten_slice, tighten_timer_slack};

use ferroce_registry::Reader;

use super::lock::EngineGuard;
use super::progress::Shared;
use super::stoppable::{CHECK, Stoppable};

impl Shared {
    /// The engine for the helper, unless a program that is around has it. That counts as a poll,
    /// since it may last: a window takes hundreds of microseconds to send, and a helper that queues
    /// up for its lock costs such a program a system call each time.
    fn lock_for_helper(&self, program: Option<&Stoppable<'_>>) -> Option<EngineGuard<'_>> {
        let is_at_rest = self.engine.handshake.last_poll().is_none();
        match program {
            None if is_at_rest => Some(self.lock()),
            Some(program) if is_at_rest => {
                let engine = self.lock_beside(program);
                if engine.is_none() {
                    thread::park_timeout(LEAVE.into());
                }
                engine
            }
            program => {
                let engine = self.try_lock_for_helper(program);
                if engine.is_none() {
                    self.engine.handshake.note_end(|| Clock.now());
                }
                engine
            }
        }
    }

    /// The helper: serves the device while the program does not. `program` is given if this is not one of
    /// its threads, but runs while they are stopped.
    pub(super) fn help(&self, mut waiter: Waiter, program: Option<&Program>) {
        let _on_panic = FailOnPanic(self);
        let program = program.map(Stoppable::new);
        let program = program.as_ref();
        self.helper.begin();
        // Without it timers are up to 50 us late.
        let _ = tighten_timer_slack();
        // Without it one that has given its core away may get it back 4 ms later.
        let _ = shorten_slice();
        let mut helper = Helper::new(Clock.now());
        let mut count_at = Time::ZERO;
        while !self.helper.is_stopped() && program.is_none_or(Stoppable::is_there) {
            if self.engine.handshake.is_watch_wanted() {
                self.keep_watch(program);
            }
            let (now, handshake) = (Clock.now(), &self.engine.handshake);
            if now >= count_at {
                count_at = now.after(COUNT);
                self.look_for_crowd();
            }
            let (polled, pauses) = (handshake.last_poll(), handshake.pauses());
            match helper.look(now, polled, pauses, self.is_crowded()) {
                Look::StandBack(pause) => thread::park_timeout(pause.into()),
                Look::AwaitAbsence(limit) => {
                    helper.has_waited(self.await_absence(&mut waiter, limit.into()));
                }
                Look::Drive { is_around } => {
                    self.drive(&mut helper, is_around, &mut waiter, program);
                }
            }
        }
    }

    /// The helper drives the device for a round, and rests as it decides.
    fn drive(
        &self,
        helper: &mut Helper,
        is_around: bool,
        waiter: &mut Waiter,
        program: Option<&Stoppable<'_>>,
    ) {
        self.engine.give_way();
        let Some(mut engine) = self.lock_for_helper(program) else {
            return;
        };
        helper.has_begun();
        let round = engine.take(is_around);
        // It looks again before it sleeps, so nothing needs to wake it until then.
        self.set_awake();
        if helper.leaves_answer(round) {
            engine.defer();
            self.publish(&mut engine);
            drop(engine);
            thread::park_timeout(LEAVE.into());
            match self.lock_for_helper(program) {
                Some(again) => engine = again,
                None => return,
            }
        }
        let sent = engine.send();
        self.publish(&mut engine);
        let (now, deadline) = (Clock.now(), engine.poll_timeout());
        let blocked = engine.link.awaits_socket();
        let is_other_blocked = engine.link.awaits_further_socket();
        let next = helper.next(now, round, sent, deadline);
        let mut next = engine.tidy(round, next);
        if matches!(next, Next::Sleep(_)) {
            self.set_asleep();
            if engine.link.has_near() {
                self.set_awake();
                next = Next::Again;
            }
        }
        if let Next::Sleep(until) = next {
            self.engine.handshake.sleep_until(until);
        }
        drop(engine);
        match next {
            Next::Again => {}
            Next::Spin => thread::yield_now(),
            Next::Pause(pause) => thread::park_timeout(pause.into()),
            Next::Sleep(until) => {
                let mut left = until.map(|at| at.since(now).into());
                let look = match program {
                    // That it takes more does not end the wait.
                    _ if is_other_blocked => Some(LOOK_AGAIN),
                    // Neither does the end of the program.
                    Some(_) => Some(CHECK),
                    None => None,
                };
                if let Some(look) = look.map(Duration::from) {
                    left = Some(left.map_or(look, |left: Duration| left.min(look)));
                }
                let woken = waiter.wait_also(&*self.first.socket, self.besides(), left, blocked);
                self.set_awake();
                self.engine.handshake.end_sleep();
                if woken.is_err() {
                    thread::park_timeout(LOOK_AGAIN.into());
                }
            }
        }
    }

    /// From now on peers on this host wake the helper for what they put into rings. What they have put
    /// there before is to be looked for after that.
    fn set_asleep(&self) {
        self.readers().for_each(Reader::set_asleep);
    }

    fn set_awake(&self) {
        self.readers().for_each(Reader::set_awake);
    }

    fn readers(&self) -> impl Iterator<Item = &Reader> {
        self.berths().filter_map(|berth| berth.reader.as_ref())
    }

    /// Where packets arrive besides the socket of the first port.
    fn besides(&self) -> [Option<BorrowedFd<'_>>; 3] {
        let [mailbox, groups] = self.first.besides();
        let second = self.second.as_ref().map(|second| second.watch.as_fd());
        [mailbox, groups, second]
    }

    /// The helper, while the program polls: waits until something arrives that the program leaves
    /// lying.
    fn await_absence(&self, waiter: &mut Waiter, limit: Duration) -> Waited {
        let left = match self.engine.handshake.await_absence() {
            true => limit,
            false => Duration::ZERO,
        };
        self.set_asleep();
        let has_near = self.try_lock().is_some_and(|engine| engine.link.has_near());
        let left = if has_near { Duration::ZERO } else { left };
        let woken = waiter.wait_also(&*self.first.socket, self.besides(), Some(left), false);
        self.set_awake();
        self.engine.handshake.end_absence();
        // A program that polls takes what a ring has, and leaves what has woken the helper for it:
        // that would wake it again and again.
        if self.readers().next().is_some()
            && woken.as_ref().is_ok_and(|wake| wake.readable)
            && let Some(mut engine) = self.try_lock()
        {
            engine.link.look_at_lines();
        }
        match woken {
            Ok(wake) if wake.readable || has_near => {
                if !self.engine.handshake.pauses() {
                    thread::park_timeout(POLLING.into());
                }
                Waited::Arrived
            }
            Ok(wake) if wake.woken => Waited::Woken,
            _ => Waited::InVain,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::{Side, pair};
    use crate::links::Engine;

    /// What the helper does last before it sleeps; whether it may.
    fn falls_asleep(side: &Side) -> bool {
        let shared = &side.device.shared;
        let engine = shared.lock();
        shared.set_asleep();
        !engine.link.has_near()
    }

    /// Whether the helper, asleep, would wake now.
    fn wakes(side: &mut Side) -> bool {
        let shared = &side.device.shared;
        let now = Some(Duration::ZERO);
        let woken = side
            .waiter
            .wait_also(&*shared.first.socket, shared.besides(), now, false);
        woken.unwrap().readable
    }

    /// What wakes the helper of a device is seen by threads that poll as well. It is not lost for the
    /// helper when one of them takes it, and the program then turns to something else.
    #[test]
    fn a_thread_that_takes_a_wake_up_leaves_the_next_to_the_helper() {
        let (sender, mut target, _place) = pair(1);
        sender.writes(&target, 1);
        sender.succeed(&target, 1);

        assert!(falls_asleep(&target) && !wakes(&mut target));
        sender.writes(&target, 1);
        assert!(wakes(&mut target));
        // Its program polls in this moment, and takes what was to wake it.
        target.with_engine(Engine::receive_aside);
        assert!(!wakes(&mut target));
        sender.succeed(&target, 1);

        // The helper sleeps on, and no thread polls.
        sender.writes(&target, 1);
        assert!(wakes(&mut target));
    }
}

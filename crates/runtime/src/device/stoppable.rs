//! A helper that runs while its program is stopped.

use std::cell::Cell;
use std::thread;

use ferroce_device::{Span, Time};
use ferroce_driver::patience::LOOK_AGAIN;
use ferroce_os::{Clock, Program};

use super::lock::EngineGuard;
use super::progress::Shared;

/// When to try again if the program could not be run on, or did not let the device go.
const TRY_AGAIN: Span = Span::from_millis(20);
/// How often to look whether the program is there.
pub(super) const CHECK: Span = Span::from_secs(1);
/// How often the helper tries to take the engine before it sleeps.
const TRIES: usize = 100;

/// A program that may be stopped while its helper, a companion, runs.
pub(super) struct Stoppable<'a> {
    program: &'a Program,
    /// When to look next whether it is stopped.
    next_look: Cell<Time>,
    /// When to look next whether it is there.
    next_check: Cell<Time>,
}

impl<'a> Stoppable<'a> {
    pub(super) fn new(program: &'a Program) -> Self {
        Self {
            program,
            next_look: Cell::new(Time::ZERO),
            next_check: Cell::new(Time::ZERO),
        }
    }

    /// Whether it was there within the last [`CHECK`].
    pub(super) fn is_there(&self) -> bool {
        let now = Clock.now();
        if now < self.next_check.get() {
            return true;
        }
        self.next_check.set(now.after(CHECK));
        self.program.is_there()
    }

    /// If the program is stopped, lets it run on until `lock` succeeds.
    fn run_on<T>(&self, lock: impl FnMut() -> Option<T>) -> Option<T> {
        let now = Clock.now();
        if now < self.next_look.get() {
            return None;
        }
        let is_stopped = self.program.is_stopped();
        let locked = is_stopped.then(|| self.program.run_on(lock)).flatten();
        let failed = is_stopped && locked.is_none();
        let pause = if failed { TRY_AGAIN } else { LOOK_AGAIN };
        self.next_look.set(Clock.now().after(pause));
        locked
    }
}

impl Shared {
    /// The engine for the helper of a program that is at rest, unless another thread keeps it.
    ///
    /// A mutex cannot be waited for here: if the program is stopped then, the wait lasts until it continues.
    pub(super) fn lock_beside(&self, program: &Stoppable<'_>) -> Option<EngineGuard<'_>> {
        self.with_reservation(|| {
            let mut tries = (0..TRIES).map(|_| self.try_lock_reserved());
            let engine = tries.find_map(|engine| {
                if engine.is_none() {
                    thread::yield_now();
                }
                engine
            });
            engine.or_else(|| program.run_on(|| self.try_lock_reserved()))
        })
    }

    /// [`Self::try_lock`] for the helper: if the thread that has the engine is stopped with its program, it
    /// runs on until it lets the engine go.
    pub(super) fn try_lock_for_helper(
        &self,
        program: Option<&Stoppable<'_>>,
    ) -> Option<EngineGuard<'_>> {
        let run_on = || program?.run_on(|| self.try_lock_reserved());
        let engine = self.try_lock();
        match program {
            Some(_) if engine.is_none() => self.with_reservation(run_on),
            _ => engine,
        }
    }

    /// Keeps other threads from taking the engine meanwhile. One that takes it in a loop lets it go for
    /// nanoseconds only.
    fn with_reservation<R>(&self, lock: impl FnOnce() -> R) -> R {
        self.engine.reserve(true);
        let result = lock();
        self.engine.reserve(false);
        result
    }

    fn try_lock_reserved(&self) -> Option<EngineGuard<'_>> {
        self.unless_busy(self.engine.try_lock_reserved())
    }
}

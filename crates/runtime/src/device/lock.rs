//! The lock of a device, and which thread has it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::{fmt, ptr, thread};

use crossbeam_utils::CachePadded;
use ferroce_driver::Handshake;
use ferroce_os as os;

use super::idle_window::IdleWindow;
use crate::links::Engine;

/// How often a thread that drives the device in a loop yields to a thread that waits for it. A mutex is
/// not fair, and waking up takes longer than taking it again.
const GIVE_WAY: usize = 100;

/// The engine, which one thread at a time has.
pub(super) struct EngineLock {
    engine: CachePadded<Mutex<Engine>>,
    /// The process that opened the device.
    forks: u64,
    /// See [`Self::mark_failed`].
    failed: AtomicBool,
    /// See [`Self::reserve`].
    reserved: AtomicBool,
    /// Instead of `engine` once that has failed, and in a child of that process: a device without
    /// anything. A thread that the child does not have may hold the lock of the other one.
    empty: OnceLock<Mutex<Engine>>,
    make_empty: Box<dyn Fn() -> Engine + Send + Sync>,
    /// Threads that wait for the engine.
    wanted: AtomicUsize,
    /// The thread that has the engine, as [`this_thread`] names it; 0 if none has.
    owner: CachePadded<AtomicUsize>,
    /// Ends when a thread takes the engine.
    pub(super) idle: IdleWindow,
    /// Hears what waits when a thread lets the engine go.
    pub(super) handshake: Handshake,
}

/// Why a thread cannot have the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// Another thread has it.
    Busy,
    /// A thread has panicked with it.
    Poisoned,
}

impl EngineLock {
    pub(super) fn new(
        engine: Engine,
        make_empty: impl Fn() -> Engine + Send + Sync + 'static,
    ) -> Self {
        Self {
            engine: CachePadded::new(Mutex::new(engine)),
            forks: os::forks(),
            failed: AtomicBool::new(false),
            reserved: AtomicBool::new(false),
            empty: OnceLock::new(),
            make_empty: Box::new(make_empty),
            wanted: AtomicUsize::new(0),
            owner: CachePadded::default(),
            idle: IdleWindow::default(),
            handshake: Handshake::default(),
        }
    }

    #[inline]
    pub(super) fn is_orphaned(&self) -> bool {
        self.forks != os::forks()
    }

    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// From now on the engine is an empty one. Returns whether it was so before.
    pub(super) fn mark_failed(&self) -> bool {
        self.failed.swap(true, Ordering::Relaxed)
    }

    /// Whether this thread has the engine: it is in a handler that has interrupted a call, or has jumped
    /// out of one. It would wait for itself.
    #[inline]
    pub(super) fn is_in_call(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner == this_thread()
    }

    /// Lets those have the engine who wait for it. For loops, which would otherwise keep it.
    #[inline]
    pub(super) fn give_way(&self) {
        for _ in 0..GIVE_WAY {
            if self.wanted.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }

    /// As long as this is true, only [`Self::try_lock_reserved`] takes the engine.
    pub(super) fn reserve(&self, reserved: bool) {
        self.reserved.store(reserved, Ordering::Relaxed);
    }

    #[inline]
    fn is_reserved(&self) -> bool {
        // A child of `fork` has an engine of its own.
        self.reserved.load(Ordering::Relaxed) && !self.is_orphaned()
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Result<EngineGuard<'_>, Refused> {
        match self.is_reserved() {
            true => Err(Refused::Busy),
            false => self.try_lock_reserved(),
        }
    }

    #[inline]
    pub(super) fn try_lock_reserved(&self) -> Result<EngineGuard<'_>, Refused> {
        match self.current().try_lock() {
            Ok(engine) => Ok(self.guard(engine)),
            Err(TryLockError::Poisoned(_)) => Err(Refused::Poisoned),
            Err(TryLockError::WouldBlock) => Err(Refused::Busy),
        }
    }

    /// Waits for the engine; never [`Refused::Busy`].
    #[cold]
    pub(super) fn wait(&self) -> Result<EngineGuard<'_>, Refused> {
        while self.is_reserved() {
            thread::yield_now();
        }
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let engine = self.current().lock();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        engine
            .map(|engine| self.guard(engine))
            .map_err(|_| Refused::Poisoned)
    }

    /// The empty engine of a device that has failed.
    pub(super) fn lock_empty(&self) -> EngineGuard<'_> {
        let empty = self.empty().lock();
        self.guard(empty.unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    fn current(&self) -> &Mutex<Engine> {
        if self.is_orphaned() || self.has_failed() {
            self.empty()
        } else {
            &self.engine
        }
    }

    fn empty(&self) -> &Mutex<Engine> {
        self.empty.get_or_init(|| Mutex::new((self.make_empty)()))
    }

    #[inline]
    fn guard<'a>(&'a self, engine: MutexGuard<'a, Engine>) -> EngineGuard<'a> {
        self.owner.store(this_thread(), Ordering::Relaxed);
        self.idle.end();
        EngineGuard { engine, lock: self }
    }
}

/// The engine in the hands of a thread.
pub(super) struct EngineGuard<'a> {
    engine: MutexGuard<'a, Engine>,
    lock: &'a EngineLock,
}

impl fmt::Debug for EngineGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

impl Deref for EngineGuard<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for EngineGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

impl Drop for EngineGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Before another thread can have it.
        self.lock.handshake.tell(self.engine.waiting());
        self.lock.owner.store(0, Ordering::Relaxed);
    }
}

/// A number that no other thread has at this time, and not 0.
#[inline]
fn this_thread() -> usize {
    thread_local! {
        static OWN: u8 = const { 0 };
    }
    OWN.with(|own| ptr::from_ref(own) as usize)
}

//! The state of devices in a child after `fork`.
//!
//! Devices stay with the parent: the child opens its own. It can query inherited devices and their
//! ports, and it can destroy its copies of the objects, which still belong to the parent; every
//! other call on them fails with ENODEV.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::{MutexGuard, Once, PoisonError};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use ferroce_border::border;
use ferroce_os::Tap;

use crate::{adapter, capture, xrc};

/// Passed by every thread that is in a list of this library, and closed by a thread that forks: the
/// child's copies of the lists are whole, and nobody who does not exist there has them locked. Who
/// has passed does not wait for a device that others use: they may be waiting at the gate.
static GATE: RwLock<()> = RwLock::new(());

pub(crate) type Pass = RwLockReadGuard<'static, ()>;

/// Keeps other threads from forking. Not to be asked for twice at a time.
pub(crate) fn pass() -> Pass {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// All that a child needs and another thread may have locked, in the order in which threads take
/// them.
struct Held {
    _xrc: MutexGuard<'static, ()>,
    _gate: RwLockWriteGuard<'static, ()>,
    _listed: MutexGuard<'static, Vec<&'static adapter::Listed>>,
    _capture: MutexGuard<'static, Option<Tap>>,
}

/// What is held from before a fork until after it.
struct Cell(UnsafeCell<Option<Held>>);

// SAFETY: only the thread that holds the gate reaches it.
unsafe impl Sync for Cell {}

static HELD: Cell = Cell(UnsafeCell::new(None));

/// Prepares for forks from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: registers functions that live as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    });
}

#[border(nothing)]
unsafe extern "C" fn before() {
    let held = Held {
        _xrc: xrc::changes(),
        _gate: GATE.write().unwrap_or_else(PoisonError::into_inner),
        _listed: adapter::listed(),
        _capture: capture::capture(),
    };
    // SAFETY: this thread holds the gate.
    unsafe { *HELD.0.get() = Some(held) };
}

#[border(nothing)]
unsafe extern "C" fn after() {
    // SAFETY: this thread has held the gate since `before`. It is out of the cell before it opens.
    let held = unsafe { (*HELD.0.get()).take() };
    drop(held);
}

#[border(nothing)]
unsafe extern "C" fn in_child() {
    ferroce_os::after_fork_in_child();
    // SAFETY: the child's only thread is the one that was in `before`.
    unsafe { after() };
    adapter::forget_all();
    capture::forget();
}

/// Nothing is left to be done (ibv_fork_init(3)).
#[border(status)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`: the device reads a process's memory as the process does
/// (ibv_is_fork_initialized(3)).
#[border(value)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}

//! What `fork` leaves to the child.
//!
//! Devices stay with the parent, as with any card: the child opens its own. Objects that it has
//! inherited can be queried and destroyed, but no packet comes or goes.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{adapter, capture};

/// Passed by every thread that is in a list of this library, and closed by a thread that forks: the
/// child's copies of the lists are whole, and nobody who does not exist there has them locked.
static GATE: RwLock<()> = RwLock::new(());

pub(crate) type Pass = RwLockReadGuard<'static, ()>;

/// Keeps other threads from forking. Not to be asked for twice at a time.
pub(crate) fn pass() -> Pass {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// The closed gate, from before a fork until after it.
struct Closed(UnsafeCell<Option<RwLockWriteGuard<'static, ()>>>);

// SAFETY: only the thread that has the gate closed reaches it.
unsafe impl Sync for Closed {}

static CLOSED: Closed = Closed(UnsafeCell::new(None));

/// Prepares for forks from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: registers functions that live as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

unsafe extern "C" fn before() {
    let gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the gate is this thread's.
    unsafe { *CLOSED.0.get() = Some(gate) };
}

unsafe extern "C" fn in_parent() {
    // SAFETY: the gate is still this thread's, and this opens it.
    unsafe { *CLOSED.0.get() = None };
}

unsafe extern "C" fn in_child() {
    adapter::forget_all();
    capture::forget();
    // SAFETY: the only thread there is has closed the gate before.
    unsafe { *CLOSED.0.get() = None };
}

/// Nothing is left to be done (ibv_fork_init(3)).
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`: the device reads a process's memory as the process does
/// (ibv_is_fork_initialized(3)).
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}

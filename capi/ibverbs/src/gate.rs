//! Locks that a thread takes before it forks, so that the child's copies of what they guard are whole
//! and unlocked.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Passed by every thread that is in a list of this library, and closed by a thread that forks. A
/// thread that has passed does not wait for a device that other threads use: these may be waiting at
/// the gate.
static GATE: RwLock<()> = RwLock::new(());

pub(crate) type Pass = RwLockReadGuard<'static, ()>;
pub(crate) type Closed = RwLockWriteGuard<'static, ()>;

/// Keeps other threads from forking. Must not be called again while the result lives.
pub(crate) fn pass() -> Pass {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no thread has passed, and lets none pass.
pub(crate) fn close() -> Closed {
    GATE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held while XRC domains are opened and closed, so that the last opener of a file is known. Comes
/// before the gate.
pub(crate) fn xrc_changes() -> MutexGuard<'static, ()> {
    static CHANGES: Mutex<()> = Mutex::new(());
    CHANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

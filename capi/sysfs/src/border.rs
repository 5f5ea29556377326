//! The border between a program's call of the C library and what this library does for it.
//!
//! The functions here pass on the calls of all programs, some of which wait, and so are where threads
//! are cancelled: the C library unwinds the thread through them (`extern "C-unwind"`), and they have
//! nothing to drop. What this library does itself, with files and allocations, runs in [`inside`].

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// `PTHREAD_CANCEL_DISABLE` of pthread.h.
const DISABLE: c_int = 1;

// SAFETY: as pthread_setcancelstate(3) says.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Runs a part of this library, from which the thread is not cancelled, and which nothing ends: a
/// panic, of which Rust tells on standard error, is `None`.
pub(crate) fn inside<T>(part: impl FnOnce() -> T) -> Option<T> {
    let mut before = 0;
    // SAFETY: a state there is, and a local variable.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    // There is nothing that a panic could leave half-done: the library keeps no state but flags.
    let done = catch_unwind(AssertUnwindSafe(part));
    // SAFETY: the state from before.
    unsafe { pthread_setcancelstate(before, null_mut()) };
    done.ok()
}

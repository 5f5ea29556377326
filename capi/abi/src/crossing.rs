//! The crossing from a C program into the library that it calls, which stops two things:
//!
//! - **Panics.** Unwinding into C would end the process. Instead, the call fails.
//! - **Cancellation** (pthread_cancel(3)). The C library cancels a thread by unwinding it from
//!   within a system call, which Rust code does not survive. The thread therefore cannot be
//!   cancelled during a call.
//!
//! What a call returns after a panic, and what else fails with it, is decided by
//! [`mod@crate::border`], or by the library itself.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::ptr::{null, null_mut};

/// Runs a call from C. After a panic it runs `failed`, and the result is `None`.
///
/// What a panic can have left half-done must not be used again; `failed` sees to that.
#[inline]
pub fn cross<T>(call: impl FnOnce() -> T, failed: impl FnOnce()) -> Option<T> {
    let _uncancelled = Uncancelled::new();
    catch(call, failed)
}

/// Runs what makes system calls in a call that often makes none, and that only [`catch`]es: the thread is
/// not cancelled meanwhile.
#[inline]
pub fn uncancelled<T>(call: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::new();
    call()
}

/// [`cross`] for a call that makes no system call, so that it is not a place to cancel a thread anyway.
#[inline]
pub fn catch<T>(call: impl FnOnce() -> T, failed: impl FnOnce()) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(payload) => {
            fail(payload, failed);
            None
        }
    }
}

#[cold]
fn fail(payload: Box<dyn Any + Send>, failed: impl FnOnce()) {
    // Another panic would change nothing.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    let _ = catch_unwind(AssertUnwindSafe(failed));
}

/// What a panic said, and where: for the one line that a panic hook writes.
#[must_use]
pub fn panic_text(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown");
    match info.location() {
        Some(place) => format!("{text} ({place})"),
        None => format!("{text} (an unknown place)"),
    }
}

/// A pointer as C has them.
pub trait Pointer {
    /// The one that leads nowhere.
    const NULL: Self;
}

impl<T> Pointer for *const T {
    const NULL: Self = null();
}

impl<T> Pointer for *mut T {
    const NULL: Self = null_mut();
}

/// While it lives, the thread is not cancelled.
struct Uncancelled {
    before: c_int,
}

/// `PTHREAD_CANCEL_DISABLE` of pthread.h.
const DISABLE: c_int = 1;

// SAFETY: the declaration of pthread_setcancelstate(3).
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    #[inline]
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: a valid state, and a pointer to a local variable.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // Of a thread that could not be cancelled before, in a call within a call, nothing changes.
        if self.before != DISABLE {
            // SAFETY: a state that the same function returned; null asks for no result. A thread whose
            // cancellation is deferred, as it is by default, is not cancelled by this call.
            unsafe { pthread_setcancelstate(self.before, null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::panic_any;

    use super::*;

    /// Whether the calling thread can be cancelled.
    fn is_cancellable() -> bool {
        let mut before = 0;
        // SAFETY: valid states, and pointers to local variables or null.
        unsafe {
            pthread_setcancelstate(DISABLE, &raw mut before);
            pthread_setcancelstate(before, null_mut());
        }
        before != DISABLE
    }

    #[test]
    fn a_call_cannot_be_cancelled_and_its_thread_can_afterwards() {
        let within = || cross(is_cancellable, || ());
        assert!(is_cancellable());
        assert_eq!(cross(within, || ()), Some(Some(false)));
        assert!(is_cancellable());
    }

    #[test]
    fn a_panic_is_no_result() {
        /// Panics when it is dropped.
        struct Worse;
        impl Drop for Worse {
            fn drop(&mut self) {
                panic!("on purpose, again");
            }
        }

        let failures = Cell::new(0);
        let failed = || failures.set(failures.get() + 1);
        assert_eq!(cross(|| 1, failed), Some(1));
        assert_eq!(cross::<()>(|| panic!("on purpose"), failed), None);
        assert_eq!(catch::<()>(|| panic_any(Worse), failed), None);
        assert_eq!(catch::<()>(|| panic!("on purpose"), || panic!("too")), None);
        assert_eq!(failures.get(), 2);
        assert!(is_cancellable());
    }
}

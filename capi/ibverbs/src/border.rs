//! The border between C programs and the library.
//!
//! Everything that a program calls is marked [`#[border]`](ferroce_border::border), and so runs in
//! one of the functions here. What does not get past them:
//!
//! - **Panics.** Unwinding into C ends the process. The call fails instead, and all devices of the
//!   process with it: what the panic has left half-done must not reach a peer or the program.
//! - **Cancellation** (pthread_cancel(3)). The C library cancels a thread by unwinding it from within
//!   a system call, which Rust code does not survive. So the thread cannot be cancelled in a call.
//!   The calls that wait for a program's events can: they leave the library to wait
//!   (`events`), as programs rely on it.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::Once;

use crate::adapter;
use crate::error::{report, set_errno};

/// A call that returns 0 or an error number.
pub fn status(call: impl FnOnce() -> c_int) -> c_int {
    cross(call).unwrap_or(libc::EIO)
}

/// A call that returns a number, or -1.
pub fn number<T: From<i8>>(call: impl FnOnce() -> T) -> T {
    cross(call).unwrap_or_else(|| T::from(-1))
}

/// A call that returns a pointer, or null.
pub fn pointer<P: Pointer>(call: impl FnOnce() -> P) -> P {
    cross(call).unwrap_or(P::NULL)
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

/// A call that returns a value and cannot fail.
pub fn value<T: Default>(call: impl FnOnce() -> T) -> T {
    cross(call).unwrap_or_default()
}

/// A call that returns nothing.
pub fn nothing(call: impl FnOnce()) {
    cross(call);
}

/// A call that reads or notes something and makes no system call, so that it is no place to cancel a
/// thread anyway. Programs make ten of them for a completion.
#[inline]
pub fn field<T: Default>(call: impl FnOnce() -> T) -> T {
    unpanicked(call).unwrap_or_default()
}

#[inline]
fn cross<T>(call: impl FnOnce() -> T) -> Option<T> {
    let _uncancelled = Uncancelled::new();
    unpanicked(call)
}

#[inline]
fn unpanicked<T>(call: impl FnOnce() -> T) -> Option<T> {
    // What a panic has left half-done is not used again: see `failed`.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(payload) => {
            fail(payload);
            None
        }
    }
}

#[cold]
fn fail(payload: Box<dyn Any + Send>) {
    // Whatever is wrong now is not worth another panic.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    let _ = catch_unwind(adapter::fail_all);
    set_errno(libc::EIO);
}

/// Has panics of the library tell of themselves in one line. The program's own, if it is written in
/// Rust, are not concerned: it has another copy of Rust's library.
pub(crate) fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| panic::set_hook(Box::new(tell_panic)));
}

fn tell_panic(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown");
    let place = info.location().map(ToString::to_string);
    let place = place.as_deref().unwrap_or("an unknown place");
    report(&format!(
        "bug in Ferroce, please report it: {text} ({place}); its devices in this process have \
         failed, restart the program"
    ));
}

/// While it lives, the thread is not cancelled.
struct Uncancelled {
    before: c_int,
}

/// `PTHREAD_CANCEL_DISABLE` of pthread.h.
const DISABLE: c_int = 1;

// SAFETY: as pthread_setcancelstate(3) says.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    #[inline]
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: a state there is, and a local variable.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // Of a thread that could not be cancelled before, in a call within a call, nothing changes.
        if self.before != DISABLE {
            // SAFETY: as above. A thread whose cancellation is deferred, as it is by default, is not
            // cancelled by this call.
            unsafe { pthread_setcancelstate(self.before, null_mut()) };
        }
    }
}

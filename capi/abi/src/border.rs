//! The border between C programs and a library.
//!
//! Every function that a program calls is marked [`#[border(KIND)]`](macro@crate::border), and runs
//! inside one of the functions here, which stop two things:
//!
//! - **Panics.** Unwinding into C would end the process. Instead, the call fails, with a line on
//!   standard error.
//! - **Cancellation** (pthread_cancel(3)). The C library cancels a thread by unwinding it from
//!   within a system call, which Rust code does not survive. The thread therefore cannot be
//!   cancelled during a call.
//!
//! What else fails with it is up to the library ([`on_panic`]). The verbs libraries end all devices of
//! the process, because what the panic left half-done must not reach a peer or the program. Those of
//! DOCA go on: an access to a register happens completely or not at all, and their only other state is
//! a table of handles.
//!
//! Calls that wait for a program's events can be cancelled, because programs rely on it: they leave the
//! library to wait.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::{Once, OnceLock};

use crate::log::{Level, log};

/// What fails with a call that panics.
#[derive(Clone, Copy, Debug)]
pub struct Consequence {
    /// Ends the use of all state that the panic may have left half-changed.
    pub end: fn(),
    /// Says so, at the end of the line on standard error.
    pub text: &'static str,
}

static CONSEQUENCE: OnceLock<Consequence> = OnceLock::new();

/// Decides what fails with a call that panics from now on, unless that is decided.
pub fn on_panic(consequence: Consequence) {
    let _ = CONSEQUENCE.set(consequence);
}

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

/// A call that returns a value and cannot fail.
pub fn value<T: Default>(call: impl FnOnce() -> T) -> T {
    cross(call).unwrap_or_default()
}

/// A call that returns nothing.
pub fn nothing(call: impl FnOnce()) {
    cross(call);
}

/// A call that reads or notes something and makes no system call, so that it is not a place to cancel a
/// thread anyway. Programs make ten of them for a completion.
#[inline]
pub fn field<T: Default>(call: impl FnOnce() -> T) -> T {
    catch(call).unwrap_or_default()
}

/// [`status`] for a call that makes no system call most times, and the others
/// [`uncancelled`]: keeping a thread from being cancelled takes as long as a
/// fifth of a post.
#[inline]
pub fn quick_status(call: impl FnOnce() -> c_int) -> c_int {
    catch(call).unwrap_or(libc::EIO)
}

/// The same of [`number`].
#[inline]
pub fn quick_number<T: From<i8>>(call: impl FnOnce() -> T) -> T {
    catch(call).unwrap_or_else(|| T::from(-1))
}

/// Runs a call of a kind that is not listed here. `None` after a panic.
#[inline]
pub fn cross<T>(call: impl FnOnce() -> T) -> Option<T> {
    report_panics();
    let _uncancelled = Uncancelled::new();
    catch(call)
}

/// Runs what makes system calls in a call that often makes none, such as [`quick_status`]: the thread
/// is not cancelled meanwhile.
#[inline]
pub fn uncancelled<T>(call: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::new();
    call()
}

/// `None` after a panic. What it can have left half-done must not be used again; [`Consequence`] sees
/// to that.
#[inline]
fn catch<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(fail).ok()
}

#[cold]
fn fail(payload: Box<dyn Any + Send>) {
    // Another panic would change nothing.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    if let Some(consequence) = CONSEQUENCE.get() {
        let _ = catch_unwind(consequence.end);
    }
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = libc::EIO };
}

/// Reports panics of the library in one line. The program's own, if it is written in Rust, are not
/// concerned: it has another copy of Rust's library.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| panic::set_hook(Box::new(report_panic)));
}

fn report_panic(info: &PanicHookInfo<'_>) {
    let consequence = CONSEQUENCE
        .get()
        .map_or("the call has failed", |it| it.text);
    let text = panic_text(info);
    log(
        Level::Error,
        format_args!("bug in Ferroce, please report it: {text}; {consequence}"),
    );
}

/// What a panic said, and where.
fn panic_text(info: &PanicHookInfo<'_>) -> String {
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
    use std::panic::panic_any;
    use std::sync::atomic::{AtomicU32, Ordering};

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
        let within = || cross(is_cancellable);
        assert!(is_cancellable());
        assert_eq!(cross(within), Some(Some(false)));
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

        static FAILURES: AtomicU32 = AtomicU32::new(0);
        on_panic(Consequence {
            end: || {
                FAILURES.fetch_add(1, Ordering::Relaxed);
                panic!("another one");
            },
            text: "the test goes on",
        });
        assert_eq!(cross(|| 1), Some(1));
        assert_eq!(cross::<()>(|| panic!("on purpose")), None);
        assert_eq!(catch::<()>(|| panic_any(Worse)), None);
        assert_eq!(FAILURES.load(Ordering::Relaxed), 2);
        assert!(is_cancellable());
    }
}

//! The border between C programs and a library.
//!
//! Every function that a program calls is marked [`#[border(KIND)]`](macro@crate::border), and runs
//! inside one of the functions here, which stop panics and cancellations ([`crate::crossing`]). A call
//! that panics fails, with a line on standard error.
//!
//! What else fails with it is up to the library ([`on_panic`]). The verbs libraries end all devices of
//! the process, because what the panic left half-done must not reach a peer or the program. Those of
//! DOCA go on: an access to a register happens completely or not at all, and their only other state is
//! a table of handles.
//!
//! Calls that wait for a program's events can be cancelled, because programs rely on it: they leave the
//! library to wait.

use std::ffi::c_int;
use std::panic::{self, PanicHookInfo};
use std::sync::{Once, OnceLock};

use crate::crossing::{self, Pointer, catch, panic_text};
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
    catch(call, fail).unwrap_or_default()
}

/// [`status`] for a call that makes no system call most times, and the others
/// [`uncancelled`](crossing::uncancelled): keeping a thread from being cancelled takes as long as a
/// fifth of a post.
#[inline]
pub fn quick_status(call: impl FnOnce() -> c_int) -> c_int {
    catch(call, fail).unwrap_or(libc::EIO)
}

/// The same of [`number`].
#[inline]
pub fn quick_number<T: From<i8>>(call: impl FnOnce() -> T) -> T {
    catch(call, fail).unwrap_or_else(|| T::from(-1))
}

/// Runs a call of a kind that is not listed here. `None` after a panic.
#[inline]
pub fn cross<T>(call: impl FnOnce() -> T) -> Option<T> {
    report_panics();
    crossing::cross(call, fail)
}

fn fail() {
    if let Some(consequence) = CONSEQUENCE.get() {
        // Another panic would change nothing.
        catch(consequence.end, || ());
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

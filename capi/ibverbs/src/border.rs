//! The border between C programs and the library.
//!
//! Every function that a program calls is marked [`#[border]`](ferroce_border::border), and runs
//! inside one of the functions here, which stop panics and cancellations ([`ferroce_crossing`]). If
//! a call panics, all devices of the process fail: whatever the panic left half-done must not reach
//! a peer or the program.
//!
//! Calls that wait for a program's events can be cancelled: they leave the library to wait
//! (`events`), because programs rely on it.

use std::ffi::c_int;
use std::panic::{self, PanicHookInfo, catch_unwind};
use std::sync::Once;

use ferroce_crossing::{Pointer, catch, panic_text};

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
    catch(call, fail).unwrap_or_default()
}

/// [`status`] for a call that makes no system call most times, and the others
/// [`uncancelled`](ferroce_crossing::uncancelled): to keep a thread from being cancelled takes as long as
/// a fifth of a post.
#[inline]
pub fn quick_status(call: impl FnOnce() -> c_int) -> c_int {
    catch(call, fail).unwrap_or(libc::EIO)
}

/// The same of [`number`].
#[inline]
pub fn quick_number<T: From<i8>>(call: impl FnOnce() -> T) -> T {
    catch(call, fail).unwrap_or_else(|| T::from(-1))
}

#[inline]
fn cross<T>(call: impl FnOnce() -> T) -> Option<T> {
    ferroce_crossing::cross(call, fail)
}

/// What the panic has left half-done is not used again.
fn fail() {
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
    report(&format!(
        "bug in Ferroce, please report it: {}; its devices in this process have failed, restart the \
         program",
        panic_text(info)
    ));
}

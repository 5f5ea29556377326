//! The border between C programs and the DOCA libraries.
//!
//! Every function that a program calls is marked [`#[border]`](ferroce_border::border), and runs
//! inside one of the functions here, which stop panics and cancellations ([`ferroce_crossing`]). A
//! call that panics fails, with one line on standard error. Other calls continue to work, because
//! an access to a register happens completely or not at all, and the only other state of these
//! libraries is a table of handles.

use std::io::{Write as _, stderr};
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

use ferroce_crossing::{Pointer, panic_text};

use crate::error::Code;

/// A call that returns an error code, or one of the program's own.
pub fn code<T: From<Code>>(call: impl FnOnce() -> T) -> T {
    cross(call).unwrap_or_else(|| Code::Unexpected.into())
}

/// A call that returns a pointer, or null.
pub fn pointer<P: Pointer>(call: impl FnOnce() -> P) -> P {
    cross(call).unwrap_or(P::NULL)
}

/// A call that returns a value, or 0.
pub fn value<T: Default>(call: impl FnOnce() -> T) -> T {
    cross(call).unwrap_or_default()
}

/// A call that returns nothing.
pub fn nothing(call: impl FnOnce()) {
    cross(call);
}

fn cross<T>(call: impl FnOnce() -> T) -> Option<T> {
    watch_panics();
    ferroce_crossing::cross(call, || ())
}

/// Has panics of the library tell of themselves in one line. The program's own, if it is written in
/// Rust, are not concerned: it has another copy of Rust's library.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| panic::set_hook(Box::new(tell_panic)));
}

fn tell_panic(info: &PanicHookInfo<'_>) {
    let text = panic_text(info);
    // Without standard error there is nobody to tell.
    let _ = writeln!(
        stderr(),
        "ferroce: bug in Ferroce, please report it: {text}; the call has failed"
    );
}

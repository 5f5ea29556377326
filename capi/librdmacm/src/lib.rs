//! `librdmacm.so.1`: every symbol of `symbols.txt` under its version, each a jump into our
//! `libibverbs.so.1`.
//!
//! Connection manager and queue pairs belong to one device, so all code is in one library, and this
//! one only has the symbols.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::AtomicPtr;

#[macro_use]
mod facade;

use facade::{enosys, null_pointer, zero};

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

extern "C" fn error() -> isize {
    enosys();
    -1
}

extern "C" fn text() -> *const c_char {
    c"libibverbs.so.1 is not Ferroce's".as_ptr()
}

//! `libmlx5.so.1`: every symbol of `symbols.txt` under its version. Those of direct verbs that these
//! devices have lead into our `libibverbs.so.1`; the others fail as without the feature.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::AtomicPtr;

#[macro_use]
#[path = "../../librdmacm/src/facade.rs"]
mod facade;

use facade::{enosys, null_pointer, set_errno, zero};

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

extern "C" fn status() -> c_int {
    enosys();
    libc::ENOSYS
}

extern "C" fn eopnotsupp() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

extern "C" fn no_object() -> *const c_void {
    eopnotsupp();
    std::ptr::null()
}

extern "C" fn minus_one() -> isize {
    eopnotsupp();
    -1
}

extern "C" fn nothing() {}

//! `doca_error.h` and `doca_version.h`.

use std::ffi::{CStr, c_char};

use ferroce_abi::border;
use ferroce_doca::error;

/// The name of an error code.
#[unsafe(no_mangle)]
#[border(pointer)]
pub extern "C" fn doca_error_get_name(error: u32) -> *const c_char {
    error::name(error).as_ptr()
}

/// What an error code means.
#[unsafe(no_mangle)]
#[border(pointer)]
pub extern "C" fn doca_error_get_descr(error: u32) -> *const c_char {
    error::description(error).as_ptr()
}

/// The version of these libraries' interface.
#[unsafe(no_mangle)]
#[border(pointer)]
pub extern "C" fn doca_version_runtime() -> *const c_char {
    const RUNTIME: &CStr = c"3.3.0";
    RUNTIME.as_ptr()
}

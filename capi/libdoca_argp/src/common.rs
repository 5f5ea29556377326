//! What `libdoca_common.so.2` does for this library, and the program's memory.

use std::ffi::{CStr, CString, c_char};

use ferroce_doca::log::Level;
use ferroce_doca::{Code, Refusal};

unsafe extern "C" {
    fn ferroce_doca_tell(level: u32, call: *const c_char, text: *const c_char);
    fn doca_log_level_set_global_lower_limit(level: u32) -> u32;
    fn doca_log_level_set_global_sdk_limit(level: u32) -> u32;
}

/// The result of a call, and a line about a refusal.
pub(crate) fn answer(call: &str, result: Result<(), Refusal>) -> Code {
    let Err(refusal) = result else {
        return Code::Success;
    };
    tell(call, &refusal);
    refusal.code()
}

/// A line about what a call could not do.
pub(crate) fn tell(call: &str, refusal: &Refusal) {
    if let (Ok(call), Ok(text)) = (CString::new(call), CString::new(refusal.to_string())) {
        // SAFETY: C strings that outlive the call.
        unsafe { ferroce_doca_tell(Level::Error as u32, call.as_ptr(), text.as_ptr()) };
    }
}

/// Sets what the log tells of the program and of the libraries.
pub(crate) fn set_levels(program: Option<Level>, libraries: Option<Level>) {
    // These levels are right, so the calls do not fail.
    if let Some(level) = program {
        // SAFETY: it takes a number.
        unsafe { doca_log_level_set_global_lower_limit(level as u32) };
    }
    if let Some(level) = libraries {
        // SAFETY: it takes a number.
        unsafe { doca_log_level_set_global_sdk_limit(level as u32) };
    }
}

/// A text of the program.
///
/// # Safety
///
/// `text` is null or a C string that stays as it is for the length of the call.
pub(crate) unsafe fn text(argument: &str, text: *const c_char) -> Result<String, Refusal> {
    if text.is_null() {
        return Err(Refusal::null(argument));
    }
    // SAFETY: not null, and the rest is the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    let known = text.to_str().map(str::to_owned);
    known.map_err(|_| Refusal::value(argument, format_args!("{text:?}"), "text in UTF-8"))
}

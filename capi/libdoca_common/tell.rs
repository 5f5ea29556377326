//! How the libraries beside `libdoca_common.so.2` answer calls, and log by it.

use std::ffi::{CString, c_char};

use ferroce_doca::log::Level;
use ferroce_doca::{Code, Refusal};

unsafe extern "C" {
    fn ferroce_doca_tell(level: u32, call: *const c_char, text: *const c_char);
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

//! The program's memory: the arguments of calls.

use std::ffi::{CStr, c_char};

use crate::error::Refusal;

/// Writes what a call is to answer.
///
/// # Errors
///
/// [`Code::InvalidValue`](crate::Code::InvalidValue): `to` is null.
///
/// # Safety
///
/// `to` is null or leads to room for a value.
pub unsafe fn put<T>(argument: &str, to: *mut T, value: T) -> Result<(), Refusal> {
    check(argument, to)?;
    // SAFETY: not null, and otherwise room for a value, as the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

/// Refuses null.
///
/// # Errors
///
/// [`Code::InvalidValue`](crate::Code::InvalidValue): `pointer` is null.
pub fn check<T>(argument: &str, pointer: *const T) -> Result<(), Refusal> {
    match pointer.is_null() {
        true => Err(Refusal::null(argument)),
        false => Ok(()),
    }
}

/// A text of the program.
///
/// # Errors
///
/// [`Code::InvalidValue`](crate::Code::InvalidValue): `text` is null, or not UTF-8.
///
/// # Safety
///
/// `text` is null or a C string that stays as it is for the length of the call.
pub unsafe fn text<'a>(argument: &str, text: *const c_char) -> Result<&'a str, Refusal> {
    check(argument, text)?;
    // SAFETY: not null, and otherwise a C string that stays as it is, as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Refusal::value(argument, format_args!("{text:?}"), "text in UTF-8"))
}

/// Writes a text and its zero into a buffer of `size` bytes.
///
/// # Errors
///
/// [`Code::InvalidValue`](crate::Code::InvalidValue): `to` is null, or the text does not fit.
///
/// # Safety
///
/// `to` is null or leads to `size` bytes.
pub unsafe fn put_text(
    argument: &str,
    to: *mut c_char,
    size: usize,
    text: &str,
) -> Result<(), Refusal> {
    check(argument, to)?;
    if size <= text.len() {
        let allowed = format_args!("at least {}", text.len() + 1).to_string();
        return Err(Refusal::value("size", size, allowed));
    }
    // SAFETY: the bytes and the zero fit into the buffer of `size` bytes that the caller promises.
    unsafe {
        to.cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

//! Pointers of the program to its own memory.

/// A pointer that must not be null, by the name of the argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Null(pub &'static str);

/// The pointer, unless it is null.
///
/// # Errors
///
/// [`Null`]: it is null.
pub fn check<T>(argument: &'static str, pointer: *mut T) -> Result<*mut T, Null> {
    match pointer.is_null() {
        true => Err(Null(argument)),
        false => Ok(pointer),
    }
}

/// The structure behind a pointer.
///
/// # Errors
///
/// [`Null`]: the pointer is null.
///
/// # Safety
///
/// `pointer` is null, or aligned and points to a `T` that nothing changes during the call.
pub unsafe fn read<'a, T>(argument: &'static str, pointer: *const T) -> Result<&'a T, Null> {
    // SAFETY: null, or valid for reads during the call, as the caller promises.
    unsafe { pointer.as_ref() }.ok_or(Null(argument))
}

/// The structure behind a pointer, to change it.
///
/// # Errors
///
/// [`Null`]: the pointer is null.
///
/// # Safety
///
/// `pointer` is null, or aligned and points to a `T` that nothing else accesses during the call.
pub unsafe fn change<'a, T>(argument: &'static str, pointer: *mut T) -> Result<&'a mut T, Null> {
    // SAFETY: null, or valid for reads and writes during the call, as the caller promises.
    unsafe { pointer.as_mut() }.ok_or(Null(argument))
}

/// Writes a result to where the program wants it.
///
/// # Errors
///
/// [`Null`]: the pointer is null.
///
/// # Safety
///
/// `to` is null, or aligned and points to memory for a `T` that may be written to.
pub unsafe fn put<T>(argument: &'static str, to: *mut T, value: T) -> Result<(), Null> {
    let to = check(argument, to)?;
    // SAFETY: not null, and otherwise valid for writes, as the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

//! Results of calls on sockets.

use std::ffi::c_int;

use ferroce_ibverbs::error::set_errno;

/// An error number of a socket.
pub(super) type Errno = c_int;
pub(super) type Result<T> = std::result::Result<T, Errno>;

/// That of the last call of the C library.
pub(super) fn last_errno() -> Errno {
    let error = std::io::Error::last_os_error();
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Calls on a descriptor that block do so in poll(2).
pub(super) fn set_nonblocking(descriptor: c_int) {
    // SAFETY: no pointers.
    unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

/// The result of a call that sockets have: -1 and `errno`, and no line about it.
pub(super) fn answer<T: From<i8>>(result: Result<T>) -> T {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        T::from(-1)
    })
}

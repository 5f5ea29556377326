use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

/// How often a lock that somebody holds is looked at.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// The effective user of this process.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes sure that the first `len` bytes of a file have their place, so that a full disk is an error
/// here and not a signal later.
pub(crate) fn allocate(file: &File, len: u64) -> io::Result<()> {
    let len = len.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: takes three integers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Locks a byte of a file, which need not exist, unless another open file has it locked.
///
/// The lock belongs to the open file (F_OFD_SETLK, fcntl(2)): it ends when that is closed, also by
/// the death of its process.
pub(crate) fn lock(file: &File, byte: i64) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, libc::F_WRLCK, (byte, 1)) {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Locks a byte of a file as soon as nobody else has it locked. After `patience` it gives up with
/// [`io::ErrorKind::TimedOut`].
pub(crate) fn lock_when_free(file: &File, byte: i64, patience: Duration) -> io::Result<()> {
    let started = Instant::now();
    while !lock(file, byte)? {
        if started.elapsed() >= patience {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Locks a byte of a file that nobody has for himself alone, with others who do so.
pub(crate) fn lock_shared(file: &File, byte: i64) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, libc::F_RDLCK, (byte, 1)).map(drop)
}

/// Unlocks a byte of a file.
pub(crate) fn unlock(file: &File, byte: i64) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, libc::F_UNLCK, (byte, 1)).map(drop)
}

/// Whether another open file has the byte locked.
pub(crate) fn is_locked(file: &File, byte: i64) -> io::Result<bool> {
    is_any_locked(file, byte, 1)
}

/// Whether other open files have any of `len` bytes locked.
pub(crate) fn is_any_locked(file: &File, first: i64, len: i64) -> io::Result<bool> {
    let found = control(file, libc::F_OFD_GETLK, libc::F_WRLCK, (first, len))?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

/// `bytes` are the first one and how many.
fn control(file: &File, command: i32, kind: i32, bytes: (i64, i64)) -> io::Result<libc::flock> {
    // SAFETY: a structure of integers, for which all zeros is a value.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    (request.l_start, request.l_len) = bytes;
    // SAFETY: the commands take a pointer to this structure, which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut request) } {
        0 => Ok(request),
        _ => Err(io::Error::last_os_error()),
    }
}

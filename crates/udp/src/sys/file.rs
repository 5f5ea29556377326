use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use super::limit::may_write;

/// How often a lock that somebody holds is looked at.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Makes sure that the first `len` bytes of a file have their place, so that a full disk is an error
/// here and not a signal later.
pub(crate) fn allocate(file: &File, len: u64) -> io::Result<()> {
    if !may_write(len) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
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

/// Which of `len` bytes other open files have locked, in order. A system call for each lock and each
/// gap between them, not for each byte.
pub(crate) fn locked_bytes(file: &File, first: i64, len: i64) -> io::Result<Vec<i64>> {
    let mut locked = Vec::new();
    let mut ranges = vec![(first, first + len)];
    while let Some((from, to)) = ranges.pop() {
        let found = control(file, libc::F_OFD_GETLK, libc::F_WRLCK, (from, to - from))?;
        if i32::from(found.l_type) == libc::F_UNLCK {
            continue;
        }
        // Any of the locks in the range, not the first. One without a length goes on for ever.
        let end = match found.l_len {
            0 => to,
            len => found.l_start.saturating_add(len),
        };
        let (start, end) = (found.l_start.max(from), end.min(to));
        locked.extend(start..end);
        let rest = [(from, start), (end, to)];
        let smaller = |(a, b): &(i64, i64)| a < b && b - a < to - from;
        ranges.extend(rest.into_iter().filter(smaller));
    }
    locked.sort_unstable();
    Ok(locked)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_bytes_are_found_wherever_they_lie() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || file.reopen().unwrap();
        let looker = open();
        let bytes = [10, 11, 17, 40, 254];
        // In another order than theirs, and two by one owner that lie side by side.
        let owners: Vec<File> = (0..4).map(|_| open()).collect();
        for (owner, byte) in [
            (3, 254),
            (0, 17),
            (1, 40),
            (2, 10),
            (2, 11),
            (0, 255),
            (1, 9),
        ] {
            let request = (byte, 1);
            control(&owners[owner], libc::F_OFD_SETLK, libc::F_WRLCK, request).unwrap();
        }
        assert_eq!(locked_bytes(&looker, 10, 245).unwrap(), bytes);
        assert_eq!(locked_bytes(&looker, 41, 200).unwrap(), [0i64; 0]);
        drop(owners);
        assert_eq!(locked_bytes(&looker, 0, 300).unwrap(), [0i64; 0]);
    }
}

//! Allocating space for a file, and locks on its bytes.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl, posix_fallocate};

use super::limit::may_write;

/// How often a lock that another process holds is tried.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Makes sure that the first `len` bytes of a file have their place, so that a full disk is an error
/// here and not a signal later.
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    if !may_write(len) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let len = len.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(posix_fallocate(file, 0, len)?)
}

/// Locks a byte of a file, which need not exist, unless another open file has it locked.
///
/// The lock belongs to the open file (F_OFD_SETLK, fcntl(2)): it ends when that is closed, also by
/// the death of its process.
pub fn lock(file: &File, byte: i64) -> io::Result<bool> {
    match set(file, libc::F_WRLCK, byte) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Locks a byte of a file as soon as no other process has it locked. After `patience` it gives up with
/// [`io::ErrorKind::TimedOut`].
pub fn lock_when_free(file: &File, byte: i64, patience: Duration) -> io::Result<()> {
    let started = Instant::now();
    while !lock(file, byte)? {
        if started.elapsed() >= patience {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Locks a byte of a file together with others, unless a process has it exclusively.
pub fn lock_shared(file: &File, byte: i64) -> io::Result<()> {
    set(file, libc::F_RDLCK, byte)
}

/// Unlocks a byte of a file.
pub fn unlock(file: &File, byte: i64) -> io::Result<()> {
    set(file, libc::F_UNLCK, byte)
}

/// Whether another open file has the byte locked.
pub fn is_locked(file: &File, byte: i64) -> io::Result<bool> {
    is_any_locked(file, byte, 1)
}

/// Whether other open files have any of `len` bytes locked.
pub fn is_any_locked(file: &File, first: i64, len: i64) -> io::Result<bool> {
    let lock = found(file, first, len)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Which of `len` bytes other open files have locked, in order. A system call for each lock and each
/// gap between them, not for each byte.
pub fn locked_bytes(file: &File, first: i64, len: i64) -> io::Result<Vec<i64>> {
    let mut locked = Vec::new();
    let mut ranges = vec![(first, first + len)];
    while let Some((from, to)) = ranges.pop() {
        let lock = found(file, from, to - from)?;
        if i32::from(lock.l_type) == libc::F_UNLCK {
            continue;
        }
        // Any of the locks in the range, not the first. One without a length has no end.
        let end = match lock.l_len {
            0 => to,
            len => lock.l_start.saturating_add(len),
        };
        let (start, end) = (lock.l_start.max(from), end.min(to));
        locked.extend(start..end);
        let rest = [(from, start), (end, to)];
        let smaller = |(a, b): &(i64, i64)| a < b && b - a < to - from;
        ranges.extend(rest.into_iter().filter(smaller));
    }
    locked.sort_unstable();
    Ok(locked)
}

/// Gives a byte another lock, or none.
fn set(file: &File, kind: i32, byte: i64) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&request(kind, byte, 1)))?;
    Ok(())
}

/// A lock of another open file among `len` bytes, or one of the type "unlocked".
fn found(file: &File, first: i64, len: i64) -> io::Result<libc::flock> {
    let mut lock = request(libc::F_WRLCK, first, len);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(lock)
}

fn request(kind: i32, first: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: first,
        l_len: len,
        l_pid: 0,
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
            assert!(lock(&owners[owner], byte).unwrap());
        }
        assert_eq!(locked_bytes(&looker, 10, 245).unwrap(), bytes);
        assert_eq!(locked_bytes(&looker, 41, 200).unwrap(), [0i64; 0]);
        drop(owners);
        assert_eq!(locked_bytes(&looker, 0, 300).unwrap(), [0i64; 0]);
    }
}

//! A child of `fork` has copies of its parent's descriptors, and none of its threads. The copies
//! would keep the parent's port, its slot and its name alive when it is dead.

use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::list::List;

/// How many forks this process is away from the first one.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// The descriptors of this process that a child must not keep.
static DESCRIPTORS: List<AtomicI32> = List::new();
/// An entry that is free.
const NONE: RawFd = -1;

/// Which of several processes that came from each other by `fork` this one is. What was made in
/// another one is that one's.
#[inline]
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// To be called in the child of `fork`, before anything else of this library (pthread_atfork(3)).
///
/// The child does not have its parent's devices: their sockets and files stay with the parent
/// alone, so that they end with it; in the child their objects are not there, calls answer so, and
/// [`crate::Device::is_orphaned`] tells. Devices that the child opens itself are its own. Safe in a
/// signal handler: it makes system calls, and waits for nobody.
pub fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for cell in DESCRIPTORS.iter() {
        let fd = cell.load(Ordering::Acquire);
        if fd != NONE {
            blank(fd);
        }
    }
}

/// Puts an event that nobody fires in a descriptor's place. Whatever has the number in a structure
/// still owns it, and none of the child's own files gets it.
fn blank(fd: RawFd) {
    // SAFETY: system calls on numbers. `fd` belongs to an object of this library, which still owns
    // it afterwards and can do nothing with it but be refused.
    unsafe {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        let mut new = libc::eventfd(0, flags);
        if new < 0 {
            // There is no descriptor left: this one makes room.
            libc::close(fd);
            new = libc::eventfd(0, flags);
        }
        if new >= 0 && new != fd {
            libc::dup3(new, fd, libc::O_CLOEXEC);
            libc::close(new);
        }
    }
}

/// Something with a descriptor that a child of `fork` must not keep.
#[derive(Debug)]
pub(crate) struct NotInherited<T: AsFd> {
    cell: &'static AtomicI32,
    inner: T,
}

impl<T: AsFd> NotInherited<T> {
    pub(crate) fn new(inner: T) -> Self {
        let fd = inner.as_fd().as_raw_fd();
        let take =
            |cell: &AtomicI32| cell.compare_exchange(NONE, fd, Ordering::AcqRel, Ordering::Relaxed);
        let free = DESCRIPTORS.iter().find(|cell| take(cell).is_ok());
        let cell = free.unwrap_or_else(|| DESCRIPTORS.push(AtomicI32::new(fd)));
        Self { cell, inner }
    }
}

impl<T: AsFd> Drop for NotInherited<T> {
    fn drop(&mut self) {
        // Before the descriptor is closed and its number perhaps another file's.
        self.cell.store(NONE, Ordering::Release);
    }
}

impl<T: AsFd> Deref for NotInherited<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: AsFd> AsFd for NotInherited<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsFd + Write> Write for NotInherited<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

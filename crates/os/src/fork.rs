//! A child of `fork` has copies of its parent's descriptors, and none of its threads. The copies
//! would keep the parent's port, its slot and its name alive after its death.
//!
//! A child of `clone` made without the C library is not announced. It is detected by memory that
//! the kernel clears in every child.
//!
//! The child's code runs with one thread, perhaps in a signal handler: bare system calls on
//! numbers, no allocation.

use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use super::list::List;

/// How many forks this process is away from the first one, and one more.
static FORKS: AtomicU64 = AtomicU64::new(1);
/// The same in memory that is 0 in a child which has not been told that it is one; null until
/// something was made that a child must not keep.
static CLEARED: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// The descriptors of this process that a child must not keep.
static DESCRIPTORS: List<AtomicI32> = List::new();
/// An entry that is free.
const NONE: RawFd = -1;

/// Which of several processes that came from each other by `fork` this one is. What was made in
/// another one is that one's.
#[inline]
pub fn forks() -> u64 {
    match cleared() {
        Some(forks) => forks.load(Ordering::Relaxed),
        None => FORKS.load(Ordering::Relaxed),
    }
}

#[inline]
fn cleared() -> Option<&'static AtomicU64> {
    // SAFETY: null, or memory that holds the number and is never unmapped.
    unsafe { CLEARED.load(Ordering::Acquire).as_ref() }
}

/// To be called before anything is made that a child must not keep.
fn begin() {
    match cleared() {
        Some(forks) if forks.load(Ordering::Relaxed) != 0 => {}
        // A child that has not been told.
        Some(_) => after_fork_in_child(),
        None => {
            let page = cleared_page();
            if let Some(page) = page {
                let forks = FORKS.load(Ordering::Relaxed);
                // SAFETY: new memory of this function's, large enough and aligned to a page.
                unsafe { (*page).store(forks, Ordering::Relaxed) };
                let order = Ordering::AcqRel;
                // If another thread was faster, a page is lost.
                let _ = CLEARED.compare_exchange(null_mut(), page, order, Ordering::Relaxed);
            }
        }
    }
}

/// A page that is cleared in every child (MADV_WIPEONFORK); `None` before Linux 4.14, where a child of
/// `clone` takes itself for its parent.
fn cleared_page() -> Option<*mut AtomicU64> {
    const LEN: usize = 4096;
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(null_mut(), LEN, access, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, LEN, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, LEN);
            return None;
        }
        Some(page.cast())
    }
}

/// To be called in the child of `fork`, before anything else of this library (pthread_atfork(3)).
///
/// The child does not have its parent's devices: their sockets and files stay with the parent
/// alone, so that they end with it; in the child their objects are not there, calls answer so, and
/// `Device::is_orphaned` tells. Devices that the child opens itself are its own. Safe in a
/// signal handler: it makes system calls, and never waits.
pub fn after_fork_in_child() {
    let forks = 1 + FORKS.fetch_add(1, Ordering::Relaxed);
    if let Some(cleared) = cleared() {
        cleared.store(forks, Ordering::Relaxed);
    }
    for cell in DESCRIPTORS.iter() {
        let fd = cell.load(Ordering::Acquire);
        if fd != NONE {
            blank(fd);
        }
    }
}

/// Replaces a descriptor by an event that never fires. Whatever has the number in a structure
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

/// Moves a descriptor to a number that programs do not come to. Those that close all descriptors they
/// know, as daemons do, miss it; and if they close it nevertheless, no file of theirs gets the number,
/// into which the library would write.
pub fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    const FIRST: u64 = 512;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let first = FIRST.min(limit / 2) as RawFd;
    // If there is no room, it serves where it is.
    fcntl_dupfd_cloexec(&fd, first).unwrap_or(fd)
}

/// Something with a descriptor that a child of `fork` must not keep.
#[derive(Debug)]
pub struct NotInherited<T: AsFd> {
    cell: &'static AtomicI32,
    inner: T,
}

impl<T: AsFd + From<OwnedFd> + Into<OwnedFd>> NotInherited<T> {
    /// Keeps `inner` from the children of this process.
    pub fn new(inner: T) -> Self {
        begin();
        let inner = T::from(out_of_the_way(inner.into()));
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

//! One descriptor that stands for several sockets.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

use super::fork::NotInherited;

/// Sockets of which some may have something to read (epoll(7)). Itself readable if one has.
#[derive(Debug)]
pub struct Epoll(NotInherited<OwnedFd>);

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// Returns an error when the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self(NotInherited::new(fd)))
    }

    /// Watches a socket until it is closed, in all processes that have it.
    pub fn add(&self, socket: &impl AsFd) -> io::Result<()> {
        let number = socket.as_fd().as_raw_fd();
        let name = epoll::EventData::new_u64(number as u64);
        Ok(epoll::add(&*self.0, socket, name, epoll::EventFlags::IN)?)
    }

    /// Watches a socket no more.
    pub fn remove(&self, socket: &impl AsFd) {
        // It fails for one that is not watched.
        let _ = epoll::delete(&*self.0, socket);
    }

    /// Whether one of the sockets has something to read, by its descriptor's number; each gets its
    /// turn.
    pub fn next(&self) -> Option<i32> {
        const AT_ONCE: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut room = [MaybeUninit::uninit()];
        let (ready, _) = epoll::wait(&*self.0, &mut room, Some(&AT_ONCE)).ok()?;
        Some(ready.first()?.data.u64() as i32)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

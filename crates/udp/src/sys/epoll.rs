use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::fork::NotInherited;

/// Sockets of which some may have something to read (epoll(7)). Itself readable if one has.
#[derive(Debug)]
pub(crate) struct Epoll(NotInherited<OwnedFd>);

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes an integer and touches no memory of ours.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(NotInherited::new(fd)))
    }

    /// Watches a socket until it is closed.
    pub(crate) fn add(&self, socket: &impl AsFd) -> io::Result<()> {
        let socket = socket.as_fd().as_raw_fd();
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: socket as u64,
        };
        // SAFETY: the call reads `event` and the numbers of two descriptors.
        let outcome = unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                socket,
                &raw mut event,
            )
        };
        if outcome == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Whether one of the sockets has something to read, by its descriptor's number; each gets its
    /// turn.
    pub(crate) fn next(&self) -> Option<i32> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for the one event that is asked for; the call does not wait.
        let ready = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, 0) };
        (ready == 1).then_some(event.u64 as i32)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

//! The pair of sockets beside a ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ferroce_os::NotInherited;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

/// One end of it. The other end sees when this one is closed, also by the death of its process.
#[derive(Debug)]
pub(super) struct Line(NotInherited<OwnedFd>);

impl Line {
    /// Both ends, the second of which is for another process.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::STREAM;
        let (own, other) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Self::of(own), other))
    }

    /// The end that another process has sent.
    pub(super) fn of(fd: OwnedFd) -> Self {
        Self(NotInherited::new(fd))
    }

    /// Wakes who is at the other end.
    #[cold]
    pub(super) fn wake(&self) {
        // If there is no room, the other end is awake as soon as it can be.
        let _ = send(&*self.0, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Takes what woke this process; returns whether the other end is there still.
    pub(super) fn is_open(&self) -> bool {
        let mut bytes = [0; 64];
        match recv(&*self.0, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok(_) => true,
            Err(error) => matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

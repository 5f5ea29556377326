//! The multicast groups that the host has joined for a device.
//!
//! Each has a socket bound to the group's address. Any number of sockets may be bound to it: every
//! process in the group gets its own copy of a packet, and no packets of other groups.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use ferroce_os::Epoll;

use crate::socket::Socket;

/// The groups of one device.
#[derive(Debug)]
pub struct Groups {
    own: SocketAddr,
    /// Readable if something has arrived for a group, among others.
    watch: Arc<Epoll>,
    sockets: Vec<Arc<Socket>>,
}

impl Groups {
    /// No groups yet. `watch` is told of their sockets.
    pub fn new(own: SocketAddr, watch: Arc<Epoll>) -> Self {
        Self {
            own,
            watch,
            sockets: Vec::new(),
        }
    }

    /// Whether the host is in none: the packet path need not look.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Joins a group on the interface that has the device's address.
    pub fn join(&mut self, group: IpAddr) -> io::Result<()> {
        let socket = Socket::join(group, self.own)?;
        self.watch.add(&socket)?;
        self.sockets.push(Arc::new(socket));
        Ok(())
    }

    /// Leaves a group.
    pub fn leave(&mut self, group: IpAddr) {
        self.sockets.retain(|socket| socket.address().ip() != group);
    }

    /// The socket with this descriptor.
    #[inline]
    pub fn socket(&self, fd: RawFd) -> Option<Arc<Socket>> {
        let of = |socket: &&Arc<Socket>| socket.as_fd().as_raw_fd() == fd;
        self.sockets.iter().find(of).cloned()
    }
}

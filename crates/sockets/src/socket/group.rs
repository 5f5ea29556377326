//! Sockets of multicast groups.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use ferroce_os::Interface;
use socket2::InterfaceIndexOrAddress;

use super::{Options, Socket};

/// Lets what the socket at `own` sends to groups leave by the interface that has its address, and
/// come back to those on this host that have joined there, which the kernel does by itself. It goes
/// one hop far.
pub(super) fn send_from(socket: &socket2::Socket, own: SocketAddr) {
    // If the kernel does not let us choose, its routes do.
    let _ = match own.ip() {
        ip if ip.is_multicast() => Ok(()),
        IpAddr::V4(v4) => socket.set_multicast_if_v4(&v4),
        IpAddr::V6(_) => socket.set_multicast_if_v6(index_of(own.ip())),
    };
}

fn index_of(own: IpAddr) -> u32 {
    Interface::of(own).map_or(0, |interface| interface.index)
}

impl Socket {
    /// A socket that hears what is sent to a multicast group, and nothing else, on the interface
    /// that has the address `own`, at its port. It is not for sending.
    ///
    /// # Errors
    /// Returns the kernel's error: no multicast on the interface, another address family, no
    /// descriptors.
    pub fn join(group: IpAddr, own: SocketAddr) -> io::Result<Self> {
        let address = match group {
            IpAddr::V4(v4) => SocketAddr::new(v4.into(), own.port()),
            // A group of the link is one of a certain link.
            IpAddr::V6(v6) => SocketAddrV6::new(v6, own.port(), 0, index_of(own.ip())).into(),
        };
        let socket = Self::bind(address, &Options::default())
            .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        match (group, own.ip()) {
            (IpAddr::V4(group), IpAddr::V4(own)) => {
                // Not what other sockets of this host have joined on other interfaces.
                socket.inner.set_multicast_all_v4(false)?;
                let on = InterfaceIndexOrAddress::Address(own);
                socket.inner.join_multicast_v4_n(&group, &on)?;
            }
            (IpAddr::V6(group), IpAddr::V6(_)) => {
                socket.inner.set_multicast_all_v6(false)?;
                socket.inner.join_multicast_v6(&group, index_of(own.ip()))?;
            }
            _ => return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        }
        Ok(socket)
    }
}

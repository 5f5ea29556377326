//! The network interfaces of this host.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// The network interface that has an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its number, as `ip link` shows it.
    pub index: u32,
    /// Its MTU in bytes: the longest IP packet.
    pub mtu: u32,
}

impl Interface {
    /// The interface with the address; every address of 127.0.0.0/8 is the loopback interface's.
    pub fn of(address: IpAddr) -> Option<Self> {
        let address = listed(address);
        let mut all = addresses();
        let (_, name) = all.find(|(found, _)| *found == address)?;
        measure(&name)
    }

    /// The name of the interface with the address, also of the loopback interface before it is up,
    /// when it has none.
    pub fn name_of(address: IpAddr) -> Option<String> {
        let own = listed(address);
        let has_it = |it: &InterfaceAddress| it.address.as_ref().and_then(ip_of) == Some(own);
        let is_for_it = |it: &InterfaceAddress| {
            address.is_loopback() && it.flags.contains(InterfaceFlags::IFF_LOOPBACK)
        };
        let all: Vec<_> = getifaddrs().into_iter().flatten().collect();
        let found = all.iter().find(|it| has_it(it));
        let found = found.or_else(|| all.iter().find(|it| is_for_it(it)));
        found.map(|it| it.interface_name.clone())
    }

    /// Whether an interface has the address, and a carrier.
    pub fn has_carrier(address: IpAddr) -> bool {
        let address = listed(address);
        let mut all = getifaddrs().into_iter().flatten();
        let own = all.find(|it| it.address.as_ref().and_then(ip_of) == Some(address));
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOWER_UP;
        own.is_some_and(|it| it.flags.contains(up))
    }
}

/// Under which address the kernel lists the interface that has this one.
fn listed(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_loopback() => [127, 0, 0, 1].into(),
        other => other,
    }
}

/// The addresses of this host's interfaces, in order.
pub fn own_addresses() -> Vec<IpAddr> {
    let mut own: Vec<_> = addresses().map(|(address, _)| address).collect();
    own.sort_unstable();
    own
}

/// The addresses of this host, each with its interface's name.
fn addresses() -> impl Iterator<Item = (IpAddr, String)> {
    let all = getifaddrs().into_iter().flatten();
    all.filter_map(|it| Some((ip_of(&it.address?)?, it.interface_name)))
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

fn measure(name: &str) -> Option<Interface> {
    let kind = SocketType::DGRAM;
    let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None).ok()?;
    let index = netdevice::name_to_index(&socket, name).ok()?;
    let mtu = mtu(&socket, name)?;
    Some(Interface { index, mtu })
}

/// The MTU of an interface (SIOCGIFMTU, netdevice(7)).
fn mtu(socket: &impl AsFd, name: &str) -> Option<u32> {
    // SAFETY: all fields are numbers or pointers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the request is a local variable of the size that the call expects.
    let asked = unsafe { libc::ioctl(socket, libc::SIOCGIFMTU, &raw mut request) };
    if asked != 0 {
        return None;
    }
    // SAFETY: the call has filled in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    mtu.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_all_loopback_addresses() {
        let loopback = Interface::of([127, 0, 0, 1].into()).expect("every host has it");
        assert_eq!(Interface::of([127, 17, 3, 4].into()), Some(loopback));
        assert_eq!(
            Interface::of([192, 0, 2, 1].into()),
            None,
            "for documentation"
        );
        assert!(Interface::has_carrier([127, 17, 3, 4].into()));
        assert!(!Interface::has_carrier([192, 0, 2, 1].into()));
    }
}

use std::ffi::CStr;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use ferroce_hca::Mtu;

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
        let address = match address {
            IpAddr::V4(v4) if v4.is_loopback() => IpAddr::from([127, 0, 0, 1]),
            other => other,
        };
        each_address(|found, name| (found == address).then(|| measure(name)).flatten())
    }

    /// The largest path MTU whose packets fit.
    pub fn path_mtu(&self) -> Mtu {
        // IPv6, UDP, the longest headers of a first packet, ICRC and pad.
        const AROUND: u32 = 40 + 8 + 40 + 4 + 3;
        let fits = |mtu: &Mtu| mtu.bytes() + AROUND <= self.mtu;
        let largest = Mtu::ALL.into_iter().rev().find(fits);
        largest.unwrap_or(Mtu::Mtu256)
    }
}

/// The addresses of this host's interfaces, in order.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    each_address(|address, _| {
        addresses.push(address);
        None::<()>
    });
    addresses.sort_unstable();
    addresses
}

/// Hands each address of this host, with its interface's name, to `look` until that finds something.
fn each_address<T>(mut look: impl FnMut(IpAddr, &CStr) -> Option<T>) -> Option<T> {
    let mut list = null_mut();
    // SAFETY: `list` is a local variable; it is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return None;
    }
    let mut found = None;
    let mut next = list;
    while !next.is_null() && found.is_none() {
        // SAFETY: `getifaddrs` made a list that ends with a null pointer.
        let entry = unsafe { &*next };
        // SAFETY: `ifa_addr` is null or an address of the family it names.
        if let Some(address) = unsafe { ip_of(entry.ifa_addr) } {
            // SAFETY: the name is a C string.
            found = look(address, unsafe { CStr::from_ptr(entry.ifa_name) });
        }
        next = entry.ifa_next;
    }
    // SAFETY: it came from `getifaddrs` and nothing of it is kept.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// # Safety
/// `address` is null or points to an address of the family it names.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = &*address.cast::<libc::sockaddr_in>();
                Some(v4.sin_addr.s_addr.to_ne_bytes().into())
            }
            libc::AF_INET6 => {
                let v6 = &*address.cast::<libc::sockaddr_in6>();
                Some(v6.sin6_addr.s6_addr.into())
            }
            _ => None,
        }
    }
}

fn measure(name: &CStr) -> Option<Interface> {
    // SAFETY: a C string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    // SAFETY: takes three integers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: fresh, and owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all fields are numbers or pointers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.to_bytes_with_nul();
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as _;
    }
    // SAFETY: the request is a local variable of the size that the call expects.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if asked != 0 {
        return None;
    }
    // SAFETY: the call has filled in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Some(Interface {
        index,
        mtu: mtu.try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_the_path_mtu_fit_the_interface() {
        let mtu = |mtu| Interface { index: 1, mtu }.path_mtu();
        assert_eq!(mtu(65536), Mtu::Mtu4096);
        assert_eq!(mtu(9000), Mtu::Mtu4096);
        assert_eq!(mtu(4200), Mtu::Mtu4096);
        assert_eq!(mtu(4096), Mtu::Mtu2048);
        assert_eq!(mtu(1500), Mtu::Mtu1024);
        assert_eq!(mtu(576), Mtu::Mtu256);
        assert_eq!(mtu(68), Mtu::Mtu256);
    }

    #[test]
    fn the_loopback_interface_has_all_loopback_addresses() {
        let loopback = Interface::of([127, 0, 0, 1].into()).expect("every host has it");
        assert_eq!(Interface::of([127, 17, 3, 4].into()), Some(loopback));
        assert_eq!(
            Interface::of([192, 0, 2, 1].into()),
            None,
            "for documentation"
        );
    }
}

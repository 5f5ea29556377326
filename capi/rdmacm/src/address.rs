//! Socket addresses of C and of Rust.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferroce_ibverbs::abi::ibv_gid;
use ferroce_ibverbs::error::Error;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// The address that a program's pointer leads to.
///
/// # Safety
/// `address` is null or points to a socket address of the family it names.
pub(crate) unsafe fn read(
    name: &'static str,
    address: *const sockaddr,
) -> Result<SocketAddr, Error> {
    if address.is_null() {
        return Err(Error::Null(name));
    }
    // SAFETY: as the caller promises. The structures may lie unaligned in a program's memory.
    unsafe {
        match c_int::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Ok((ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = IpAddr::from(Ipv6Addr::from(v6.sin6_addr.s6_addr));
                // A mapped address is one of IPv4, but the wildcard of IPv6 is its own.
                Ok((ip.to_canonical(), u16::from_be(v6.sin6_port)).into())
            }
            family => Err(Error::refused(
                libc::EINVAL,
                format!("{name} is of address family {family}; allowed: AF_INET, AF_INET6"),
            )),
        }
    }
}

/// An address as programs see it.
pub(crate) fn storage(address: SocketAddr) -> sockaddr_storage {
    let mut storage = none();
    let to = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let v4 = sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: there is room for an address of any family.
            unsafe { to.cast::<sockaddr_in>().write(v4) };
        }
        SocketAddr::V6(v6) => {
            let v6 = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { to.cast::<sockaddr_in6>().write(v6) };
        }
    }
    storage
}

/// The length of an address in its family.
pub(crate) fn length(address: SocketAddr) -> libc::socklen_t {
    let length = match address {
        SocketAddr::V4(_) => size_of::<sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<sockaddr_in6>(),
    };
    length as libc::socklen_t
}

/// No address.
pub(crate) fn none() -> sockaddr_storage {
    // SAFETY: zero is a value of all fields.
    unsafe { std::mem::zeroed() }
}

/// The GID of an address: an IPv4 address is mapped into IPv6.
pub(crate) fn gid(ip: IpAddr) -> ibv_gid {
    let raw = ferroce_wire::cm::Gid::from(ip).0;
    ibv_gid { raw }
}

//! Socket addresses in the kernel's form.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an IPv4 or an IPv6 socket address, filled by us or by the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(super) const BYTES: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    pub(super) const EMPTY: Self = {
        // SAFETY: every variant is made of integers, for which all zeroes is a value.
        unsafe { mem::zeroed() }
    };

    /// The address in the kernel's form, and how many bytes of it count.
    pub(super) fn encode(address: SocketAddr) -> (Self, libc::socklen_t) {
        let mut raw = Self::EMPTY;
        match address {
            SocketAddr::V4(v4) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(v6) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                (raw, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address the kernel wrote, if it is of a family we know.
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        // SAFETY: the union starts out zeroed and only integers are ever written to it, so each
        // variant holds initialised integers whichever was written last.
        let (family, v4, v6) = unsafe { (self.family, &self.v4, &self.v6) };
        match i32::from(family) {
            libc::AF_INET => Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()),
                u16::from_be(v4.sin_port),
            ))),
            libc::AF_INET6 => Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
                v6.sin6_flowinfo,
                v6.sin6_scope_id,
            ))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encode_then_decode_is_the_identity() {
        for text in [
            "127.0.0.2:4791",
            "[::1]:4791",
            "[fe80::1%3]:65535",
            "0.0.0.0:0",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::encode(address).0.decode(), Some(address));
        }
    }

    #[test]
    fn an_unwritten_address_decodes_to_nothing() {
        assert_eq!(RawAddress::EMPTY.decode(), None);
    }
}

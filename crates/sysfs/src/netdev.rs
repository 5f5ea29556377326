//! The network interface of an address.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::SockaddrStorage;

/// Name of the interface that has this address or, for those of 127.0.0.0/8 that do not belong to an
/// interface, whose network it is in. Empty if there is none.
#[must_use]
pub fn of(address: IpAddr) -> String {
    let interfaces: Vec<_> = getifaddrs().into_iter().flatten().collect();
    let exact = |it: &&InterfaceAddress| it.address.and_then(ip) == Some(address);
    let around = |it: &&InterfaceAddress| {
        let (own, mask) = (it.address.and_then(ip), it.netmask.and_then(ip));
        match (own, mask, address) {
            (Some(IpAddr::V4(own)), Some(IpAddr::V4(mask)), IpAddr::V4(address)) => {
                own.to_bits() & mask.to_bits() == address.to_bits() & mask.to_bits()
            }
            _ => false,
        }
    };
    let found = interfaces.iter().find(exact);
    let found = match found {
        None if address.is_loopback() => interfaces.iter().find(around),
        found => found,
    };
    found.map_or_else(String::new, |it| it.interface_name.clone())
}

fn ip(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|it| SocketAddr::V4(SocketAddrV4::from(*it)));
    let v6 = || {
        address
            .as_sockaddr_in6()
            .map(|it| SocketAddr::V6(SocketAddrV6::from(*it)))
    };
    v4.or_else(v6).map(|it| it.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_loopback_belong_to_its_interface() {
        for address in ["127.0.0.1", "127.16.0.9"] {
            assert_eq!(of(address.parse().unwrap()), "lo", "{address}");
        }
        // Reserved; no interface has it.
        assert_eq!(of("240.0.0.1".parse().unwrap()), "");
    }
}

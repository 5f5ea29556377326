//! Packets forged by other users of this host.
//!
//! Any user can send from any address of the host, and therefore in the name of any device on it.
//! But only this user's sockets can have the devices' port at an address where this user has a
//! device. Other hosts may send from any port.

use std::net::{IpAddr, SocketAddr};

use ferroce_device::{Span, Time};
use ferroce_os as os;

/// How long the host's addresses count that were looked up last.
const LOOK_AGAIN: Span = Span::from_secs(1);

/// Knows which packets are not to be believed.
#[derive(Debug)]
pub struct ForeignPorts {
    own: SocketAddr,
    /// This host's addresses, in order.
    addresses: Vec<IpAddr>,
    looked: Option<Time>,
}

impl ForeignPorts {
    /// For the device whose socket is at `own`.
    pub fn new(own: SocketAddr) -> Self {
        Self {
            own,
            addresses: Vec::new(),
            looked: None,
        }
    }

    /// Whether a packet's source is this host, and not a device.
    #[inline]
    pub fn includes(&mut self, source: SocketAddr, now: Time) -> bool {
        source.port() != self.own.port() && self.is_of_this_host(source.ip(), now)
    }

    /// Whether this host has the address.
    pub fn is_of_this_host(&mut self, address: IpAddr, now: Time) -> bool {
        if address.is_loopback() || address == self.own.ip() {
            return true;
        }
        let is_old = |at: Time| now.since(at) >= LOOK_AGAIN;
        if self.looked.is_none_or(is_old) {
            self.addresses = os::own_addresses();
            self.looked = Some(now);
        }
        self.addresses.binary_search(&address).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn this_host_sends_from_the_devices_port() {
        let mut foreign_ports = ForeignPorts::new(at("127.0.0.2:4791"));
        for address in ["127.0.0.2", "127.0.0.3", "127.200.0.1"] {
            assert!(!foreign_ports.includes(at(&format!("{address}:4791")), Time::ZERO));
            assert!(foreign_ports.includes(at(&format!("{address}:49152")), Time::ZERO));
        }
        assert!(
            !foreign_ports.includes(at("192.0.2.1:49152"), Time::ZERO),
            "another host"
        );
        assert!(foreign_ports.includes(at("[::1]:4790"), Time::ZERO));
        let others = os::own_addresses();
        assert!(others.contains(&[127, 0, 0, 1].into()), "{others:?}");
        for address in others {
            assert!(foreign_ports.includes((address, 49152).into(), Time::ZERO));
        }
    }

    #[test]
    fn a_device_with_another_port_speaks_from_that() {
        let mut foreign_ports = ForeignPorts::new(at("[::1]:10000"));
        assert!(!foreign_ports.includes(at("[::1]:10000"), Time::ZERO));
        assert!(foreign_ports.includes(at("[::1]:4791"), Time::ZERO));
    }
}

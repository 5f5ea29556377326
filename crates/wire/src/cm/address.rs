//! IP addresses and ports in messages (IBA vol 1, annex A11).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::field::{Body, Place, Value};

/// Port spaces, one for each kind of service.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u16)]
pub enum PortSpace {
    /// Datagrams in the manner of IP over InfiniBand.
    Ipoib = 0x0002,
    /// Connections; `RDMA_PS_TCP`.
    Tcp = 0x0106,
    /// Datagrams; `RDMA_PS_UDP`.
    Udp = 0x0111,
    /// Any service; `RDMA_PS_IB`.
    Ib = 0x013f,
}

impl PortSpace {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib];
}

/// ID of a service; for an IP service it consists of a port space and a port.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// Returns the ID of the service on a port.
    pub const fn new(space: PortSpace, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// Returns the port, in any port space.
    pub const fn port(self) -> u16 {
        (self.0 & 0xffff) as u16
    }

    /// Returns the port space of an IP service.
    pub fn space(self) -> Option<PortSpace> {
        PortSpace::ALL
            .into_iter()
            .find(|space| *space as u64 == self.0 >> 16)
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.space() {
            Some(space) => write!(f, "{space:?} port {}", self.port()),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}

impl Value for ServiceId {
    fn read(body: &Body, place: Place) -> Self {
        Self(Value::read(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        self.0.write(body, place);
    }
}

/// The header before the program's private data in a REQ or SIDR_REQ for an IP service: the
/// addresses of both ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AddressHeader {
    /// Address and port of the requester.
    pub source: SocketAddr,
    /// Address of the responder; the port is in the service ID.
    pub dest: IpAddr,
}

impl AddressHeader {
    /// Size of the header in the private data, bytes.
    pub const LEN: usize = 36;

    /// Parses the header at the start of private data. Returns `None` if there is none: another
    /// version, or neither IPv4 nor IPv6.
    pub fn parse(private: &[u8]) -> Option<Self> {
        let [0, version, port_a, port_b, addresses @ ..] =
            private.first_chunk::<{ Self::LEN }>()?
        else {
            return None;
        };
        let (source, dest) = (addresses.first_chunk()?, addresses.last_chunk()?);
        let ip = |bytes: &[u8; 16]| match version >> 4 {
            4 => bytes.last_chunk().map(|v4| Ipv4Addr::from(*v4).into()),
            6 => Some(Ipv6Addr::from(*bytes).into()),
            _ => None,
        };
        Some(Self {
            source: SocketAddr::new(ip(source)?, u16::from_be_bytes([*port_a, *port_b])),
            dest: ip(dest)?,
        })
    }

    /// Whether a packet between these two addresses can bring the header. A device that sends to
    /// itself may name a loopback address or the wildcard in place of its own.
    pub fn fits(&self, source: IpAddr, dest: IpAddr) -> bool {
        let is = |named: IpAddr, address: IpAddr| {
            let named = named.to_canonical();
            let is_stand_in = named.is_loopback() || named.is_unspecified();
            named == address || source == dest && is_stand_in
        };
        is(self.source.ip(), source) && is(self.dest, dest)
    }

    /// Returns the bytes of the header. Addresses of different families are both written as IPv6.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (version, source, dest) = match (self.source.ip(), self.dest) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                (4, u128::from(source.to_bits()), u128::from(dest.to_bits()))
            }
            (source, dest) => (6, bits(source), bits(dest)),
        };
        bytes[1] = version << 4;
        bytes[2..4].copy_from_slice(&self.source.port().to_be_bytes());
        bytes[4..20].copy_from_slice(&source.to_be_bytes());
        bytes[20..].copy_from_slice(&dest.to_be_bytes());
        bytes
    }
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

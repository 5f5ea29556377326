//! The headers of datagrams, in the formats of rsocket(7) that other hosts use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a message over UDP is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// The rest is a datagram, from a sender that does not know the receiver's queue pair yet.
    Data,
    /// It tells the queue pair of its sender.
    Control,
}

/// The head of a message over UDP, by which the ends learn of each other's queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UdpHead {
    pub(super) purpose: Purpose,
    pub(super) qpn: u32,
    /// The address of the queue pair.
    pub(super) ip: IpAddr,
}

impl UdpHead {
    const TAG: [u8; 4] = [0x55; 4];
    const DATA: u8 = 0;
    const CONTROL: u8 = 7;
    const LEN_V4: usize = 16;
    const LEN_V6: usize = 28;

    pub(super) fn encode(&self) -> Vec<u8> {
        let (version, length) = match self.ip {
            IpAddr::V4(_) => (4, Self::LEN_V4),
            IpAddr::V6(_) => (6, Self::LEN_V6),
        };
        let purpose = match self.purpose {
            Purpose::Data => Self::DATA,
            Purpose::Control => Self::CONTROL,
        };
        let mut bytes = Vec::with_capacity(length);
        bytes.extend(Self::TAG);
        bytes.extend([version, purpose, length as u8, 0]);
        bytes.extend(self.qpn.to_be_bytes());
        extend_by_ip(&mut bytes, self.ip);
        bytes
    }

    /// The head, and what follows it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let [version, purpose, length, _] = *bytes.get(4..)?.first_chunk()?;
        let ip = ip_of(
            bytes.get(12..)?,
            version,
            length,
            [Self::LEN_V4, Self::LEN_V6],
        )?;
        let purpose = match purpose {
            Self::DATA => Purpose::Data,
            Self::CONTROL => Purpose::Control,
            _ => return None,
        };
        let qpn = u32::from_be_bytes(*bytes.get(8..)?.first_chunk()?) & 0xff_ffff;
        let rest = bytes.get(length.into()..)?;
        (bytes[..4] == Self::TAG).then_some((Self { purpose, qpn, ip }, rest))
    }
}

/// The head of a datagram on a queue pair: the address of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head(pub(super) SocketAddr);

impl Head {
    const LEN_V4: usize = 8;
    const LEN_V6: usize = 24;

    pub(super) fn encode(&self) -> Vec<u8> {
        let (version, length) = match self.0 {
            SocketAddr::V4(_) => (4, Self::LEN_V4),
            SocketAddr::V6(_) => (6, Self::LEN_V6),
        };
        let mut bytes = Vec::with_capacity(length);
        bytes.extend([version, length as u8]);
        bytes.extend(self.0.port().to_be_bytes());
        if self.0.is_ipv6() {
            bytes.extend([0; 4]); // flow information
        }
        extend_by_ip(&mut bytes, self.0.ip());
        bytes
    }

    /// The head, and what follows it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let [version, length] = *bytes.first_chunk()?;
        let ip_at = if version == 6 { 8 } else { 4 };
        let ip = ip_of(
            bytes.get(ip_at..)?,
            version,
            length,
            [Self::LEN_V4, Self::LEN_V6],
        )?;
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        Some((Self((ip, port).into()), bytes.get(length.into()..)?))
    }
}

fn extend_by_ip(bytes: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => bytes.extend(ip.octets()),
        IpAddr::V6(ip) => bytes.extend(ip.octets()),
    }
}

/// The address that `bytes` begin with, if `length` is the one of the version.
fn ip_of(bytes: &[u8], version: u8, length: u8, lengths: [usize; 2]) -> Option<IpAddr> {
    let [v4, v6] = lengths;
    match (version, usize::from(length)) {
        (4, length) if length == v4 => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
        (6, length) if length == v6 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_laid_out_as_other_hosts_do() {
        let head = UdpHead {
            purpose: Purpose::Control,
            qpn: 0x01_0203,
            ip: [10, 0, 0, 7].into(),
        };
        let bytes = head.encode();
        assert_eq!(
            bytes,
            [0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 1, 2, 3, 10, 0, 0, 7]
        );
        let head = Head(([10, 0, 0, 7], 0x1c06).into());
        assert_eq!(head.encode(), [4, 8, 0x1c, 6, 10, 0, 0, 7]);
    }

    #[test]
    fn heads_survive_the_way_and_nothing_else_does() {
        for ip in ["10.0.0.7", "fd00::7"] {
            let ip: IpAddr = ip.parse().unwrap();
            let (purpose, qpn) = (Purpose::Data, 17);
            let udp = UdpHead { purpose, qpn, ip };
            let head = Head((ip, 7174).into());
            let (udp_bytes, bytes) = (udp.encode(), head.encode());
            let with_data = |head: &[u8]| [head, b"data"].concat();
            let (udp_data, data) = (with_data(&udp_bytes), with_data(&bytes));
            assert_eq!(UdpHead::decode(&udp_data), Some((udp, &b"data"[..])));
            assert_eq!(Head::decode(&data), Some((head, &b"data"[..])));
            for short in 0..udp_bytes.len() {
                assert_eq!(UdpHead::decode(&udp_bytes[..short]), None);
            }
            for short in 0..bytes.len() {
                assert_eq!(Head::decode(&bytes[..short]), None);
            }
            for (place, wrong) in [(0, 0), (4, 5), (5, 1), (6, 17)] {
                let mut bytes = udp_bytes.clone();
                bytes[place] = wrong;
                assert_eq!(UdpHead::decode(&bytes), None);
            }
            assert_eq!(Head::decode(&[[5, 8].as_slice(), &[0; 30]].concat()), None);
        }
    }
}

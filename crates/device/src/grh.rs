//! The IP header before a datagram, in the form that programs see.

use std::net::IpAddr;

use ferroce_transport::{GRH_BYTES, Grh, frame_bytes};

use crate::packet::Received;

const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;
/// No socket tells what hops were left.
const HOPS: u8 = 64;

/// The IP header of a received packet as a UD receive shows it (RoCEv2 annex, A17.4.5): with what
/// the host knows of it, and a checksum that fits, since `ibv_init_ah_from_wc` looks at that.
pub(crate) fn grh(packet: &Received<'_>) -> Grh {
    let mut grh = [0; GRH_BYTES as usize];
    let datagram = UDP_LEN + frame_bytes(packet.headers, packet.data.len()) as usize;
    match (packet.source, packet.dest) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            let header = &mut grh[GRH_BYTES as usize - IPV4_LEN..];
            let length = (IPV4_LEN + datagram) as u16; // one MTU and some headers
            header[0] = 0x45;
            header[1] = packet.traffic_class;
            header[2..4].copy_from_slice(&length.to_be_bytes());
            header[6] = 0x40; // don't fragment
            header[8..10].copy_from_slice(&[HOPS, UDP]);
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&dest.octets());
            let checksum = checksum(header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (source, dest) => {
            let class = 6 << 28 | u32::from(packet.traffic_class) << 20;
            let octets = |address| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            grh[..4].copy_from_slice(&class.to_be_bytes());
            grh[4..6].copy_from_slice(&(datagram as u16).to_be_bytes());
            grh[6..8].copy_from_slice(&[UDP, HOPS]);
            grh[8..24].copy_from_slice(&octets(source));
            grh[24..].copy_from_slice(&octets(dest));
        }
    }
    grh
}

/// The Internet checksum (RFC 1071) of a header whose own checksum is zero.
fn checksum(header: &[u8]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let mut sum: u32 = words
        .iter()
        .map(|w| u32::from(u16::from_be_bytes(*w)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_transport::Data;
    use ferroce_wire::{Deth, Headers, Qpn};

    fn of(source: &str, dest: &str) -> Grh {
        let deth = Deth {
            qkey: 1,
            src_qp: Qpn::new(2),
        };
        let headers = Headers::datagram(deth, None);
        grh(&Received {
            source: source.parse().unwrap(),
            dest: dest.parse().unwrap(),
            traffic_class: 0x6a,
            sl: 0,
            port: 1,
            headers: &headers,
            data: Data::Length(7),
        })
    }

    #[test]
    fn an_ipv4_header_fills_the_second_half_and_its_checksum_fits() {
        let grh = of("192.0.2.1", "239.1.2.3");
        assert_eq!(grh[..20], [0; 20]);
        #[rustfmt::skip]
        assert_eq!(grh[20..30], [0x45, 0x6a, 0, 20 + 8 + 20 + 8 + 4, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(grh[32..], [192, 0, 2, 1, 239, 1, 2, 3]);
        assert_eq!(checksum(&grh[20..]), 0, "the sum over a good header");
    }

    #[test]
    fn an_ipv6_header_fills_it_all() {
        let grh = of("2001:db8::1", "ff0e::2");
        assert_eq!(grh[..8], [0x66, 0xa0, 0, 0, 0, 8 + 20 + 8 + 4, 17, 64]);
        assert_eq!(grh[8..12], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!((grh[23], grh[24], grh[39]), (1, 0xff, 2));
    }
}

//! Captures for Wireshark and tshark: a pcapng writer that puts IP and UDP headers around packets.
//!
//! One section, an interface of link type "raw IP", nanosecond time stamps, little-endian. Packets
//! with a VLAN tag are on a second interface of link type "Ethernet", which the first of them adds.
//! The format is that of draft-ietf-opsawg-pcapng; the section numbers below are the draft's.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use crate::ethernet::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, UDP_HEADER_LEN, VlanTag};

/// Addresses of a captured packet, from which its IP and UDP headers are made, and its direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UdpMeta {
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port, of the same family.
    pub dst: SocketAddr,
    /// TOS byte of IPv4, traffic class of IPv6: DSCP and ECN.
    pub tos: u8,
    /// IPv4 Identification.
    pub ip_id: u16,
    /// TTL of IPv4, hop limit of IPv6.
    pub ttl: u8,
    /// Don't Fragment flag of IPv4. The ICRC depends on it.
    pub dont_fragment: bool,
    /// The direction of the packet, if the capture is to show it.
    pub direction: Option<Direction>,
    /// The VLAN tag, if it has one. The capture then contains the Ethernet frame.
    pub tag: Option<VlanTag>,
}

/// The direction of a captured packet, as Wireshark shows it (`frame.packet_flags_direction`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// It was received.
    Inbound,
    /// It was sent.
    Outbound,
}

impl Direction {
    /// The direction bits of the packet flags (section 4.3.1).
    const fn flags(self) -> u32 {
        match self {
            Self::Inbound => 1,
            Self::Outbound => 2,
        }
    }
}

impl UdpMeta {
    /// Creates headers as Ferroce sends them: TOS 0, Identification 0, TTL 64, Don't Fragment; no
    /// direction.
    pub const fn new(src: SocketAddr, dst: SocketAddr) -> Self {
        Self {
            src,
            dst,
            tos: 0,
            ip_id: 0,
            ttl: 64,
            dont_fragment: true,
            direction: None,
            tag: None,
        }
    }

    /// Appends the Ethernet header of a frame with this tag. Ferroce's hosts have no MAC addresses;
    /// these are made from their IP addresses.
    fn write_ethernet(&self, tag: VlanTag, out: &mut Vec<u8>) {
        let ether_type = match self.dst {
            SocketAddr::V4(_) => ETHER_TYPE_IPV4,
            SocketAddr::V6(_) => ETHER_TYPE_IPV6,
        };
        for end in [self.dst, self.src] {
            out.extend_from_slice(&mac_of(end.ip()));
        }
        out.extend_from_slice(&tag.to_bytes());
        out.extend_from_slice(&ether_type.to_be_bytes());
    }

    /// Appends an IP packet: IP and UDP headers around `payload`.
    ///
    /// The UDP checksum is absent (0) over IPv4, and real over IPv6, which requires one. Fails with
    /// [`io::ErrorKind::InvalidInput`], possibly after a part was written, under the same
    /// conditions as [`Writer::write_packet`].
    pub fn write_datagram(&self, payload: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let too_long = |_| invalid(format!("payload of {} bytes exceeds UDP", payload.len()));
        let udp_len = u16::try_from(UDP_HEADER_LEN + payload.len()).map_err(too_long)?;
        let mut udp = [0; UDP_HEADER_LEN];
        udp[0..2].copy_from_slice(&self.src.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.dst.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let ip_len = usize::from(udp_len) + IPV4_HEADER_LEN;
                let ip_len = u16::try_from(ip_len).map_err(too_long)?;
                let mut ip = [0; IPV4_HEADER_LEN];
                ip[0] = 0x45;
                ip[1] = self.tos;
                ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
                ip[4..6].copy_from_slice(&self.ip_id.to_be_bytes());
                ip[6] = if self.dont_fragment { 0x40 } else { 0 };
                ip[8] = self.ttl;
                ip[9] = IP_PROTOCOL_UDP;
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
                let checksum = internet_checksum(&[&ip]);
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
                out.extend_from_slice(&ip);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut ip = [0; IPV6_HEADER_LEN];
                ip[0] = 0x60 | (self.tos >> 4);
                ip[1] = self.tos << 4;
                ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
                ip[6] = IP_PROTOCOL_UDP;
                ip[7] = self.ttl;
                ip[8..24].copy_from_slice(&src.octets());
                ip[24..40].copy_from_slice(&dst.octets());
                // The pseudo-header is both addresses, the length and the protocol.
                let protocol = [0, IP_PROTOCOL_UDP];
                let parts = [&ip[8..40], &udp_len.to_be_bytes(), &protocol, &udp, payload];
                // A result of 0 is sent as its other representation, for 0 means "none".
                let checksum = match internet_checksum(&parts) {
                    0 => 0xffff,
                    checksum => checksum,
                };
                udp[6..8].copy_from_slice(&checksum.to_be_bytes());
                out.extend_from_slice(&ip);
            }
            (src, dst) => return Err(invalid(format!("{src} and {dst} differ in family"))),
        }
        out.extend_from_slice(&udp);
        out.extend_from_slice(payload);
        Ok(())
    }
}

/// A MAC address for a host, which is locally administered (02), or the one that IP multicast uses
/// for a group (RFC 1112, RFC 2464).
fn mac_of(address: IpAddr) -> [u8; 6] {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            match v4.is_multicast() {
                true => [0x01, 0x00, 0x5e, b & 0x7f, c, d],
                false => [0x02, 0x00, a, b, c, d],
            }
        }
        IpAddr::V6(v6) => {
            let [.., a, b, c, d] = v6.octets();
            match v6.is_multicast() {
                true => [0x33, 0x33, a, b, c, d],
                false => [0x02, 0x00, a, b, c, d],
            }
        }
    }
}

/// Writes a capture to any byte sink, with one `write_all` per packet.
///
/// Use a `BufWriter` around a file; [`flush`](Self::flush) is passed through to it.
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: W,
    block: Vec<u8>,
    if_name: String,
    /// The interface of tagged frames has been described.
    has_ethernet: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a capture of an interface named `fr0`.
    pub fn new(sink: W) -> io::Result<Self> {
        Self::with_interface(sink, "fr0")
    }

    /// Begins a capture of an interface with the given name.
    pub fn with_interface(sink: W, if_name: &str) -> io::Result<Self> {
        let mut writer = Self {
            sink,
            block: Vec::new(),
            if_name: if_name.to_owned(),
            has_ethernet: false,
        };
        writer.write_block(SECTION_HEADER_BLOCK, |body| {
            body.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
            body.extend_from_slice(&VERSION_MAJOR.to_le_bytes());
            body.extend_from_slice(&VERSION_MINOR.to_le_bytes());
            body.extend_from_slice(&SECTION_LENGTH_UNKNOWN.to_le_bytes());
            put_option(body, SHB_OS, std::env::consts::OS.as_bytes())?;
            put_option(body, SHB_USERAPPL, b"ferroce")?;
            put_option(body, OPT_ENDOFOPT, &[])
        })?;
        writer.describe_interface(LINKTYPE_RAW)?;
        Ok(writer)
    }

    fn describe_interface(&mut self, link: u16) -> io::Result<()> {
        let name = self.if_name.clone();
        self.write_block(INTERFACE_DESCRIPTION_BLOCK, |body| {
            body.extend_from_slice(&link.to_le_bytes());
            body.extend_from_slice(&[0; 2]);
            body.extend_from_slice(&SNAPLEN_UNLIMITED.to_le_bytes());
            put_option(body, IF_NAME, name.as_bytes())?;
            put_option(body, IF_TSRESOL, &[TSRESOL_NS])?;
            put_option(body, OPT_ENDOFOPT, &[])
        })
    }

    /// Appends a packet. `udp_payload` extends from the BTH to the ICRC, `ts_ns` counts from the
    /// Unix epoch (or from the start of a simulation).
    ///
    /// Fails with [`io::ErrorKind::InvalidInput`], without writing anything, if the addresses
    /// differ in family or the datagram would be too long.
    pub fn write_packet(
        &mut self,
        ts_ns: u64,
        meta: &UdpMeta,
        udp_payload: &[u8],
    ) -> io::Result<()> {
        self.write_packet_with_comment(ts_ns, meta, udp_payload, "")
    }

    /// Like [`write_packet`](Self::write_packet), with a comment that Wireshark shows
    /// (`frame.comment`); an empty one is left out. At most 65,535 bytes.
    pub fn write_packet_with_comment(
        &mut self,
        ts_ns: u64,
        meta: &UdpMeta,
        udp_payload: &[u8],
        comment: &str,
    ) -> io::Result<()> {
        if meta.tag.is_some() && !self.has_ethernet {
            self.describe_interface(LINKTYPE_ETHERNET)?;
            self.has_ethernet = true;
        }
        self.write_block(ENHANCED_PACKET_BLOCK, |body| {
            let interface = match meta.tag {
                Some(_) => ETHERNET_INTERFACE,
                None => RAW_INTERFACE,
            };
            body.extend_from_slice(&interface.to_le_bytes());
            // The upper half of the time stamp comes first in either byte order.
            let [l0, l1, l2, l3, h0, h1, h2, h3] = ts_ns.to_le_bytes();
            body.extend_from_slice(&[h0, h1, h2, h3, l0, l1, l2, l3]);
            let lengths_at = body.len();
            body.extend_from_slice(&[0; 8]);
            let data_at = body.len();
            if let Some(tag) = meta.tag {
                meta.write_ethernet(tag, body);
            }
            meta.write_datagram(udp_payload, body)?;
            let len = u32_len(body.len() - data_at)?.to_le_bytes();
            body[lengths_at..lengths_at + 4].copy_from_slice(&len);
            body[lengths_at + 4..data_at].copy_from_slice(&len);
            pad_to_4(body);
            let options_at = body.len();
            if !comment.is_empty() {
                put_option(body, OPT_COMMENT, comment.as_bytes())?;
            }
            if let Some(direction) = meta.direction {
                put_option(body, EPB_FLAGS, &direction.flags().to_le_bytes())?;
            }
            if body.len() > options_at {
                put_option(body, OPT_ENDOFOPT, &[])?;
            }
            Ok(())
        })
    }

    /// Flushes the sink.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Returns the sink; a capture needs no end mark.
    pub fn into_inner(self) -> W {
        self.sink
    }

    /// Frames the body with type and both lengths (section 3.1) and writes it in one go.
    fn write_block(
        &mut self,
        block_type: u32,
        body: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.block.clear();
        self.block.extend_from_slice(&block_type.to_le_bytes());
        self.block.extend_from_slice(&[0; 4]);
        body(&mut self.block)?;
        let len = u32_len(self.block.len() + 4)?.to_le_bytes();
        self.block[4..8].copy_from_slice(&len);
        self.block.extend_from_slice(&len);
        self.sink.write_all(&self.block)
    }
}

/// Appends an option (section 3.5).
fn put_option(body: &mut Vec<u8>, code: u16, value: &[u8]) -> io::Result<()> {
    let too_long = |_| invalid(format!("option of {} bytes exceeds pcapng", value.len()));
    let len = u16::try_from(value.len()).map_err(too_long)?;
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&len.to_le_bytes());
    body.extend_from_slice(value);
    pad_to_4(body);
    Ok(())
}

/// Everything in a block begins at a multiple of 4.
fn pad_to_4(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Ones' complement sum of RFC 1071 over the parts. All but the last have even lengths.
fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        let mut words = part.chunks_exact(2);
        for word in &mut words {
            sum += u64::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [last] = words.remainder() {
            sum += u64::from(u16::from_be_bytes([*last, 0]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

fn u32_len(len: usize) -> io::Result<u32> {
    u32::try_from(len).map_err(|_| invalid("block exceeds pcapng"))
}

fn invalid(message: impl Into<Cow<'static, str>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.into())
}

const IP_PROTOCOL_UDP: u8 = 17;
const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;

/// Section header block (section 4.1).
const SECTION_HEADER_BLOCK: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const VERSION_MAJOR: u16 = 1;
const VERSION_MINOR: u16 = 0;
const SECTION_LENGTH_UNKNOWN: u64 = u64::MAX;
const SHB_OS: u16 = 3;
const SHB_USERAPPL: u16 = 4;
/// Interface description block (section 4.2).
const INTERFACE_DESCRIPTION_BLOCK: u32 = 1;
/// Packets begin with the IP header; its version tells the family.
const LINKTYPE_RAW: u16 = 101;
/// Packets begin with the Ethernet header, and have no frame check sequence.
const LINKTYPE_ETHERNET: u16 = 1;
const SNAPLEN_UNLIMITED: u32 = 0;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
/// Time stamps count in 10^-9 s.
const TSRESOL_NS: u8 = 9;
/// Enhanced packet block (section 4.3).
const ENHANCED_PACKET_BLOCK: u32 = 6;
/// The interface of packets without a tag.
const RAW_INTERFACE: u32 = 0;
/// The interface of frames with a tag.
const ETHERNET_INTERFACE: u32 = 1;
const OPT_ENDOFOPT: u16 = 0;
const OPT_COMMENT: u16 = 1;
const EPB_FLAGS: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::VlanId;

    fn meta() -> UdpMeta {
        UdpMeta {
            tos: 0x02,
            ip_id: 0x1234,
            ..UdpMeta::new(
                "10.0.0.1:49152".parse().unwrap(),
                "10.0.0.2:4791".parse().unwrap(),
            )
        }
    }

    /// Cuts a capture into (type, body) and checks the framing.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
        let word = |at: &[u8]| u32::from_le_bytes(*at.first_chunk().unwrap());
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let len = usize::try_from(word(&bytes[4..])).unwrap();
            assert!(len.is_multiple_of(4));
            assert_eq!(bytes[4..8], bytes[len - 4..len]);
            blocks.push((word(bytes), &bytes[8..len - 4]));
            bytes = &bytes[len..];
        }
        blocks
    }

    #[test]
    fn file_begins_with_section_and_interface() {
        let bytes = Writer::with_interface(Vec::new(), "fr7")
            .unwrap()
            .into_inner();
        let blocks = blocks(&bytes);
        assert_eq!(blocks.len(), 2);
        let (kind, section) = blocks[0];
        assert_eq!(kind, 0x0a0d_0d0a);
        assert_eq!(
            section[..16],
            [
                0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff
            ]
        );
        assert!(section.ends_with(b"\x04\x00\x07\x00ferroce\x00\x00\x00\x00\x00"));
        let (kind, interface) = blocks[1];
        assert_eq!(kind, 1);
        assert_eq!(
            interface,
            b"\x65\x00\x00\x00\x00\x00\x00\x00\x02\x00\x03\x00fr7\x00\
              \x09\x00\x01\x00\x09\x00\x00\x00\x00\x00\x00\x00"
        );
    }

    #[test]
    fn packet_over_ipv4() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer
            .write_packet(0x0123_4567_89ab_cdef, &meta(), b"abcde")
            .unwrap();
        let bytes = writer.into_inner();
        let (kind, body) = blocks(&bytes)[2];
        assert_eq!(kind, 6);
        assert_eq!(
            body,
            [
                0, 0, 0, 0, // interface
                0x67, 0x45, 0x23, 0x01, 0xef, 0xcd, 0xab, 0x89, // time stamp
                33, 0, 0, 0, 33, 0, 0, 0, // lengths
                0x45, 0x02, 0, 33, 0x12, 0x34, 0x40, 0, 64, 17, 0x14, 0x94, // IPv4
                10, 0, 0, 1, 10, 0, 0, 2, //
                0xc0, 0x00, 0x12, 0xb7, 0, 13, 0, 0, // UDP
                b'a', b'b', b'c', b'd', b'e', 0, 0, 0,
            ]
        );
    }

    #[test]
    fn packet_over_ipv6_has_a_udp_checksum() {
        let meta = UdpMeta {
            tos: 0xab,
            ..UdpMeta::new(
                "[fd00::1]:49152".parse().unwrap(),
                "[fd00::2]:4791".parse().unwrap(),
            )
        };
        let mut datagram = Vec::new();
        meta.write_datagram(b"abcde", &mut datagram).unwrap();
        assert_eq!(datagram[..8], [0x6a, 0xb0, 0, 0, 0, 13, 17, 64]);
        // Summing up everything including the checksum gives the checksum of nothing.
        let parts = [
            &datagram[8..40],
            &[0, 17][..],
            &[0, 13][..],
            &datagram[40..],
        ];
        assert_eq!(internet_checksum(&parts), 0);
        assert_ne!(datagram[46..48], [0, 0]);
    }

    #[test]
    fn tagged_packets_are_frames_on_an_interface_of_their_own() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        let tagged = UdpMeta {
            tag: VlanId::new(100).map(|vlan| VlanTag { vlan, pcp: 5 }),
            ..meta()
        };
        for meta in [meta(), tagged, tagged] {
            writer.write_packet(0, &meta, b"abcde").unwrap();
        }
        let bytes = writer.into_inner();
        let blocks = blocks(&bytes);
        let kinds: Vec<_> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds[2..], [6, 1, 6, 6]);
        let interfaces = [2, 4, 5].map(|at| blocks[at].1[0]);
        assert_eq!(interfaces, [0, 1, 1]);
        assert_eq!(blocks[3].1[..4], [1, 0, 0, 0]);
        let frame = [
            2, 0, 10, 0, 0, 2, // to
            2, 0, 10, 0, 0, 1, // from
            0x81, 0x00, 0xa0, 0x64, // tag
            0x08, 0x00, 0x45,
        ];
        assert_eq!(blocks[4].1[20..39], frame);
        assert_eq!(blocks[4].1[12], 33 + 18);
    }

    #[test]
    fn groups_have_the_mac_addresses_of_ip_multicast() {
        let mac = |address: &str| mac_of(address.parse().unwrap());
        assert_eq!(mac("224.129.2.3"), [0x01, 0x00, 0x5e, 1, 2, 3]);
        assert_eq!(mac("ff0e::1:2"), [0x33, 0x33, 0, 1, 0, 2]);
    }

    #[test]
    fn comments_follow_the_padded_data() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer
            .write_packet_with_comment(0, &meta(), b"abcde", "lost")
            .unwrap();
        let bytes = writer.into_inner();
        let (_, body) = blocks(&bytes)[2];
        assert!(body.ends_with(b"abcde\x00\x00\x00\x01\x00\x04\x00lost\x00\x00\x00\x00"));
    }

    #[test]
    fn the_direction_is_a_packet_flag() {
        for (direction, flag) in [(Direction::Inbound, 1), (Direction::Outbound, 2)] {
            let meta = UdpMeta {
                direction: Some(direction),
                ..meta()
            };
            let mut writer = Writer::new(Vec::new()).unwrap();
            writer.write_packet(0, &meta, b"abcde").unwrap();
            let bytes = writer.into_inner();
            let (_, body) = blocks(&bytes)[2];
            let end = [b'e', 0, 0, 0, 2, 0, 4, 0, flag, 0, 0, 0, 0, 0, 0, 0];
            assert!(body.ends_with(&end), "{body:?}");
        }
    }

    #[test]
    fn impossible_packets_are_refused_and_leave_no_trace() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        let mixed = UdpMeta {
            dst: "[::1]:4791".parse().unwrap(),
            ..meta()
        };
        let refused = [
            writer.write_packet(0, &mixed, b""),
            writer.write_packet(0, &meta(), &[0; 65_508]),
            writer.write_packet(0, &meta(), &[0; 70_000]),
            writer.write_packet_with_comment(0, &meta(), b"", &"x".repeat(65_536)),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        writer.write_packet(0, &meta(), &[0; 65_507]).unwrap();
        assert_eq!(blocks(&writer.into_inner()).len(), 3);
    }
}

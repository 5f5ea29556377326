//! Extracts RoCEv2 datagrams from frames.

use std::net::IpAddr;

use etherparse::{EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use ferroce_wire::ROCE_V2_PORT;
use pcap_parser::Linktype;

use crate::reader::Frame;

/// Tunnels within tunnels that are followed.
const TUNNELS_MAX: usize = 4;
const UDP_HEADER_LEN: usize = 8;

/// A datagram to RoCEv2's UDP port.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// When it was captured, in nanoseconds since the epoch of the file.
    pub at_ns: u64,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source UDP port.
    pub src_port: u16,
    /// IPv4 Identification, 0 for IPv6.
    pub ip_id: u16,
    /// Explicit congestion notification: 3 if a switch marked the packet.
    pub ecn: u8,
    /// BTH to ICRC, as far as it was captured.
    pub bytes: &'a [u8],
    /// Its length on the link.
    pub len: usize,
}

impl Datagram<'_> {
    /// Returns whether the capture has only the beginning of it.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.len
    }
}

/// The reason why a frame is not a RoCEv2 datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// It comes from an unsupported kind of link.
    Link(Linktype),
    /// It belongs to another protocol.
    Protocol,
    /// It is truncated before the transport header.
    Cut,
    /// It is a fragment, which RoCEv2 does not allow.
    Fragment,
}

/// Removes Ethernet, VLAN tags, Linux cooked headers, GRE, IP and UDP.
///
/// # Errors
/// Returns [`Other`] if the frame is not a RoCEv2 datagram.
pub fn datagram<'a>(frame: &Frame<'a>) -> Result<Datagram<'a>, Other> {
    let mut layers = of_link(frame)?;
    for _ in 0..TUNNELS_MAX {
        match inside_gre(&layers) {
            Some(inner) => layers = inner?,
            None => return of_layers(frame.at_ns, &layers),
        }
    }
    Err(Other::Protocol)
}

fn of_link<'a>(frame: &Frame<'a>) -> Result<LaxSlicedPacket<'a>, Other> {
    let bytes = frame.bytes;
    match frame.link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).map_err(|_| Other::Cut),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | RAW_OF_BSD => of_ip(bytes),
        // The address family, in the order of the machine that captured.
        Linktype::NULL | Linktype::LOOP => of_ip(bytes.get(4..).ok_or(Other::Cut)?),
        Linktype::LINUX_SLL => cooked(bytes, 14, 16),
        Linktype::LINUX_SLL2 => cooked(bytes, 0, 20),
        other => Err(Other::Link(other)),
    }
}

/// What some systems write for raw IP.
const RAW_OF_BSD: Linktype = Linktype(12);

fn of_ip(bytes: &[u8]) -> Result<LaxSlicedPacket<'_>, Other> {
    LaxSlicedPacket::from_ip(bytes).map_err(|_| Other::Protocol)
}

/// A Linux cooked header: the protocol lies at `at`, what it carries behind `len` bytes.
fn cooked(bytes: &[u8], at: usize, len: usize) -> Result<LaxSlicedPacket<'_>, Other> {
    let protocol = be_u16(bytes, at).ok_or(Other::Cut)?;
    let inner = bytes.get(len..).ok_or(Other::Cut)?;
    Ok(LaxSlicedPacket::from_ether_type(EtherType(protocol), inner))
}

/// What GRE carries (RFC 2784, RFC 2890), if that is what the packet is.
fn inside_gre<'a>(layers: &LaxSlicedPacket<'a>) -> Option<Result<LaxSlicedPacket<'a>, Other>> {
    /// Ethernet frames (RFC 1701).
    const BRIDGED: u16 = 0x6558;
    let payload = layers.ip_payload()?;
    if payload.ip_number != IpNumber::GRE {
        return None;
    }
    let inner = || {
        let flags = be_u16(payload.payload, 0).ok_or(Other::Cut)?;
        let protocol = be_u16(payload.payload, 2).ok_or(Other::Cut)?;
        // Version 0; checksum, key and sequence number are 4 bytes each.
        if flags & 7 != 0 {
            return Err(Other::Protocol);
        }
        let optional = [0x8000, 0x2000, 0x1000];
        let optional = optional.iter().filter(|flag| flags & **flag != 0).count();
        let inner = payload.payload.get(4 + 4 * optional..).ok_or(Other::Cut)?;
        match protocol {
            BRIDGED => LaxSlicedPacket::from_ethernet(inner).map_err(|_| Other::Cut),
            other => Ok(LaxSlicedPacket::from_ether_type(EtherType(other), inner)),
        }
    };
    Some(inner())
}

fn of_layers<'a>(at_ns: u64, layers: &LaxSlicedPacket<'a>) -> Result<Datagram<'a>, Other> {
    let (src, dst, tos, ip_id, payload) = match &layers.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            (
                IpAddr::V4(header.source_addr()),
                IpAddr::V4(header.destination_addr()),
                header.slice()[1],
                header.identification(),
                ip.payload(),
            )
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            (
                IpAddr::V6(header.source_addr()),
                IpAddr::V6(header.destination_addr()),
                header.traffic_class(),
                0,
                ip.payload(),
            )
        }
        _ => return Err(Other::Protocol),
    };
    if payload.ip_number != IpNumber::UDP {
        return Err(Other::Protocol);
    }
    if payload.fragmented {
        return Err(Other::Fragment);
    }
    let Some(TransportSlice::Udp(udp)) = &layers.transport else {
        return Err(Other::Cut);
    };
    if udp.destination_port() != ROCE_V2_PORT {
        return Err(Other::Protocol);
    }
    let stated = usize::from(udp.length()).checked_sub(UDP_HEADER_LEN);
    let bytes = udp.payload();
    Ok(Datagram {
        at_ns,
        src,
        dst,
        src_port: udp.source_port(),
        ip_id,
        ecn: tos & 3,
        bytes,
        len: stated.unwrap_or(0).max(bytes.len()),
    })
}

fn be_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*field))
}

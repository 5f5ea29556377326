//! Sizes of packets on an Ethernet link, including everything around the UDP payload.

use core::net::IpAddr;

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_HEADER_LEN: usize = 40;
/// Bytes of a UDP header.
pub const UDP_HEADER_LEN: usize = 8;
/// Bytes of an Ethernet header: two addresses and the type. There is no VLAN tag.
pub const ETHERNET_HEADER_LEN: usize = 14;
/// Bytes of the frame check sequence at the end of an Ethernet frame.
pub const FCS_LEN: usize = 4;
/// Bytes of the shortest Ethernet frame; shorter ones are padded.
pub const FRAME_LEN_MIN: usize = 64;
/// Bytes before an Ethernet frame: preamble and start delimiter.
pub const PREAMBLE_LEN: usize = 8;
/// Length of the gap between two Ethernet frames, bytes.
pub const INTERFRAME_GAP: usize = 12;

/// Returns the size of the Ethernet frame, as a switch's buffer holds it, for a packet to `dest`
/// with `packet_len` bytes from its BTH to its ICRC.
///
/// ```
/// use ferroce_wire::{ethernet, BTH_LEN, ICRC_LEN};
/// let packet = BTH_LEN + 4096 + ICRC_LEN;
/// let dest = [10, 0, 0, 2].into();
/// assert_eq!(ethernet::frame_len(dest, packet), 4158);
/// assert_eq!(ethernet::wire_len(dest, packet), 4178);
/// ```
#[inline]
pub const fn frame_len(dest: IpAddr, packet_len: usize) -> usize {
    let ip = match dest {
        IpAddr::V4(_) => IPV4_HEADER_LEN,
        IpAddr::V6(_) => IPV6_HEADER_LEN,
    };
    let len = ETHERNET_HEADER_LEN + ip + UDP_HEADER_LEN + packet_len + FCS_LEN;
    if len < FRAME_LEN_MIN {
        FRAME_LEN_MIN
    } else {
        len
    }
}

/// Returns the bytes for which the same packet occupies the link: the frame, its preamble and the
/// gap after it.
#[inline]
pub const fn wire_len(dest: IpAddr, packet_len: usize) -> usize {
    PREAMBLE_LEN + frame_len(dest, packet_len) + INTERFRAME_GAP
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AETH_LEN, BTH_LEN, ICRC_LEN};

    #[test]
    fn an_acknowledgement_takes_86_bytes_of_the_link() {
        let packet = BTH_LEN + AETH_LEN + ICRC_LEN;
        assert_eq!(wire_len([10, 0, 0, 1].into(), packet), 86);
        let v6 = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);
        assert_eq!(wire_len(v6, packet), 106);
    }

    #[test]
    fn a_message_of_nothing_is_padded_to_a_frame() {
        assert_eq!(frame_len([10, 0, 0, 1].into(), BTH_LEN + ICRC_LEN), 64);
    }
}

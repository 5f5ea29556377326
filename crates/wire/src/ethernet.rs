//! Ethernet around packets: VLAN tags, and the sizes of packets on a link.

use core::net::IpAddr;
use core::num::NonZeroU16;

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_HEADER_LEN: usize = 40;
/// Bytes of a UDP header.
pub const UDP_HEADER_LEN: usize = 8;
/// Bytes of an Ethernet header without a VLAN tag: two addresses and the type.
pub const ETHERNET_HEADER_LEN: usize = 14;
/// Bytes that a VLAN tag adds to an Ethernet header.
pub const VLAN_TAG_LEN: usize = 4;
/// Bytes of the frame check sequence at the end of an Ethernet frame.
pub const FCS_LEN: usize = 4;
/// Bytes of the shortest Ethernet frame; shorter ones are padded.
pub const FRAME_LEN_MIN: usize = 64;
/// Bytes before an Ethernet frame: preamble and start delimiter.
pub const PREAMBLE_LEN: usize = 8;
/// Length of the gap between two Ethernet frames, bytes.
pub const INTERFRAME_GAP: usize = 12;

/// The number of a VLAN, 1 to 4094 (IEEE 802.1Q, 9.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct VlanId(NonZeroU16);

impl VlanId {
    /// The highest number of a VLAN.
    pub const MAX: u16 = 4094;

    /// Returns the VLAN with this number, if there is one.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) if number.get() <= Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// Returns its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0.get()
    }
}

/// An 802.1Q tag: a VLAN and a priority.
///
/// ```
/// use ferroce_wire::ethernet::{VlanId, VlanTag};
/// let tag = VlanTag { vlan: VlanId::new(100).unwrap(), pcp: 3 };
/// assert_eq!(tag.to_bytes(), [0x81, 0x00, 0x60, 0x64]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct VlanTag {
    /// The VLAN.
    pub vlan: VlanId,
    /// The priority code point, of which the lower three bits are sent.
    pub pcp: u8,
}

impl VlanTag {
    /// Type of a frame with an 802.1Q tag.
    pub const ETHER_TYPE: u16 = 0x8100;

    /// Returns the tag as it is between the addresses and the type of a frame. The drop eligible
    /// indicator is 0.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; VLAN_TAG_LEN] {
        let control = (self.pcp as u16) << 13 | self.vlan.number();
        let ([a, b], [c, d]) = (Self::ETHER_TYPE.to_be_bytes(), control.to_be_bytes());
        [a, b, c, d]
    }
}

/// Returns the size of the Ethernet frame, as a switch's buffer holds it, for a packet to `dest`
/// with `packet_len` bytes from its BTH to its ICRC. If it has a VLAN tag, add [`VLAN_TAG_LEN`] to
/// them.
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
    fn vlans_have_the_numbers_1_to_4094() {
        for (number, exists) in [(0, false), (1, true), (4094, true), (4095, false)] {
            let vlan = VlanId::new(number);
            assert_eq!(vlan.map(VlanId::number), exists.then_some(number));
        }
    }

    #[test]
    fn a_message_of_nothing_is_padded_to_a_frame() {
        assert_eq!(frame_len([10, 0, 0, 1].into(), BTH_LEN + ICRC_LEN), 64);
    }
}

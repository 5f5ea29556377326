//! How long the packets of messages are, in buffers and on the wire. All lengths and path MTUs are in bytes.

use ferroce_wire::ethernet::{
    ETHERNET_HEADER_LEN, FCS_LEN, INTERFRAME_GAP, IPV4_HEADER_LEN, PREAMBLE_LEN, UDP_HEADER_LEN,
};
use ferroce_wire::{AETH_LEN, BTH_LEN, ICRC_LEN, IMM_LEN, RETH_LEN};

/// Bytes around a frame that take time on the wire and no room in a buffer.
pub const AROUND_FRAME: u32 = (PREAMBLE_LEN + INTERFRAME_GAP) as u32;
/// What every frame has around its payload and the headers of its operation.
const FRAME: u32 =
    (ETHERNET_HEADER_LEN + IPV4_HEADER_LEN + UDP_HEADER_LEN + BTH_LEN + ICRC_LEN + FCS_LEN) as u32;
/// In the first packet of a message.
const RETH: u32 = RETH_LEN as u32;
/// In the last packet of a message.
const IMMEDIATE: u32 = IMM_LEN as u32;

/// An acknowledgement on the wire, bytes.
pub(crate) const ACK: u32 = AROUND_FRAME + FRAME + AETH_LEN as u32;

/// Returns the length of the longest frame at a path MTU: a full packet that is a message. A VLAN tag is not
/// included.
pub const fn longest_frame(mtu: u32) -> u32 {
    FRAME + RETH + mtu + IMMEDIATE
}

/// Bytes on the wire of the first packet of a message, which is its longest.
pub(crate) fn first_packet(bytes: u32, mtu: u32) -> u32 {
    let immediate = if bytes <= mtu { IMMEDIATE } else { 0 };
    AROUND_FRAME + FRAME + RETH + bytes.min(mtu) + immediate
}

/// Returns the length of all packets of a message on the wire.
pub fn message(bytes: u32, mtu: u32) -> u32 {
    let packets = bytes.div_ceil(mtu).max(1);
    bytes + packets * (AROUND_FRAME + FRAME) + RETH + IMMEDIATE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_message_add_up() {
        assert_eq!(longest_frame(4096), 4178);
        assert_eq!(first_packet(4096, 4096), 4178 + 20);
        assert_eq!(message(4096, 4096), first_packet(4096, 4096));
        assert_eq!(message(5000, 4096), 5000 + 2 * 82 + 20);
        assert_eq!(first_packet(5000, 4096), 4096 + 82 + 16);
        assert_eq!(message(0, 256), 82 + 20);
        assert_eq!(ACK, 86);
    }
}

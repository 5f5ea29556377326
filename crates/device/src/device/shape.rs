//! The bytes of a packet, for any link.

use ferroce_transport::Outgoing;
use ferroce_wire::{HEADERS_LEN_MAX, ICRC_LEN, pad_len};

use super::Hca;

/// What of a packet's bytes lies where.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    header_len: usize,
    payload_end: usize,
    /// Where the ICRC begins.
    pub icrc_at: usize,
    /// Bytes of the packet, the ICRC included.
    pub len: usize,
}

impl Shape {
    /// The shape of a packet.
    #[inline]
    pub fn of(packet: &Outgoing) -> Self {
        let header_len = packet.headers.header_len();
        debug_assert!(header_len <= HEADERS_LEN_MAX);
        let payload_len = packet.payload_len as usize;
        let payload_end = header_len + payload_len;
        let icrc_at = payload_end + usize::from(pad_len(payload_len));
        Self {
            header_len,
            payload_end,
            icrc_at,
            len: icrc_at + ICRC_LEN,
        }
    }

    /// Writes all but the ICRC. False if the bytes are not there.
    #[inline]
    pub fn write(&self, hca: &Hca, packet: &Outgoing, out: &mut [u8]) -> bool {
        let payload_len = packet.payload_len as usize;
        if packet.headers.emit(payload_len, out).is_err()
            || !hca.gather(packet, &mut out[self.header_len..self.payload_end])
        {
            return false;
        }
        out[self.payload_end..self.icrc_at].fill(0);
        true
    }
}

/// Damages the bytes of a packet if the impaired link has done so.
#[inline]
pub fn damage(packet: &Outgoing, bytes: &mut [u8]) {
    if let Some(bit) = packet.corrupt_bit() {
        let bit = bit as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

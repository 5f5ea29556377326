//! The bytes of a packet, without their ICRC.

use ferroce_hca::{Hca, Outgoing};
use ferroce_wire::{ICRC_LEN, pad_len};

/// What of a packet's bytes lies where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    header_len: usize,
    payload_end: usize,
    pub(super) icrc_at: usize,
    pub(super) len: usize,
}

impl Shape {
    #[inline]
    pub(super) fn of(packet: &Outgoing) -> Self {
        let header_len = packet.headers.header_len();
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
    pub(super) fn write(&self, hca: &Hca, packet: &Outgoing, out: &mut [u8]) -> bool {
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

//! The bytes of outgoing packets.

use ferroce_transport::{Bytes, MemoryRef, Outgoing, Payload};

use super::Hca;

impl Hca {
    /// Copies the payload out of memory, for a packet that is to be sent after more inputs: its
    /// work request may have completed (UC and UD do at once), and the memory be the program's
    /// again. Where there are no bytes (phantom memory), none are carried.
    pub fn detach(&self, packet: &mut Outgoing) {
        let is_phantom = |at: &MemoryRef| self.common.keys.is_phantom(*at);
        let phantom = match &packet.payload {
            Payload::Empty | Payload::Carried(_) => return,
            Payload::Memory(at) => is_phantom(at),
            Payload::Pieces(pieces) => pieces.iter().all(|(at, _)| is_phantom(at)),
        };
        if phantom {
            packet.payload = Payload::Empty;
            return;
        }
        let mut is_there = false;
        let len = packet.payload_len as usize;
        let bytes = Bytes::filled(len, |out| is_there = self.gather(packet, out));
        if is_there {
            packet.payload = Payload::Carried(bytes);
        }
    }

    /// Copies a packet's payload into `out`, which is exactly as long. False if the memory was
    /// taken away since [`Self::poll_transmit`] returned the packet, which a host that sends
    /// before it does anything else never sees.
    #[must_use]
    pub fn gather(&self, packet: &Outgoing, out: &mut [u8]) -> bool {
        match &packet.payload {
            Payload::Empty => {
                out.fill(0); // phantom memory reads as zeros
                true
            }
            Payload::Carried(bytes) => {
                out.copy_from_slice(bytes);
                true
            }
            Payload::Memory(at) => self.common.keys.read(*at, out).is_ok(),
            Payload::Pieces(pieces) => {
                let mut rest = out;
                pieces.iter().all(|(at, len)| {
                    let (piece, tail) = std::mem::take(&mut rest).split_at_mut(*len as usize);
                    rest = tail;
                    self.common.keys.read(*at, piece).is_ok()
                })
            }
        }
    }
}

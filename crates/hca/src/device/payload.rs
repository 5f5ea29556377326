use ferroce_transport::{Payload, Segment};

use super::Hca;
use crate::packet::Outgoing;

impl Hca {
    /// Copies the payload out of memory, for a packet that is to be sent after more inputs: its
    /// work request may have completed (UC and UD do at once), and the memory be the program's
    /// again. Where there are no bytes (phantom memory), none are carried.
    pub fn detach(&self, packet: &mut Outgoing) {
        if let Payload::Memory(segments) = &packet.transmit.payload {
            if segments.iter().all(|segment| self.keys.is_phantom(segment)) {
                packet.transmit.payload = Payload::Empty;
                return;
            }
            let mut bytes = vec![0; packet.transmit.payload_len as usize];
            if self.gather(packet, &mut bytes) {
                packet.transmit.payload = Payload::Inline(bytes.into());
            }
        }
    }

    /// Copies a packet's payload into `out`, which is exactly as long. False if the memory was
    /// taken away since [`Self::poll_transmit`] returned the packet, which a host that sends
    /// before it does anything else never sees.
    #[must_use]
    pub fn gather(&self, packet: &Outgoing, out: &mut [u8]) -> bool {
        match &packet.transmit.payload {
            Payload::Empty => {
                out.fill(0); // phantom memory reads as zeros
                true
            }
            Payload::Inline(bytes) => {
                out.copy_from_slice(bytes);
                true
            }
            Payload::Memory(segments) => {
                let Some(holder) = packet.holder else {
                    return false;
                };
                let mut rest = out;
                segments.iter().all(|segment: &Segment| {
                    let (piece, tail) =
                        std::mem::take(&mut rest).split_at_mut(segment.len as usize);
                    rest = tail;
                    self.keys.read(holder, segment, piece).is_ok()
                })
            }
        }
    }
}

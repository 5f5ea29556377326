//! A packet to send, as a value: its headers, its payload's location, and its path.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use ferroce_wire::{Connection, Headers, ICRC_LEN, Place, ethernet, pad_len};

use crate::bytes::Bytes;
use crate::memory::MemoryRef;
use crate::service::Path;

/// A packet to send: header values, path, and location of the payload. The host adds addresses,
/// gathers the payload and computes the ICRC.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Header values.
    pub headers: Headers,
    /// Location of the payload.
    pub payload: Payload,
    /// Length of the payload in bytes, without pad.
    pub payload_len: u16,
    /// The path. A queue pair sets it for datagrams, and leaves the path to its peer to the device.
    /// In a packet that has left, the service level is the priority in its VLAN tag, and 0 without
    /// one.
    pub path: Path,
    /// 0 if all packets of the queue pair take the same path through the network. Otherwise it differs from
    /// packet to packet, and the UDP source port with it, by which switches choose the path. The device sets
    /// it.
    pub entropy: u16,
    /// It was sent before, or answers a request that was.
    pub is_repeated: bool,
    corrupt: Option<NonZeroU16>,
}

const _: () = assert!(size_of::<Outgoing>() <= 104, "a packet as a value");

impl Outgoing {
    /// Creates space for a packet, to be filled by [`Qp::poll_transmit`](crate::Qp::poll_transmit).
    pub const fn empty() -> Self {
        Self {
            headers: Headers::send(Connection::Rc, Place::Only, None),
            payload: Payload::Empty,
            payload_len: 0,
            path: Path::to(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            entropy: 0,
            is_repeated: false,
            corrupt: None,
        }
    }

    /// Creates a packet that contains its payload, at most [`Bytes::LEN_MAX`] bytes.
    pub fn carrying(headers: Headers, path: Path, payload: Bytes) -> Self {
        let mut packet = Self::empty();
        (packet.headers, packet.path) = (headers, path);
        packet.payload_len = payload.len() as u16; // at most its maximum
        packet.payload = Payload::Carried(payload);
        packet
    }

    /// Makes it a packet without payload.
    #[inline]
    pub(crate) fn set_headers(&mut self, headers: Headers) {
        self.headers = headers;
        self.payload = Payload::Empty;
        self.payload_len = 0;
        self.is_repeated = false;
        self.corrupt = None;
    }

    /// Returns the bytes from the BTH to the ICRC, which congestion control and bottlenecks count.
    #[inline]
    pub fn frame_bytes(&self) -> u32 {
        frame_bytes(&self.headers, self.payload_len.into())
    }

    /// Returns the bytes it takes on an Ethernet link, with everything around it, for which a port
    /// or a switch needs time. `tag_len` of them are its VLAN tag. See [`ethernet::wire_len`].
    #[inline]
    pub fn wire_bytes(&self, tag_len: usize) -> u32 {
        let len = self.frame_bytes() as usize + tag_len;
        ethernet::wire_len(self.path.dest, len) as u32 // less than 8 KiB
    }

    /// Returns the bit of the packet, counted from the start of the BTH, that the impaired link
    /// flips after the ICRC is computed.
    #[inline]
    pub fn corrupt_bit(&self) -> Option<u32> {
        self.corrupt.map(|bit| u32::from(bit.get()) - 1)
    }

    /// Requests that a bit is flipped, counted modulo the packet's length.
    pub fn corrupt(&mut self, bit: u32) {
        let bit = bit % (8 * self.frame_bytes());
        // A packet has less than 8 KiB.
        self.corrupt = u16::try_from(bit + 1).ok().and_then(NonZeroU16::new);
    }
}

/// Returns the bytes of a packet from the BTH to the ICRC.
#[inline]
pub fn frame_bytes(headers: &Headers, payload_len: u32) -> u32 {
    let pad = pad_len(payload_len as usize);
    let around = headers.header_len() + usize::from(pad) + ICRC_LEN;
    around as u32 + payload_len
}

/// The location of an [`Outgoing`]'s payload.
#[derive(Clone, Debug)]
pub enum Payload {
    /// There is no payload.
    Empty,
    /// One piece of registered memory.
    Memory(MemoryRef),
    /// Several pieces of memory with their lengths, in the order on the wire.
    Pieces(Box<[(MemoryRef, u32)]>),
    /// Inside the packet (`IBV_SEND_INLINE`, and retained data).
    Carried(Bytes),
}

const _: () = assert!(size_of::<Payload>() <= 24, "a part of each packet");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bit_of_a_packet_can_be_flipped() {
        let path = Outgoing::empty().path;
        let headers = Outgoing::empty().headers;
        for len in [0_u32, 1, 4096] {
            let bytes = Bytes::from(vec![0; len as usize]);
            let mut packet = Outgoing::carrying(headers, path, bytes);
            let bits = 8 * (12 + len.next_multiple_of(4) + 4);
            assert_eq!(8 * packet.frame_bytes(), bits);
            assert_eq!(packet.corrupt_bit(), None);
            for (bit, flipped) in [
                (0, 0),
                (bits - 1, bits - 1),
                (bits + 5, 5),
                (u32::MAX, u32::MAX % bits),
            ] {
                packet.corrupt(bit);
                assert_eq!(packet.corrupt_bit(), Some(flipped));
            }
        }
    }
}

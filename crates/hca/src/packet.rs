use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ferroce_transport::{Data, Path, Transmit};
use ferroce_wire::{Headers, ICRC_LEN, pad_len};

use crate::impair::{Damage, Passenger};
use crate::mr::KeyHolder;

/// A packet for the link.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Where to.
    pub path: Path,
    /// Headers and payload; see [`crate::Hca::gather`]. The payload is empty also if it has no
    /// bytes (phantom memory) and an impairment held it back. The path in here is not the one that
    /// counts.
    pub transmit: Transmit,
    /// Who presents the payload's keys, if it lies in registered memory.
    pub(crate) holder: Option<KeyHolder>,
    /// A bit of the packet, counted from the start of the BTH and modulo its length, that the
    /// impaired link flips after the ICRC is computed.
    pub corrupt_bit: Option<u32>,
}

/// A packet from the link whose ICRC is right.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Where from.
    pub source: IpAddr,
    /// Where to: the device's own address, or that of a multicast group.
    pub dest: IpAddr,
    /// DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
    /// Header values.
    pub headers: &'a Headers,
    /// The payload, or its length.
    pub data: Data<'a>,
}

/// A packet from the link that an impairment holds back.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    source: IpAddr,
    dest: IpAddr,
    traffic_class: u8,
    headers: Headers,
    data: HeldData,
    /// Its ICRC would be wrong.
    pub(crate) corrupt: bool,
}

#[derive(Clone, Debug)]
enum HeldData {
    Bytes(Arc<[u8]>),
    Length(u32),
}

impl Held {
    pub(crate) fn new(packet: &Received<'_>) -> Self {
        Self {
            source: packet.source,
            dest: packet.dest,
            traffic_class: packet.traffic_class,
            headers: *packet.headers,
            data: match packet.data {
                Data::Bytes(bytes) => HeldData::Bytes(bytes.into()),
                Data::Length(len) => HeldData::Length(len),
            },
            corrupt: false,
        }
    }

    pub(crate) fn as_received(&self) -> Received<'_> {
        Received {
            source: self.source,
            dest: self.dest,
            traffic_class: self.traffic_class,
            headers: &self.headers,
            data: match &self.data {
                HeldData::Bytes(bytes) => Data::Bytes(bytes),
                HeldData::Length(len) => Data::Length(*len),
            },
        }
    }
}

impl Passenger for Held {
    fn is_ecn_capable(&self) -> bool {
        self.traffic_class & CE != 0
    }

    fn suffer(&mut self, damage: &Damage) {
        self.corrupt = damage.corrupt_bit.is_some();
        if damage.ecn_mark {
            self.traffic_class |= CE;
        }
    }
}

/// ECN codepoint "congestion experienced".
pub(crate) const CE: u8 = 0b11;

impl Outgoing {
    /// Room for a packet, to be filled by [`crate::Hca::poll_transmit_into`].
    pub const fn empty() -> Self {
        Self {
            path: Path {
                dest: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                traffic_class: 0,
            },
            transmit: Transmit::empty(),
            holder: None,
            corrupt_bit: None,
        }
    }

    /// Gives an acknowledgement another DSCP; the ECN bits stay.
    #[cold]
    pub(crate) fn force_ack_dscp(&mut self, dscp: u8) {
        let opcode = self.transmit.headers.opcode();
        if opcode.is_response() && !opcode.is_read_response() {
            self.path.traffic_class = dscp << 2 | self.path.traffic_class & CE;
        }
    }

    /// Its length as [`frame_bytes`] counts it.
    pub(crate) fn frame_bytes(&self) -> u32 {
        frame_bytes(&self.transmit.headers, self.transmit.payload_len)
    }
}

impl Passenger for Outgoing {
    fn is_ecn_capable(&self) -> bool {
        self.path.traffic_class & CE != 0
    }

    fn suffer(&mut self, damage: &Damage) {
        self.corrupt_bit = damage.corrupt_bit;
        if damage.ecn_mark {
            self.path.traffic_class |= CE;
        }
    }
}

/// Bytes of a packet from the BTH to the ICRC: what congestion control and bottlenecks count.
pub(crate) fn frame_bytes(headers: &Headers, payload_len: u32) -> u32 {
    let pad = pad_len(payload_len as usize);
    let around = headers.header_len() + usize::from(pad) + ICRC_LEN;
    around as u32 + payload_len
}

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_transport::{Data, Path, Payload, Transmit};
use ferroce_wire::Headers;

use crate::impair::Treatment;
use crate::mr::Opener;

/// A packet for the link.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Where to.
    pub path: Path,
    /// Header values.
    pub headers: Headers,
    /// Where the payload lies; see [`crate::Hca::gather`]. Empty also for a payload without bytes
    /// (phantom memory) that an impairment held back.
    pub payload: Payload,
    /// Bytes of payload, without pad.
    pub payload_len: u32,
    /// Who presents the payload's keys, if it lies in registered memory.
    pub(crate) opener: Option<Opener>,
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
    pub(crate) fn new(packet: &Received<'_>, corrupt: bool) -> Self {
        Self {
            source: packet.source,
            dest: packet.dest,
            traffic_class: packet.traffic_class,
            headers: *packet.headers,
            data: match packet.data {
                Data::Bytes(bytes) => HeldData::Bytes(bytes.into()),
                Data::Length(len) => HeldData::Length(len),
            },
            corrupt,
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

/// ECN codepoint "congestion experienced".
pub(crate) const CE: u8 = 0b11;

impl Outgoing {
    /// A packet of a queue pair with this path. A datagram has one of its own; any other queue pair
    /// has one from RTR on, and sends nothing before.
    #[inline]
    pub(crate) fn new(
        transmit: Transmit,
        path: Option<Path>,
        opener: Option<Opener>,
    ) -> Option<Self> {
        Some(Self {
            path: transmit.path.or(path)?,
            headers: transmit.headers,
            payload: transmit.payload,
            payload_len: transmit.payload_len,
            opener,
            corrupt_bit: None,
        })
    }

    /// Suffers what the link does to it.
    pub(crate) fn damage(&mut self, treatment: &Treatment) {
        self.corrupt_bit = treatment.corrupt_bit;
        if treatment.ecn_mark {
            self.path.traffic_class |= CE;
        }
    }
}

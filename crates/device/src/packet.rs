//! Incoming packets, and the effect of an impaired link on packets.

use std::net::IpAddr;

use ferroce_transport::{Bytes, Data, Outgoing, Path};
use ferroce_wire::Headers;

use crate::impairer::{Damage, HeldPacket};

/// A packet from the link whose ICRC is right.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Where from.
    pub source: IpAddr,
    /// Where to: the device's own address, or that of a multicast group.
    pub dest: IpAddr,
    /// DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
    /// Priority (PCP) of its VLAN tag; 0 if it has none.
    pub sl: u8,
    /// Number of the port that it has arrived at, from 1.
    pub port: u8,
    /// Header values.
    pub headers: &'a Headers,
    /// The payload, or its length.
    pub data: Data<'a>,
}

impl Received<'_> {
    /// The path to its sender. The mark of a congested link is not for the way back.
    pub(crate) fn way_back(&self) -> Path {
        Path {
            dest: self.source,
            traffic_class: self.traffic_class & !CE,
            sl: self.sl,
            port: self.port,
        }
    }
}

/// A packet from the link that an impairment holds back.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    source: IpAddr,
    dest: IpAddr,
    traffic_class: u8,
    sl: u8,
    port: u8,
    headers: Headers,
    data: HeldData,
    /// Its ICRC would be wrong.
    pub(crate) corrupt: bool,
}

#[derive(Clone, Debug)]
enum HeldData {
    Bytes(Bytes),
    Length(u32),
}

impl Held {
    pub(crate) fn new(packet: &Received<'_>) -> Self {
        Self {
            source: packet.source,
            dest: packet.dest,
            traffic_class: packet.traffic_class,
            sl: packet.sl,
            port: packet.port,
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
            sl: self.sl,
            port: self.port,
            headers: &self.headers,
            data: match &self.data {
                HeldData::Bytes(bytes) => Data::Bytes(bytes),
                HeldData::Length(len) => Data::Length(*len),
            },
        }
    }
}

impl HeldPacket for Held {
    fn is_ecn_capable(&self) -> bool {
        self.traffic_class & CE != 0
    }

    fn apply_damage(&mut self, damage: &Damage) {
        self.corrupt = damage.corrupt_bit.is_some();
        if damage.ecn_mark {
            self.traffic_class |= CE;
        }
    }
}

/// Whether an address is that of one host.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || is_broadcast)
}

/// ECN codepoint "congestion experienced".
pub(crate) const CE: u8 = 0b11;

/// Gives an acknowledgement another DSCP; the ECN bits stay.
#[cold]
pub(crate) fn force_ack_dscp(packet: &mut Outgoing, dscp: u8) {
    let opcode = packet.headers.opcode();
    if opcode.is_response() && !opcode.is_read_response() {
        packet.path.traffic_class = dscp << 2 | packet.path.traffic_class & CE;
    }
}

impl HeldPacket for Outgoing {
    fn is_ecn_capable(&self) -> bool {
        self.path.traffic_class & CE != 0
    }

    fn apply_damage(&mut self, damage: &Damage) {
        if let Some(bit) = damage.corrupt_bit {
            self.corrupt(bit);
        }
        if damage.ecn_mark {
            self.path.traffic_class |= CE;
        }
    }
}

//! Packets on the tests' network.

use std::net::IpAddr;

use ferroce_device::{Counter, Data, Outgoing, Time};
use ferroce_fabric::Parcel;
use ferroce_wire::{
    HEADERS_LEN_MAX, Headers, ICRC_LEN, IcrcFlow, IcrcVerifier, IdPolicy, Packet, Qpn,
};

/// A packet under way.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Which device sent it.
    pub from: usize,
    /// Which device it goes to.
    pub to: usize,
    /// Its source.
    pub source: IpAddr,
    /// Its destination, which may be a group.
    pub dest: IpAddr,
    /// Its traffic class.
    pub traffic_class: u8,
    /// The priority in its VLAN tag; 0 if it has none.
    pub sl: u8,
    /// The queue pair that it is for, if it was sent by a device.
    pub dest_qp: Option<Qpn>,
    /// What it is made of.
    pub content: Content,
    /// Bytes of a receive buffer that it takes.
    pub(crate) truesize: u64,
}

/// What a packet is made of.
#[derive(Clone, Debug)]
pub enum Content {
    /// Values.
    Parsed {
        /// Its headers.
        headers: Headers,
        /// Its payload, if packets carry bytes.
        payload: Option<Vec<u8>>,
        /// The length of its payload.
        payload_len: u32,
    },
    /// Bytes with an ICRC, which is checked on arrival.
    Bytes(Vec<u8>),
    /// It was damaged, and packets carry no bytes.
    Damaged,
}

impl Content {
    /// That of a packet, with the bit flipped that its device's link has damaged. It becomes bytes if it
    /// is damaged or is to.
    pub(crate) fn new(
        packet: &Outgoing,
        payload: Option<Vec<u8>>,
        flow: &IcrcFlow,
        as_bytes: bool,
    ) -> Self {
        let damage = packet.corrupt_bit();
        match (payload, damage) {
            (None, Some(_)) => Self::Damaged,
            (Some(payload), _) if as_bytes || damage.is_some() => {
                let mut bytes = emit(&packet.headers, &payload, flow);
                if let Some(bit) = damage {
                    let bit = bit as usize % (8 * bytes.len());
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                Self::Bytes(bytes)
            }
            (payload, _) => Self::Parsed {
                headers: packet.headers,
                payload,
                payload_len: packet.payload_len.into(),
            },
        }
    }

    /// What a host gives its device, or why it does not.
    pub(crate) fn read(&self, flow: &IcrcFlow) -> Result<(Headers, Data<'_>), Counter> {
        match self {
            Self::Parsed {
                headers,
                payload: Some(payload),
                ..
            } => Ok((*headers, Data::Bytes(payload))),
            Self::Parsed {
                headers,
                payload_len,
                ..
            } => Ok((*headers, Data::Length(*payload_len))),
            Self::Damaged => Err(Counter::RxIcrcEncapsulated),
            Self::Bytes(bytes) => {
                let packet = Packet::new_checked(bytes).map_err(|_| Counter::RxMalformed)?;
                // A flipped bit may be in a field that may change on the way.
                let verdict = IcrcVerifier::new(IdPolicy::Exact).verify(flow, 0, bytes);
                match verdict.is_ok() {
                    true => Ok((*packet.headers(), Data::Bytes(packet.payload()))),
                    false => Err(Counter::RxIcrcEncapsulated),
                }
            }
        }
    }
}

/// The bytes of a packet, which must parse.
fn emit(headers: &Headers, payload: &[u8], flow: &IcrcFlow) -> Vec<u8> {
    let mut bytes = vec![0; HEADERS_LEN_MAX + payload.len() + 3 + ICRC_LEN];
    let len = headers
        .emit_packet(payload, flow, 0, &mut bytes)
        .expect("a device makes packets that can be written");
    bytes.truncate(len);
    if let Err(error) = Packet::new_checked(&bytes) {
        panic!("a device made a packet that does not parse: {error}");
    }
    bytes
}

impl Flight {
    /// What goes to a device.
    pub(crate) fn new(
        [from, to]: [usize; 2],
        source: IpAddr,
        dest: IpAddr,
        traffic_class: u8,
        content: Content,
    ) -> Self {
        Self {
            from,
            to,
            source,
            dest,
            traffic_class,
            sl: 0,
            dest_qp: None,
            content,
            truesize: 0,
        }
    }

    /// Its payload, if it is there.
    pub fn payload(&self) -> &[u8] {
        match &self.content {
            Content::Parsed { payload, .. } => payload.as_deref().unwrap_or_default(),
            _ => &[],
        }
    }
}

impl Parcel for Flight {
    fn empty() -> Self {
        let nowhere = [0; 4].into();
        Self::new([0; 2], nowhere, nowhere, 0, Content::Damaged)
    }

    fn corrupt(&mut self, _: u32) {
        self.content = Content::Damaged;
    }
}

/// A packet when it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When its device handed it out.
    pub at: Time,
    /// When it had left the port.
    pub departure: Time,
    /// Which device sent it.
    pub from: usize,
    /// Its headers.
    pub headers: Headers,
    /// Its traffic class.
    pub traffic_class: u8,
    /// The priority in its VLAN tag; 0 if it has none.
    pub sl: u8,
    /// Its payload, if packets carry bytes.
    pub payload: Vec<u8>,
}

/// A packet's headers as they would be if its connection had not been made older by `age` messages.
pub fn rejuvenate(headers: &mut Headers, age: u32) {
    headers.psn = headers.psn.wrapping_sub(age);
    if let Some(aeth) = headers.aeth_mut() {
        aeth.msn = aeth.msn.wrapping_sub(age) & 0xff_ffff;
    }
}

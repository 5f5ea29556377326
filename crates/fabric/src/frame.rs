//! Packets, and the frames that switches handle.

use ferroce_device::{Outgoing, Qos};

use crate::packets::PacketId;
use crate::sizes::AROUND_FRAME;

/// A packet type that a network can carry. Its slots are reused.
pub trait Parcel: Clone {
    /// What a place holds before anything was put there.
    fn empty() -> Self;

    /// Flips a bit, counted from the start of the BTH.
    fn corrupt(&mut self, bit: u32);
}

impl Parcel for Outgoing {
    fn empty() -> Self {
        Self::empty()
    }

    #[inline]
    fn corrupt(&mut self, bit: u32) {
        self.corrupt(bit);
    }
}

/// A frame in flight: the part of a packet that switches see. The packet itself stays in its slot.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub(crate) packet: PacketId,
    /// The number of the sender's [address](crate::Topology::address).
    pub source: u32,
    /// That of the receiver's.
    pub dest: u32,
    /// The hash that spreads flows over equal paths.
    pub flow: u32,
    /// Length from the Ethernet header to the check sequence.
    pub bytes: u16,
    /// By which port it came to the switch that it is in.
    pub(crate) ingress: u16,
    /// The priority, one of eight, at all ports of switches.
    pub priority: u8,
    /// Its ECN codepoint.
    pub ecn: Ecn,
    /// It may take any path.
    pub takes_any_path: bool,
}

impl Frame {
    /// Returns the frame of a packet, with the VLAN of its sender and the trust of switches.
    #[inline]
    #[must_use]
    pub fn of(source: u32, dest: u32, packet: &Outgoing, qos: Qos) -> Self {
        // An MTU, and headers.
        let bytes = (packet.wire_bytes(qos.tag_len()) - AROUND_FRAME) as u16;
        Self {
            priority: qos.priority_of(&packet.path),
            ecn: Ecn::of(packet.path.traffic_class),
            takes_any_path: packet.entropy != 0,
            ..Self::new(source, dest, bytes)
        }
    }

    /// Creates a frame of this length, with priority 0 and not ECN-capable.
    #[inline]
    #[must_use]
    pub const fn new(source: u32, dest: u32, bytes: u16) -> Self {
        Self {
            packet: 0,
            source,
            dest,
            flow: 0,
            bytes,
            ingress: 0,
            priority: 0,
            ecn: Ecn::NotCapable,
            takes_any_path: false,
        }
    }
}

/// A frame's ECN codepoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ecn {
    /// It must not be marked.
    NotCapable,
    /// It may be.
    Capable,
    /// It is.
    Marked,
}

impl Ecn {
    /// Returns the ECN codepoint of a traffic class.
    #[inline]
    #[must_use]
    pub const fn of(traffic_class: u8) -> Self {
        match traffic_class & CE {
            0 => Self::NotCapable,
            CE => Self::Marked,
            _ => Self::Capable,
        }
    }

    /// Returns a traffic class with this codepoint.
    #[inline]
    #[must_use]
    pub fn on(self, traffic_class: u8) -> u8 {
        match self {
            Self::Marked => traffic_class | CE,
            _ => traffic_class,
        }
    }
}

/// ECN bits of a traffic class; both of them set say "congestion experienced".
const CE: u8 = 0b11;

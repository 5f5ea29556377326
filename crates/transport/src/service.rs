//! Queue pair types and their peers.

use std::fmt;
use std::net::IpAddr;

use ferroce_wire::{Opcode, Qpn, Service, Srqn};

/// Bytes before the payload of a received datagram, which hold its IP header (IBA vol 1, 11.4.1.2;
/// RoCEv2 annex, A17.4.5).
pub const GRH_BYTES: u32 = 40;

/// The IP header of a received datagram: 40 bytes of IPv6, or 20 of IPv4 in the second half.
pub type Grh = [u8; GRH_BYTES as usize];

/// Type of a queue pair, with the values of `ibv_qp_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[repr(u16)]
pub enum QpType {
    /// Reliable connection.
    #[default]
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
    /// Sending end of an extended reliable connection (IBA vol 1, annex A14).
    XrcSend = 9,
    /// Receiving end: each request names its shared receive queue.
    XrcRecv = 10,
    /// Initiator of the dynamically connected transport; like those after it of type
    /// `IBV_QPT_DRIVER`.
    Dci = 0x100,
    /// Target of the dynamically connected transport.
    Dct = 0x101,
    /// The part of a target that answers one initiator. The device makes it, no program.
    DcResponder = 0x102,
}

impl QpType {
    /// Returns the service of its packets.
    #[inline]
    pub const fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud => Service::Ud,
            Self::XrcSend | Self::XrcRecv => Service::Xrc,
            Self::Dci | Self::Dct | Self::DcResponder => Service::Dc,
        }
    }

    /// Returns whether a packet with this opcode can be for it: the opcode must be of its service,
    /// and for XRC and DC a response or a request, depending on the end. A target leaves its packets
    /// to its responders.
    #[inline]
    pub fn takes(self, opcode: Opcode) -> bool {
        opcode.service() == self.service()
            && match self {
                Self::XrcSend | Self::Dci => opcode.is_response(),
                Self::XrcRecv | Self::DcResponder => opcode.is_request(),
                Self::Dct => false,
                Self::Rc | Self::Uc | Self::Ud => true,
            }
    }

    /// Returns whether the peer acknowledges what arrives.
    #[inline]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Uc | Self::Ud)
    }

    /// Returns whether its packets come from and go to one peer at a time: that of its address
    /// vector, or the present target of a DCI.
    #[inline]
    pub const fn is_connected(self) -> bool {
        !matches!(self, Self::Ud)
    }

    /// Returns whether its address vector says who its peer is.
    #[inline]
    pub const fn has_fixed_peer(self) -> bool {
        !matches!(self, Self::Ud | Self::Dci | Self::Dct)
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcSend => "XRC_SEND",
            Self::XrcRecv => "XRC_RECV",
            Self::Dci => "DCI",
            Self::Dct => "DCT",
            Self::DcResponder => "DCT responder",
        })
    }
}

/// The path to a peer (the address vector of RoCE v2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Path {
    /// The peer's address.
    pub dest: IpAddr,
    /// DSCP and ECN bits of the IP header (`grh.traffic_class`).
    pub traffic_class: u8,
    /// Service level (`sl`), 0 to 7: the priority in the VLAN tag, if the port has a VLAN.
    pub sl: u8,
    /// Number of the device's port that it begins at, from 1. In a packet that has left, that of the
    /// link.
    pub port: u8,
}

impl Path {
    /// Returns a path of traffic class and service level 0, from port 1.
    #[must_use]
    pub const fn to(dest: IpAddr) -> Self {
        Self {
            dest,
            traffic_class: 0,
            sl: 0,
            port: 1,
        }
    }
}

/// The destination of a datagram: an address handle and a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct UdAddress {
    /// The path; for a group, with a multicast address.
    pub path: Path,
    /// The receiving queue pair; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// The receiver's Q_Key. If its highest bit is set, the sender's own Q_Key is used instead (IBA
    /// vol 1, 10.2.5).
    pub qkey: u32,
}

/// The destination of a request of a DCI.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct DctAddress {
    /// The path to the target's device.
    pub path: Path,
    /// The target (DCT).
    pub qpn: Qpn,
    /// The target's access key.
    pub key: u64,
}

/// The destination of a send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum SendTo {
    /// The peer that the queue pair is connected to (RC, UC).
    #[default]
    Peer,
    /// Any queue pair (UD).
    Datagram(UdAddress),
    /// A shared receive queue of the peer's device (XRC).
    Srq(Srqn),
    /// A target of the dynamically connected transport.
    Dct(DctAddress),
}

impl SendTo {
    /// Whether a queue pair of this type sends that way.
    #[inline]
    pub(crate) fn suits(&self, qp_type: QpType) -> bool {
        match self {
            Self::Peer => matches!(qp_type, QpType::Rc | QpType::Uc),
            Self::Datagram(_) => qp_type == QpType::Ud,
            Self::Srq(_) => qp_type == QpType::XrcSend,
            Self::Dct(_) => qp_type == QpType::Dci,
        }
    }
}

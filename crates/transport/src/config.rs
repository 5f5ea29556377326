//! The parameters of a queue pair, and how much its device lets it have in flight.

use std::num::NonZeroU8;

use ferroce_wire::Qpn;

use crate::attr::Mtu;
use crate::service::QpType;

/// Capacities of a queue pair, as `ibv_qp_cap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCap {
    /// Outstanding send requests.
    pub max_send_wr: u32,
    /// Outstanding receive requests; 0 with an SRQ.
    pub max_recv_wr: u32,
    /// Elements of a send request.
    pub max_send_sge: u32,
    /// Elements of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

impl QpCap {
    /// No capacity at all, as for an XRC_RECV queue pair.
    pub const NONE: Self = Self {
        max_send_wr: 0,
        max_recv_wr: 0,
        max_send_sge: 0,
        max_recv_sge: 0,
        max_inline_data: 0,
    };
}

impl Default for QpCap {
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 256,
        }
    }
}

/// The parameters of a new queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpConfig {
    /// Its number.
    pub qpn: Qpn,
    /// Its type.
    pub qp_type: QpType,
    /// The port's MTU, which limits datagrams.
    pub port_mtu: Mtu,
    /// Capacities.
    pub cap: QpCap,
    /// Receives come from a shared receive queue. Those of XRC_RECV always do.
    pub srq: bool,
    /// Every send request produces a completion (`sq_sig_all`).
    pub signal_all: bool,
    /// Maximum bytes that the requester keeps in flight; a few packets are always allowed. Choose
    /// it below the receive buffer of the peer's socket.
    pub window_bytes: u32,
    /// Maximum bytes of responses that one READ request asks for. A long READ is split into several
    /// such requests.
    pub read_bytes: u32,
    /// Packets of a message after which the requester asks for an acknowledgement, besides the last one.
    /// `None`: a quarter of the window, at least two.
    pub ack_every: Option<NonZeroU8>,
    /// A full window stays closed until half of it is acknowledged, so that packets leave in bursts
    /// and not one or two at a time as acknowledgements arrive.
    pub in_bursts: bool,
    /// Replaces the attribute `retry_cnt` and its limit of 7.
    pub extended_retry_count: Option<u8>,
    /// It keeps packets that come before their turn, and sends again only what its peer misses, if the peer
    /// does the same; see [`Qp::agree_on_selective_repeat`](crate::Qp::agree_on_selective_repeat).
    pub selective_repeat: bool,
    /// Its packets may take many paths, and overtake each other, until its peer turns out to keep nothing. It
    /// repeats selectively, and takes a packet for lost only when it has been overtaken for long. What comes
    /// before its turn within a WRITE is placed at once.
    pub adaptive_routing: bool,
    /// Differs between queue pairs that have this number one after the other. A DCI tells it to its
    /// targets.
    pub incarnation: u32,
}

/// The amount that a queue pair may have in flight. The device decides it, because many queue pairs
/// send into one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Number of PSNs, starting with the oldest unacknowledged one.
    pub packets: u32,
    /// No other queue pair has anything in flight on that path, so one request may be of any
    /// length.
    pub alone: bool,
    /// How many of them may stand for responses.
    pub responses: u32,
    /// No other queue pair waits for responses, so one request may ask for any number.
    pub alone_reading: bool,
}

impl Allowance {
    /// No limit.
    pub const ALL: Self = Self {
        packets: u32::MAX,
        alone: true,
        responses: u32::MAX,
        alone_reading: true,
    };
}

/// The part of its [`Allowance`] that a queue pair needs more of to continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBack {
    /// Packets in flight.
    Packets,
    /// Responses in flight.
    Responses,
}

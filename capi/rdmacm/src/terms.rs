//! The terms of a connection.

use std::net::IpAddr;

use ferroce_device::Ece;
use ferroce_device::cm::{Transport, ack_timeout};
use ferroce_wire::Psn;
use ferroce_wire::cm::{Rep, Req};

/// What both sides have agreed on, seen from this side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) peer: Option<IpAddr>,
    pub(crate) traffic_class: u8,
    /// Service level.
    pub(crate) sl: u8,
    /// First PSN that this side receives. It is this side's to choose, and the peer learns it.
    pub(crate) rq_psn: u32,
    /// First PSN that this side sends, as the peer has chosen.
    pub(crate) sq_psn: u32,
    pub(crate) peer_qpn: u32,
    /// Options that the peer offers, or has chosen.
    pub(crate) peer_ece: Ece,
    /// Path MTU as `ibv_mtu`.
    pub(crate) mtu: u8,
    /// READs and atomics that this side takes at a time.
    pub(crate) responder_resources: u8,
    /// READs and atomics that this side may have outstanding.
    pub(crate) initiator_depth: u8,
    /// Packet lifetime of the path, for the side that asks.
    pub(crate) packet_lifetime: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
}

impl Terms {
    /// What a peer asks for. An answer may change READs and atomics.
    pub(crate) fn of_request(peer: IpAddr, req: &Req, rq_psn: Psn) -> Self {
        Self {
            peer: Some(peer),
            traffic_class: req.traffic_class,
            sl: req.service_level.value() as u8,
            rq_psn: rq_psn.value(),
            sq_psn: req.starting_psn.value(),
            peer_qpn: req.qpn.value(),
            peer_ece: req.into(),
            mtu: req.mtu.value() as u8,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            packet_lifetime: req.ack_timeout.value().saturating_sub(1) as u8,
            timeout: req.ack_timeout.value() as u8,
            retry_count: req.retry_count.value() as u8,
            rnr_retry_count: req.rnr_retry_count.value() as u8,
        }
    }

    /// What a peer answers.
    pub(crate) fn take_reply(&mut self, rep: &Rep, transport: Transport) {
        self.peer_qpn = transport.queue_pair(rep).value();
        self.peer_ece = rep.into();
        self.sq_psn = rep.starting_psn.value();
        self.responder_resources = rep.initiator_depth;
        self.initiator_depth = rep.responder_resources;
        self.rnr_retry_count = rep.rnr_retry_count.value() as u8;
        self.timeout = ack_timeout(rep.target_ack_delay.value() as u8, self.packet_lifetime);
    }
}

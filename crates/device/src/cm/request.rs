//! Messages for the requests of programs.

use std::net::IpAddr;

use ferroce_transport::{Mtu, Path, Span};
use ferroce_wire::cm::{Bits, Gid, Private, Rep, Req, ServiceId};
use ferroce_wire::{PKEY_DEFAULT, Psn, Qpn};

use super::CmError;
use super::bounds::WAIT_MAX;
use crate::ece::Ece;

/// Service that a connection's queue pairs give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection.
    Xrc,
}

impl Transport {
    /// What a request asks for; `None` if it is nothing that RoCE has.
    pub fn of(req: &Req) -> Option<Self> {
        match (req.transport.value(), req.extended_transport.value()) {
            (0, _) => Some(Self::Rc),
            (1, _) => Some(Self::Uc),
            (3, 1) => Some(Self::Xrc),
            _ => None,
        }
    }

    /// The queue pair that a reply names.
    pub fn queue_pair(self, rep: &Rep) -> Qpn {
        match self {
            Self::Rc | Self::Uc => rep.qpn,
            Self::Xrc => rep.eecn,
        }
    }

    /// `transport` and `extended_transport` of a request.
    fn fields(self) -> (Bits<2>, Bits<3>) {
        let (transport, extended) = match self {
            Self::Rc => (0, 0),
            Self::Uc => (1, 0),
            Self::Xrc => (3, 1),
        };
        (Bits::saturating(transport), Bits::saturating(extended))
    }
}

/// What a program asks a peer for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// The peer's address.
    pub dest: IpAddr,
    /// This device's address.
    pub source: IpAddr,
    /// Traffic class of the connection, and of the messages about it.
    pub traffic_class: u8,
    /// Service level of both, 0 to 7.
    pub sl: u8,
    /// Number of the device's port that both leave by, from 1.
    pub port: u8,
    /// The service.
    pub service_id: ServiceId,
    /// GUID of this device.
    pub ca_guid: u64,
    /// The queue pair on this side.
    pub qpn: Qpn,
    /// First PSN that it receives: there the peer begins.
    pub starting_psn: Psn,
    /// Its service.
    pub transport: Transport,
    /// It has a shared receive queue.
    pub srq: bool,
    /// READs and atomics that it takes at a time.
    pub responder_resources: u8,
    /// READs and atomics that it wants to have outstanding.
    pub initiator_depth: u8,
    /// Whether it does end-to-end flow control.
    pub flow_control: bool,
    /// Transport retries for the peer, 0 to 7.
    pub retry_count: u8,
    /// RNR retries for the peer, 0 to 7.
    pub rnr_retry_count: u8,
    /// Path MTU.
    pub mtu: Mtu,
    /// ACK timeout for the peer, 4.096 µs · 2^n, 0 to 31; see [`ack_timeout`].
    pub ack_timeout: u8,
    /// How long a packet may be under way, 4.096 µs · 2^n, 0 to 31.
    pub packet_lifetime: u8,
    /// How long each side may take to answer a message, 4.096 µs · 2^n, 0 to 31.
    pub response_timeout: u8,
    /// How many times each side sends a message again, 0 to 15.
    pub max_retries: u8,
    /// Options of the connection that this side offers; of the vendor, the lower 24 bits.
    pub ece: Ece,
    /// Private data.
    pub private: Private<92>,
}

impl ConnectRequest {
    /// Response timeout that Linux uses: 4.3 s.
    pub const RESPONSE_TIMEOUT: u8 = 20;
    /// Retries that Linux allows.
    pub const MAX_RETRIES: u8 = 15;

    pub(super) fn path(&self) -> Path {
        Path {
            dest: self.dest,
            traffic_class: self.traffic_class,
            sl: self.sl,
            port: self.port,
        }
    }

    pub(super) fn message(&self) -> Result<Req, CmError> {
        let (transport, extended_transport) = self.transport.fields();
        bits::<3>("sl", self.sl)?;
        bits::<5>("packet_lifetime", self.packet_lifetime)?;
        let response_timeout = bits("response_timeout", self.response_timeout)?;
        let req = Req {
            vendor_id: Bits::saturating(self.ece.vendor_id & Bits::<24>::MAX.value()),
            vendor_options: self.ece.options,
            service_id: self.service_id,
            ca_guid: self.ca_guid,
            qpn: self.qpn,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            remote_response_timeout: response_timeout,
            transport,
            flow_control: self.flow_control,
            starting_psn: self.starting_psn,
            local_response_timeout: response_timeout,
            retry_count: bits("retry_count", self.retry_count)?,
            pkey: PKEY_DEFAULT,
            mtu: Bits::saturating(self.mtu as u32),
            rnr_retry_count: bits("rnr_retry_count", self.rnr_retry_count)?,
            max_cm_retries: bits("max_retries", self.max_retries)?,
            srq: self.srq,
            extended_transport,
            local_lid: PERMISSIVE_LID,
            remote_lid: PERMISSIVE_LID,
            local_gid: Gid::from(self.source),
            remote_gid: Gid::from(self.dest),
            rate: Bits::saturating(RATE_100_GBPS),
            traffic_class: self.traffic_class,
            service_level: bits("sl", self.sl)?,
            hop_limit: HOP_LIMIT,
            ack_timeout: bits("ack_timeout", self.ack_timeout)?,
            private: self.private,
            ..Req::default()
        };
        Ok(match self.transport {
            Transport::Rc | Transport::Uc => req,
            // The queue pair that asks only sends, and the other one never does.
            Transport::Xrc => Req {
                responder_resources: 0,
                retry_count: Bits::default(),
                rnr_retry_count: Bits::default(),
                srq: false,
                ..req
            },
        })
    }
}

/// What RoCE devices write where InfiniBand has a LID.
const PERMISSIVE_LID: u16 = 0xffff;
/// `IBV_RATE_100_GBPS`.
const RATE_100_GBPS: u32 = 16;
/// What the socket uses.
const HOP_LIMIT: u8 = 64;

/// What a program answers to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectReply {
    /// The queue pair on this side.
    pub qpn: Qpn,
    /// First PSN that it receives: there the peer begins.
    pub starting_psn: Psn,
    /// It has a shared receive queue.
    pub srq: bool,
    /// READs and atomics that it takes at a time.
    pub responder_resources: u8,
    /// READs and atomics that it will have outstanding.
    pub initiator_depth: u8,
    /// Whether it does end-to-end flow control.
    pub flow_control: bool,
    /// RNR retries for the peer, 0 to 7.
    pub rnr_retry_count: u8,
    /// How long this device may take to acknowledge, 4.096 µs · 2^n, 0 to 31.
    pub target_ack_delay: u8,
    /// GUID of this device.
    pub ca_guid: u64,
    /// Options of the connection that this side has chosen; of the vendor, the lower 24 bits.
    pub ece: Ece,
    /// Private data.
    pub private: Private<196>,
}

impl ConnectReply {
    pub(super) fn message(&self, transport: Transport) -> Result<Rep, CmError> {
        let [_, vendor_id_high, vendor_id_middle, vendor_id_low] = self.ece.vendor_id.to_be_bytes();
        let rep = Rep {
            qpn: self.qpn,
            vendor_id_high,
            vendor_id_middle,
            vendor_id_low,
            vendor_options: self.ece.options,
            starting_psn: self.starting_psn,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            target_ack_delay: bits("target_ack_delay", self.target_ack_delay)?,
            flow_control: self.flow_control,
            rnr_retry_count: bits("rnr_retry_count", self.rnr_retry_count)?,
            srq: self.srq,
            ca_guid: self.ca_guid,
            private: self.private,
            ..Rep::default()
        };
        Ok(match transport {
            Transport::Rc | Transport::Uc => rep,
            Transport::Xrc => Rep {
                qpn: Qpn::new(0),
                eecn: self.qpn,
                initiator_depth: 0,
                flow_control: false,
                srq: true,
                ..rep
            },
        })
    }
}

/// A request for the queue pair of a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRequest {
    /// The peer's address.
    pub dest: IpAddr,
    /// Traffic class of the messages.
    pub traffic_class: u8,
    /// Service level of the messages, 0 to 7.
    pub sl: u8,
    /// The service.
    pub service_id: ServiceId,
    /// Number of the device's port that it leaves by, from 1.
    pub port: u8,
    /// How long a packet may be under way, 4.096 µs · 2^n, 0 to 31.
    pub packet_lifetime: u8,
    /// How long the peer may take to answer, 4.096 µs · 2^n, 0 to 31.
    pub response_timeout: u8,
    /// How many times the request is sent again, 0 to 15.
    pub max_retries: u8,
    /// Private data.
    pub private: Private<216>,
}

impl SidrRequest {
    pub(super) fn path(&self) -> Path {
        Path {
            dest: self.dest,
            traffic_class: self.traffic_class,
            sl: self.sl,
            port: self.port,
        }
    }
}

/// The answer to a request for a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReply {
    /// 0, or why not; see [`ferroce_wire::cm::SidrRep`].
    pub status: u8,
    /// The queue pair.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
    /// Private data.
    pub private: Private<136>,
}

/// The number, if it has no more than `N` bits.
pub(super) fn bits<const N: u32>(field: &'static str, value: u8) -> Result<Bits<N>, CmError> {
    Bits::new(value.into()).ok_or(CmError::OutOfRange {
        field,
        value,
        max: Bits::<N>::MAX.value() as u8,
    })
}

/// How long 4.096 µs · 2^`exponent` is.
pub(super) fn duration(exponent: u32) -> Span {
    Span::from_nanos(4_096).doubled(exponent.min(31))
}

/// How long to wait for the answer to a message: both ways, and what the peer may take.
pub(super) fn answer_within(packet_lifetime: u32, response_timeout: u32) -> Span {
    let wait = duration(packet_lifetime) * 2 + duration(response_timeout);
    wait.min(WAIT_MAX)
}

/// The ACK timeout of a path, as an exponent like all three numbers: twice the time a packet may be
/// under way and what the peer may take to acknowledge, rounded up (IBA vol 1, 12.7.34). With
/// Linux's packet life time of 18 and an ACK delay of 16 the 19 that RoCE programs know.
pub fn ack_timeout(ca_ack_delay: u8, packet_lifetime: u8) -> u8 {
    let both_ways = packet_lifetime.min(30) + 1;
    let (longer, shorter) = if both_ways >= ca_ack_delay {
        (both_ways, ca_ack_delay)
    } else {
        (ca_ack_delay, both_ways)
    };
    let rounded_up = u8::from(shorter + 1 >= longer);
    (longer + rounded_up).min(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeouts_are_those_of_linux() {
        for (delay, lifetime, expected) in [
            (16, 18, 19),
            (16, 16, 18),
            (15, 16, 17),
            (0, 0, 2),
            (20, 2, 20),
            (31, 31, 31),
        ] {
            assert_eq!(ack_timeout(delay, lifetime), expected, "{delay} {lifetime}");
        }
    }
}

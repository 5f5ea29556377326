//! The messages, field by field. Offsets count from the end of the MAD header.

use super::field::{Bits, Body, Gid, MODIFIER, Private, Value, at, bit};
use super::{RejectReason, ServiceId};
use crate::ids::{Psn, Qpn};

/// Defines messages whose fields are read and written from one list of offsets.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $place:expr,)*
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            pub(super) fn read(body: &Body) -> Self {
                Self { $($field: Value::read(body, $place),)* }
            }

            pub(super) fn write(&self, body: &mut Body) {
                $(self.$field.write(body, $place);)*
            }
        }
    )* };
}

messages! {
    /// Request for communication (IBA vol 1, 12.6.5), without an alternate path.
    Req {
        /// The sender's ID for the connection.
        local_comm_id: u32 = at(0),
        /// Who gives `vendor_options` their meaning; 0 if there are none.
        vendor_id: Bits<24> = at(5),
        /// Options of the connection that the sender offers.
        vendor_options: u32 = MODIFIER,
        /// The requested service.
        service_id: ServiceId = at(8),
        /// GUID of the sender's device.
        ca_guid: u64 = at(16),
        /// Q_Key of the sender's queue pair, for datagrams.
        qkey: u32 = at(28),
        /// The sender's queue pair.
        qpn: Qpn = at(32),
        /// Number of READs and atomics that the sender accepts at a time.
        responder_resources: u8 = at(35),
        /// Number of READs and atomics that the sender wants to have outstanding.
        initiator_depth: u8 = at(39),
        /// How long the receiver may take to answer: 4.096 µs · 2^n.
        remote_response_timeout: Bits<5> = at(43),
        /// 0 RC, 1 UC, 2 RD, 3 see `extended_transport`.
        transport: Bits<2> = bit(43, 5),
        /// The sender does end-to-end flow control.
        flow_control: bool = bit(43, 7),
        /// PSN with which the *receiver* begins to send: the first one that the sender of this
        /// message expects (IBA vol 1, 12.7.20).
        starting_psn: Psn = at(44),
        /// How long the sender may take to answer: 4.096 µs · 2^n.
        local_response_timeout: Bits<5> = at(47),
        /// Transport retries for the receiver's queue pair.
        retry_count: Bits<3> = bit(47, 5),
        /// Partition of the connection.
        pkey: u16 = at(48),
        /// Path MTU, 1 (256 bytes) to 5 (4096 bytes).
        mtu: Bits<4> = at(50),
        /// RNR retries for the receiver's queue pair; 7 means no limit.
        rnr_retry_count: Bits<3> = bit(50, 5),
        /// How often each side repeats a message of the connection manager.
        max_cm_retries: Bits<4> = at(51),
        /// The sender's queue pair has a shared receive queue.
        srq: bool = bit(51, 4),
        /// 1 for XRC, with `transport` 3.
        extended_transport: Bits<3> = bit(51, 5),
        /// The sender's LID; unused in RoCE.
        local_lid: u16 = at(52),
        /// The receiver's LID; unused in RoCE.
        remote_lid: u16 = at(54),
        /// The sender's address.
        local_gid: Gid = at(56),
        /// The receiver's address.
        remote_gid: Gid = at(72),
        /// Flow label of the path.
        flow_label: Bits<20> = at(88),
        /// Rate of the path as `ibv_rate`.
        rate: Bits<6> = bit(91, 2),
        /// Traffic class of the path.
        traffic_class: u8 = at(92),
        /// Hop limit of the path.
        hop_limit: u8 = at(93),
        /// Service level of the path.
        service_level: Bits<4> = at(94),
        /// Both sides are in one subnet.
        subnet_local: bool = bit(94, 4),
        /// ACK timeout of the path: 4.096 µs · 2^n.
        ack_timeout: Bits<5> = at(95),
        /// Private data.
        private: Private<92> = at(140),
    }

    /// Message receipt acknowledgement: the answer will take longer (IBA vol 1, 12.6.6).
    Mra {
        /// The sender's ID for the connection.
        local_comm_id: u32 = at(0),
        /// The receiver's ID for it.
        remote_comm_id: u32 = at(4),
        /// The message this one is about; see [`Answered`].
        answered: Bits<2> = at(8),
        /// How long the answer may take from now: 4.096 µs · 2^n.
        service_timeout: Bits<5> = at(9),
        /// Private data.
        private: Private<222> = at(10),
    }

    /// Rejection (IBA vol 1, 12.6.7).
    Rej {
        /// The sender's ID for the connection, 0 if it has none.
        local_comm_id: u32 = at(0),
        /// The receiver's ID for it, 0 if the sender never learnt it.
        remote_comm_id: u32 = at(4),
        /// The message this one is about; see [`Answered`].
        answered: Bits<2> = at(8),
        /// Number of meaningful bytes in `info`.
        info_len: Bits<7> = at(9),
        /// The reason.
        reason: RejectReason = at(10),
        /// Additional information, depending on the reason.
        info: Private<72> = at(12),
        /// Private data.
        private: Private<148> = at(84),
    }

    /// Reply to a request for communication (IBA vol 1, 12.6.8).
    Rep {
        /// The sender's ID for the connection.
        local_comm_id: u32 = at(0),
        /// The receiver's ID for it.
        remote_comm_id: u32 = at(4),
        /// Q_Key of the sender's queue pair, for datagrams.
        qkey: u32 = at(8),
        /// The sender's queue pair, 0 if it is in `eecn`.
        qpn: Qpn = at(12),
        /// Who gives `vendor_options` their meaning, in three parts: the most significant byte.
        vendor_id_high: u8 = at(15),
        /// The byte after it.
        vendor_id_middle: u8 = at(19),
        /// The least significant byte.
        vendor_id_low: u8 = at(23),
        /// Options of the connection that the sender has chosen.
        vendor_options: u32 = MODIFIER,
        /// The sender's queue pair, if the request was one for XRC: the target's queue pair
        /// replaces an end-to-end context.
        eecn: Qpn = at(16),
        /// PSN with which the *receiver* begins to send, as in a REQ.
        starting_psn: Psn = at(20),
        /// Number of READs and atomics that the sender accepts at a time.
        responder_resources: u8 = at(24),
        /// Number of READs and atomics that the sender will have outstanding.
        initiator_depth: u8 = at(25),
        /// How long the sender may take to acknowledge: 4.096 µs · 2^n.
        target_ack_delay: Bits<5> = at(26),
        /// The result for the alternate path.
        failover: Bits<2> = bit(26, 5),
        /// The sender does end-to-end flow control.
        flow_control: bool = bit(26, 7),
        /// RNR retries for the receiver's queue pair; 7 means no limit.
        rnr_retry_count: Bits<3> = at(27),
        /// The sender's queue pair has a shared receive queue.
        srq: bool = bit(27, 3),
        /// GUID of the sender's device.
        ca_guid: u64 = at(28),
        /// Private data.
        private: Private<196> = at(36),
    }

    /// Ready to use: the reply arrived (IBA vol 1, 12.6.9).
    Rtu {
        /// The sender's ID for the connection.
        local_comm_id: u32 = at(0),
        /// The receiver's ID for it.
        remote_comm_id: u32 = at(4),
        /// Private data.
        private: Private<224> = at(8),
    }

    /// Request to disconnect (IBA vol 1, 12.6.10).
    Dreq {
        /// The sender's ID for the connection.
        local_comm_id: u32 = at(0),
        /// The receiver's ID for it.
        remote_comm_id: u32 = at(4),
        /// The receiver's queue pair.
        remote_qpn: Qpn = at(8),
        /// Private data.
        private: Private<220> = at(12),
    }

    /// Reply to a request to disconnect (IBA vol 1, 12.6.11).
    Drep {
        /// The sender's ID for the connection.
        local_comm_id: u32 = at(0),
        /// The receiver's ID for it.
        remote_comm_id: u32 = at(4),
        /// Private data.
        private: Private<224> = at(8),
    }

    /// Request for the queue pair of a datagram service (IBA vol 1, 12.11.1).
    SidrReq {
        /// The sender's ID for the request.
        request_id: u32 = at(0),
        /// Partition.
        pkey: u16 = at(4),
        /// The requested service.
        service_id: ServiceId = at(8),
        /// Private data.
        private: Private<216> = at(16),
    }

    /// Reply to a request for a datagram service (IBA vol 1, 12.11.2).
    SidrRep {
        /// The ID of the request.
        request_id: u32 = at(0),
        /// 0 if there is such a service; see [`SidrRep::NOT_SUPPORTED`] and the others.
        status: u8 = at(4),
        /// Number of meaningful bytes in `info`.
        info_len: u8 = at(5),
        /// The queue pair.
        qpn: Qpn = at(8),
        /// The service.
        service_id: ServiceId = at(12),
        /// The queue pair's Q_Key.
        qkey: u32 = at(20),
        /// Additional information, depending on the status.
        info: Private<72> = at(24),
        /// Private data.
        private: Private<136> = at(96),
    }
}

/// Message that an MRA or REJ is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answered {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// Any other in a REJ; a LAP in an MRA.
    Other = 2,
}

impl From<Answered> for Bits<2> {
    fn from(answered: Answered) -> Self {
        Self::saturating(answered as u32)
    }
}

impl Rej {
    /// Creates a rejection for [`RejectReason::TIMEOUT`]. It identifies the connection by the
    /// sender's GUID and its `local_comm_id`, because the sender never learnt the receiver's ID for
    /// it (IBA vol 1, table 108; Linux looks it up by these two only).
    pub fn gave_up(local_comm_id: u32, ca_guid: u64) -> Self {
        let mut rej = Self {
            local_comm_id,
            answered: Answered::Req.into(),
            reason: RejectReason::TIMEOUT,
            info_len: Bits::saturating(u64::BITS / 8),
            ..Self::default()
        };
        if let Some(bytes) = rej.info.0.first_chunk_mut() {
            *bytes = ca_guid.to_be_bytes();
        }
        rej
    }

    /// Returns the sender's GUID from a rejection for [`RejectReason::TIMEOUT`].
    pub fn ca_guid(&self) -> u64 {
        self.info
            .0
            .first_chunk()
            .map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

impl SidrRep {
    /// Status: no program offers the service.
    pub const NOT_SUPPORTED: u8 = 1;
    /// Status: the program that offers the service declined.
    pub const REJECTED: u8 = 2;
    /// Status: there is no queue pair for it.
    pub const NO_QP: u8 = 3;
}

//! The device's events for its host, other than completions.

use std::io;
use std::net::IpAddr;

use ferroce_transport::{QpEvent, Time, TimerExpiry};
use ferroce_wire::Qpn;
use ferroce_wire::cm::ServiceId;
use thiserror::Error;

use crate::cm::Overload;
use crate::cq::CqId;
use crate::srq::SrqId;

/// The device's events for its host, other than completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An armed completion queue has a completion.
    Completion(CqId),
    /// The connection manager has events: [`crate::Hca::poll_cm_event`]. Repeated only after all
    /// were taken.
    ConnectionManager,
    /// A completion queue was full (`IBV_EVENT_CQ_ERR`). It takes no more completions, and every QP
    /// that has one for it fails with [`Self::QpFatal`].
    CqOverrun(CqId),
    /// The host's link has failed permanently, and nothing arrives or leaves any more
    /// (`IBV_EVENT_DEVICE_FATAL`).
    DeviceFatal,
    /// The user has removed the device; [`Self::DeviceFatal`] follows.
    DeviceRemoved,
    /// An asynchronous event of a QP.
    Qp(Qpn, QpEvent),
    /// A QP failed because its completion queue was full (`IBV_EVENT_QP_FATAL`).
    QpFatal(Qpn),
    /// A port has no carrier any more (`IBV_EVENT_PORT_ERR`).
    PortError {
        /// Its number, from 1.
        port: u8,
    },
    /// A port has a carrier again (`IBV_EVENT_PORT_ACTIVE`).
    PortActive {
        /// Its number, from 1.
        port: u8,
    },
    /// The host's addresses, and therefore a port's GIDs, have changed (`IBV_EVENT_GID_CHANGE`).
    /// The host raises this event itself.
    GidChange {
        /// Its number, from 1.
        port: u8,
    },
    /// The host must join an IP multicast group, so that its packets arrive.
    JoinGroup(IpAddr),
    /// The host must leave an IP multicast group.
    LeaveGroup(IpAddr),
    /// The host could not send to a peer, for a reason that repetition does not change. The packets
    /// count as `tx_dropped`; the QP fails when its retries are used up. Reported once for each
    /// peer and reason.
    SendRefused {
        /// The peer.
        dest: IpAddr,
        /// The reason.
        reason: Refusal,
    },
    /// The host could not join a multicast group: its packets do not arrive until it is joined
    /// again.
    GroupRefused {
        /// The group.
        group: IpAddr,
        /// The reason.
        reason: Refusal,
    },
    /// The host's receive buffer was full, and packets were dropped; they count as
    /// `rx_socket_overflow`. Reported once.
    ReceiveOverflow,
    /// A connection request was dropped because there was no room. Reported once for each cause;
    /// all of them are counted.
    RequestDropped {
        /// Who asked.
        source: IpAddr,
        /// What for.
        service: ServiceId,
        /// The reason.
        cause: Overload,
    },
    /// A shared receive queue fell below its limit (`IBV_EVENT_SRQ_LIMIT_REACHED`).
    SrqLimit(SrqId),
    /// A retransmission timer expired. Only with [`crate::HcaConfig::trace_timers`].
    TimerExpired {
        /// The queue pair.
        qpn: Qpn,
        /// When.
        at: Time,
        /// What ran out.
        expiry: TimerExpiry,
    },
}

/// The reason why a host cannot send to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A packet is larger than the way to the peer allows.
    #[error(
        "a datagram of {bytes} bytes does not fit the path: set a smaller path MTU on the queue \
         pair or a larger MTU on the interface"
    )]
    PathMtu {
        /// Bytes of UDP payload.
        bytes: usize,
    },
    /// The operating system's error: no route, a firewall, another address family.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Os {
        /// Its error number.
        errno: i32,
    },
}

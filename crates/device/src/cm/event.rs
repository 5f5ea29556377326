//! Events of the connection manager.

use std::net::IpAddr;

use ferroce_wire::cm::{Private, RejectReason, Rep, Req, SidrRep, SidrReq};

use super::CommId;

/// An event of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmEvent {
    /// The connection.
    pub comm: CommId,
    /// Number of the port that it is on, from 1.
    pub port: u8,
    /// The kind of event.
    pub kind: CmEventKind,
}

/// Kinds of [`CmEvent`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CmEventKind {
    /// A peer requests a connection. The program accepts, rejects or destroys it.
    Request {
        /// The peer's address.
        source: IpAddr,
        /// The request.
        req: Box<Req>,
    },
    /// The peer accepted. The program brings its queue pair to RTS and calls
    /// [`super::Cm::ready`], or rejects.
    Reply {
        /// The reply.
        rep: Box<Rep>,
    },
    /// The peer is ready too.
    Established {
        /// What it sent along.
        private: Private<224>,
    },
    /// The peer refuses the connection, or cancels it before it is complete.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// What it sent along.
        private: Private<148>,
    },
    /// The peer does not answer.
    Unreachable,
    /// The peer wants to end the connection, which requires [`super::Cm::disconnect`]; or both
    /// sides have, and it has ended.
    Disconnected {
        /// What it sent along.
        private: Private<220>,
    },
    /// The peer agrees to end the connection.
    DisconnectReply {
        /// What it sent along.
        private: Private<224>,
    },
    /// The peer has not answered whether it agrees; the connection has ended.
    DisconnectTimeout,
    /// No more packets of the connection can arrive; its queue pair can be reused.
    TimeWaitExit,
    /// A peer requests the queue pair of a datagram service.
    SidrRequest {
        /// The peer's address.
        source: IpAddr,
        /// The request.
        req: Box<SidrReq>,
    },
    /// The answer to a request for a datagram service.
    SidrReply {
        /// The reply.
        rep: Box<SidrRep>,
    },
}

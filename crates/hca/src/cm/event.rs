//! Events of the connection manager.

use std::net::IpAddr;

use ferroce_wire::cm::{Private, RejectReason, Rep, Req, SidrRep, SidrReq};

use super::CommId;

/// What happened to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmEvent {
    /// The connection.
    pub comm: CommId,
    /// What happened.
    pub kind: CmEventKind,
}

/// Kinds of [`CmEvent`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CmEventKind {
    /// Somebody asks for a connection. The program accepts, rejects or destroys it.
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
    /// The peer refuses the connection, or breaks it off before it is complete.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// What it sent along.
        private: Private<148>,
    },
    /// The peer does not answer.
    Unreachable,
    /// The peer wants to end the connection, which takes [`super::Cm::disconnect`]; or both did and
    /// it is over.
    Disconnected {
        /// What it sent along.
        private: Private<220>,
    },
    /// The peer agrees to end the connection.
    DisconnectReply {
        /// What it sent along.
        private: Private<224>,
    },
    /// The peer does not say whether it agrees; the connection is over.
    DisconnectTimeout,
    /// No packet of the connection is under way any more; its queue pair may be used again.
    TimeWaitExit,
    /// Somebody asks for the queue pair of a datagram service.
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

//! One connection: its state, its peer, and the last message sent for it.

use std::fmt;
use std::net::IpAddr;

use ferroce_transport::{Bytes, Path, Span, Time};
use ferroce_wire::Qpn;
use ferroce_wire::cm::ServiceId;

use super::Transport;

/// The ID of a connection on this side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommId(pub u32);

/// How far a connection, or a request for a datagram service, has come (IBA vol 1, 12.9.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmState {
    /// It failed or is over.
    Idle,
    /// REQ sent.
    ReqSent,
    /// REP received; the program has to say whether it is ready.
    RepReceived,
    /// REQ received; the program has to accept or reject.
    ReqReceived,
    /// REP sent.
    RepSent,
    /// Both sides are ready.
    Established,
    /// DREQ sent.
    DreqSent,
    /// DREQ received; the program has to let go.
    DreqReceived,
    /// It is over, but packets of it may still be under way.
    TimeWait,
    /// SIDR_REQ sent.
    SidrReqSent,
    /// SIDR_REQ received; the program has to answer.
    SidrReqReceived,
    /// SIDR_REP sent.
    SidrAnswered,
}

impl CmState {
    /// The program that listens has to answer.
    pub(super) fn is_request(self) -> bool {
        matches!(self, Self::ReqReceived | Self::SidrReqReceived)
    }

    /// It ends by itself.
    pub(super) fn waits_for_peer(self) -> bool {
        matches!(
            self,
            Self::ReqSent | Self::RepSent | Self::DreqSent | Self::SidrReqSent | Self::TimeWait
        )
    }

    /// The REQ was followed by a REP.
    pub(super) fn knows_peer(self) -> bool {
        matches!(
            self,
            Self::RepSent | Self::Established | Self::DreqSent | Self::DreqReceived
        )
    }
}

impl fmt::Display for CmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::ReqSent => "REQ sent",
            Self::RepReceived => "REP received",
            Self::ReqReceived => "REQ received",
            Self::RepSent => "REP sent",
            Self::Established => "established",
            Self::DreqSent => "DREQ sent",
            Self::DreqReceived => "DREQ received",
            Self::TimeWait => "time wait",
            Self::SidrReqSent => "SIDR_REQ sent",
            Self::SidrReqReceived => "SIDR_REQ received",
            Self::SidrAnswered => "SIDR_REP sent",
        })
    }
}

/// Who sent a request, under which name: a second one of the same origin is a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Origin {
    peer: IpAddr,
    /// 0 in requests for a datagram service, which do not say.
    ca_guid: u64,
    name: u32,
    datagram: bool,
}

impl Origin {
    pub(super) fn connection(peer: IpAddr, ca_guid: u64, name: u32) -> Self {
        Self {
            peer,
            ca_guid,
            name,
            datagram: false,
        }
    }

    pub(super) fn datagram(peer: IpAddr, name: u32) -> Self {
        Self {
            peer,
            ca_guid: 0,
            name,
            datagram: true,
        }
    }
}

/// A peer's queue pair. Another request that names it shows that the peer has forgotten the
/// connection that this side still has with it. Linux compares GUID and number; the address keeps
/// other hosts from ending the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RemoteQp {
    pub(super) peer: IpAddr,
    pub(super) ca_guid: u64,
    pub(super) qpn: Qpn,
}

/// A connection, or a request for a datagram service.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: CmState,
    /// Its place among the leftovers, once the program has destroyed it.
    pub(super) left: Option<u64>,
    /// The request that it came with, on the passive side.
    pub(super) origin: Option<Origin>,
    /// The path to the peer, for the messages about it.
    pub(super) path: Path,
    pub(super) service_id: ServiceId,
    pub(super) transport: Transport,
    /// GUID of the device on this side, if this side asks.
    pub(super) local_guid: u64,
    /// GUID of the peer's device, 0 until known.
    pub(super) remote_guid: u64,
    /// The peer's name for it, 0 until known.
    pub(super) remote_comm: u32,
    pub(super) local_qpn: Qpn,
    pub(super) remote_qpn: Qpn,
    /// Transactions that this side begins, each with a number in the low byte.
    pub(super) own_tid: u64,
    /// Transaction of the request that it began with.
    pub(super) tid: u64,
    /// Transaction of the peer's request to disconnect.
    pub(super) end_tid: u64,
    /// How long to wait for an answer before the message is sent again.
    pub(super) wait: Span,
    /// How long packets of it may be under way.
    pub(super) time_wait: Span,
    /// How many times each message is sent again.
    pub(super) retries: u8,
    pub(super) retries_left: u8,
    /// When the last message is given up though there are retries left.
    pub(super) give_up_at: Option<Time>,
    /// The peer has asked for patience with the last message.
    pub(super) is_patient: bool,
    /// A request that the program has not taken.
    pub(super) in_backlog: bool,
    /// It is over, and it had been established.
    pub(super) was_connected: bool,
    /// How many times the peer said that no program listens.
    pub(super) absences: u8,
    /// The last message sent for it, kept for retransmission.
    pub(super) last: Option<Bytes>,
    /// Its entry among the timers.
    pub(super) deadline: Option<Time>,
}

impl Connection {
    /// A connection that this side requests, and requests again as often if no answer comes within
    /// `wait`.
    pub(super) fn asking(
        state: CmState,
        path: Path,
        service_id: ServiceId,
        wait: Span,
        retries: u8,
    ) -> Self {
        Self {
            wait,
            retries,
            ..Self::new(state, path, service_id)
        }
    }

    /// One that a peer asks for by a request with this transaction, and whose answer it awaits within
    /// `wait`.
    pub(super) fn asked(
        state: CmState,
        origin: Origin,
        path: Path,
        service_id: ServiceId,
        tid: u64,
        wait: Span,
    ) -> Self {
        Self {
            origin: Some(origin),
            remote_guid: origin.ca_guid,
            remote_comm: origin.name,
            tid,
            wait,
            ..Self::new(state, path, service_id)
        }
    }

    /// One that knows its peer and has exchanged nothing yet.
    fn new(state: CmState, path: Path, service_id: ServiceId) -> Self {
        Self {
            state,
            left: None,
            origin: None,
            path,
            service_id,
            transport: Transport::Rc,
            local_guid: 0,
            remote_guid: 0,
            remote_comm: 0,
            local_qpn: Qpn::new(0),
            remote_qpn: Qpn::new(0),
            own_tid: 0,
            tid: 0,
            end_tid: 0,
            wait: Span::ZERO,
            time_wait: Span::ZERO,
            retries: 0,
            retries_left: 0,
            give_up_at: None,
            is_patient: false,
            in_backlog: false,
            was_connected: false,
            absences: 0,
            last: None,
            deadline: None,
        }
    }

    /// The program knows it and has not destroyed it.
    pub(super) fn is_owned(&self) -> bool {
        self.left.is_none()
    }

    /// Whether the last message may be sent once more.
    pub(super) fn may_repeat(&self, now: Time) -> bool {
        self.retries_left > 0 && self.give_up_at.is_none_or(|at| now < at)
    }

    /// When to stop waiting for an answer that may take `wait`.
    pub(super) fn answer_by(&self, now: Time, wait: Span) -> Time {
        let at = now.after(wait);
        self.give_up_at.map_or(at, |latest| at.min(latest))
    }

    pub(super) fn remote_qp(&self) -> RemoteQp {
        RemoteQp {
            peer: self.path.dest,
            ca_guid: self.remote_guid,
            qpn: self.remote_qpn,
        }
    }

    pub(super) fn info(&self, comm: CommId) -> CmInfo {
        CmInfo {
            comm,
            state: self.state,
            peer: self.path.dest,
            service_id: self.service_id,
            port: self.path.port,
            local_qpn: self.local_qpn,
            remote_qpn: self.remote_qpn,
        }
    }
}

/// A connection, or a request for a datagram service, to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmInfo {
    /// Its name on this side.
    pub comm: CommId,
    /// How far it has come.
    pub state: CmState,
    /// The peer's address.
    pub peer: IpAddr,
    /// What was asked for.
    pub service_id: ServiceId,
    /// The queue pair on this side, 0 until known.
    pub local_qpn: Qpn,
    /// Number of the port that it is on, from 1.
    pub port: u8,
    /// The peer's queue pair, 0 until known.
    pub remote_qpn: Qpn,
}

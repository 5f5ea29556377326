//! Why a call of the connection manager failed.

use ferroce_transport::Counter;
use ferroce_wire::cm::ServiceId;
use thiserror::Error;

use super::bounds::{CONNECTIONS_MAX, OF_SOURCE_MAX};
use super::{CmState, CommId};

/// Why a request for a connection was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Overload {
    /// The program has left as many requests untaken as it may.
    #[error(
        "the program has left as many requests untaken as rdma_listen allowed; fetch their events \
         sooner, or give rdma_listen a larger backlog"
    )]
    Backlog,
    /// The source has asked for as much as is kept of one.
    #[error(
        "{OF_SOURCE_MAX} requests of this source wait already, which is as many as it may have"
    )]
    Source,
    /// There are as many connections as the device holds.
    #[error("the device holds {CONNECTIONS_MAX} connections, as many as it can; destroy some")]
    Table,
}

impl Overload {
    /// What counts such requests.
    pub fn counter(self) -> Counter {
        match self {
            Self::Backlog => Counter::CmBacklogFull,
            Self::Source => Counter::CmSourceLimit,
            Self::Table => Counter::CmTableFull,
        }
    }
}

/// Why a call of the connection manager was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CmError {
    /// The name stands for nothing (`EINVAL`).
    #[error("there is no connection {:#010x}; it was never made, or destroyed", comm.0)]
    NoSuch {
        /// The name given.
        comm: CommId,
    },
    /// The call does not fit how far the connection has come (`EINVAL`).
    #[error("a connection in state \"{state}\" cannot {call}; {allowed} can")]
    WrongState {
        /// What was asked.
        call: &'static str,
        /// How far it has come.
        state: CmState,
        /// Which states would do.
        allowed: &'static str,
    },
    /// Another program or the same one listens already (`EADDRINUSE`).
    #[error("something listens on {service} already; choose another port or end it first")]
    InUse {
        /// The service.
        service: ServiceId,
    },
    /// No program listens (`EINVAL`).
    #[error("nothing listens on {service}")]
    NotListening {
        /// The service.
        service: ServiceId,
    },
    /// The device holds as many as it can (`ENOMEM`).
    #[error("the device holds at most {max} connections; destroy some first")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// A value outside what the message can say (`EINVAL`).
    #[error("{field} is {value}; allowed: 0 to {max}")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Value given.
        value: u8,
        /// Largest allowed.
        max: u8,
    },
}

use ferroce_wire::cm::ServiceId;
use thiserror::Error;

use super::{CmState, CommId};

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
    /// Somebody listens already (`EADDRINUSE`).
    #[error("something listens on {service} already; choose another port or end it first")]
    InUse {
        /// The service.
        service: ServiceId,
    },
    /// Nobody listens (`EINVAL`).
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
    #[error("{field} is {value}, allowed is 0 to {max}")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Value given.
        value: u8,
        /// Largest allowed.
        max: u8,
    },
}

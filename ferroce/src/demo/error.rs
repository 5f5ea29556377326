//! The reasons why the demo could not run.

use std::net::{IpAddr, SocketAddr};

use ferroce_device::VerbsError;
use ferroce_runtime::OpenError;
use ferroce_sockets::BindError;
use thiserror::Error;

/// Why the demo could not show what it wants to show.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// Another program holds an address.
    #[error(
        "{address} is in use, perhaps by another demo: wait until it ends, or take other addresses, \
         for example --addresses 127.0.0.3,127.0.0.4; `ss -ulnp sport = :{port}` shows who it is \
         (if it shows none, `rdma link` shows whether the kernel's soft-RoCE has the port)",
        port = address.port()
    )]
    AddressInUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// An address is on an interface that is down.
    #[error(
        "{interface}, which has {address}, is down or has no carrier: bring it up (`ip link set dev \
         {interface} up`), or take other addresses with --addresses A,B"
    )]
    Down {
        /// The address asked for.
        address: IpAddr,
        /// The interface that has it.
        interface: String,
    },
    /// A device could not be opened.
    #[error("{0}; the demo takes its addresses from --addresses A,B")]
    Open(#[source] OpenError),
    /// A verb was refused.
    #[error("the device refused a verb: {0}")]
    Verbs(#[from] VerbsError),
    /// A work request ended in a way that no link can cause.
    #[error("a work request under {under} ended with {status}")]
    Status {
        /// What the run was made under.
        under: String,
        /// Name of the status.
        status: &'static str,
    },
    /// A queue pair neither completes nor fails.
    #[error("nothing has happened for {seconds} s under {under}, and no queue pair failed")]
    Stuck {
        /// What the run was made under.
        under: String,
        /// How long.
        seconds: u64,
    },
    /// What cannot be.
    #[error("{0}")]
    Internal(String),
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Bind(BindError::AddressInUse { address }) => Self::AddressInUse { address },
            error => Self::Open(error),
        }
    }
}

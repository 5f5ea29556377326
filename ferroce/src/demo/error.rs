use ferroce_hca::VerbsError;
use ferroce_udp::OpenError;
use thiserror::Error;

use super::plan::Kind;

/// Why the demo could not show what it wants to show.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// A device could not be opened.
    #[error("{0}; the demo takes other ones with --addresses 127.0.0.3,127.0.0.4")]
    Open(#[source] OpenError),
    /// A verb was refused.
    #[error("the device refused a verb: {0}")]
    Verbs(#[from] VerbsError),
    /// A work request ended in a way that no link can cause.
    #[error("a work request under policy {policy} ended with {status}")]
    Status {
        /// The policy of the run.
        policy: Kind,
        /// Name of the status.
        status: &'static str,
    },
    /// A queue pair neither completes nor fails.
    #[error("nothing has happened for {seconds} s under policy {policy}, and no queue pair failed")]
    Stuck {
        /// The policy of the run.
        policy: Kind,
        /// How long.
        seconds: u64,
    },
    /// What cannot be.
    #[error("{0}")]
    Internal(String),
}

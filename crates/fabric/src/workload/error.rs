//! The reasons why a workload is invalid.

use super::{EDGES_MAX, JOBS_MAX, TRANSFER_BYTES_MAX, TRANSFERS_MAX};

/// Why something is not a workload, or not one for a topology.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A parameter is out of its range.
    #[error("invalid {field} {value}: must be {allowed}")]
    Field {
        /// The name of the parameter.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A host is listed twice.
    #[error("invalid {field}: host {host} is listed twice; list each host once")]
    Twice {
        /// The name of the list.
        field: &'static str,
        /// The host.
        host: u32,
    },
    /// It would have too many transfers.
    #[error(
        "the workload has {transfers} transfers: must be at most {TRANSFERS_MAX}; \
         use fewer hosts, chunks or rounds, or a shorter time"
    )]
    Transfers {
        /// How many it would have, or at least.
        transfers: u128,
    },
    /// Too many transfers would wait for others.
    #[error(
        "the workload has {edges} dependencies: must be at most {EDGES_MAX}; \
         use fewer hosts, chunks or rounds"
    )]
    Edges {
        /// How many it would have, or at most.
        edges: u128,
    },
    /// It has too many jobs.
    #[error("the workload has {jobs} jobs: must be at most {JOBS_MAX}; merge fewer workloads")]
    Jobs {
        /// How many it would have.
        jobs: usize,
    },
    /// A transfer is from or to a host that the topology lacks.
    #[error("transfer {transfer}: unknown host {host}: the topology has hosts 0 to {last}")]
    NoHost {
        /// The place of the transfer.
        transfer: usize,
        /// The host.
        host: u32,
        /// The last host of the topology.
        last: u32,
    },
    /// A host sends to itself.
    #[error("transfer {transfer}: host {host} sends to itself; choose another sender or receiver")]
    Itself {
        /// The place of the transfer.
        transfer: usize,
        /// The host.
        host: u32,
    },
    /// A transfer has no bytes, or too many.
    #[error("transfer {transfer}: invalid bytes {bytes}: must be 1 to {TRANSFER_BYTES_MAX}")]
    Bytes {
        /// The place of the transfer.
        transfer: usize,
        /// How many it has.
        bytes: u32,
    },
    /// A transfer never begins.
    #[error("transfer {transfer}: invalid {field}: must be less than 213 days")]
    Never {
        /// The place of the transfer.
        transfer: usize,
        /// Which of its times.
        field: &'static str,
    },
    /// A transfer is part of a job that does not exist.
    #[error("transfer {transfer}: unknown job {job}: the workload has {jobs} jobs; name each job")]
    NoJob {
        /// The place of the transfer.
        transfer: usize,
        /// The job.
        job: u16,
        /// How many there are.
        jobs: usize,
    },
    /// An edge is from or to a transfer that does not exist.
    #[error(
        "dependency {edge}: unknown transfer {transfer}: the workload has {transfers} transfers"
    )]
    NoTransfer {
        /// The place of the edge.
        edge: usize,
        /// The transfer.
        transfer: u32,
        /// How many there are.
        transfers: usize,
    },
    /// Transfers wait for each other.
    #[error("transfers wait for each other: {}; remove one of these dependencies", chain(.transfers))]
    Cycle {
        /// Some of them: each waits for the one before it, the first for the last.
        transfers: Vec<u32>,
    },
}

/// A cycle as people read it: at most this many of its transfers.
fn chain(transfers: &[u32]) -> String {
    const SHOWN: usize = 8;
    let mut parts: Vec<String> = transfers.iter().take(SHOWN).map(u32::to_string).collect();
    if transfers.len() > SHOWN {
        parts.push(format!("({} more)", transfers.len() - SHOWN));
    }
    parts.extend(transfers.first().map(u32::to_string));
    parts.join(" -> ")
}

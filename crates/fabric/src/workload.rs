//! What hosts send to each other, and when.

use ferroce_time::{Span, Time};

/// The place of a transfer in its workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransferId(pub u32);

/// Bytes that go from one host to another as one message.
#[derive(Clone, PartialEq, Debug)]
pub struct Transfer {
    /// The sending host.
    pub src: u32,
    /// The receiving host, another one.
    pub dst: u32,
    /// At most 1 GiB.
    pub bytes: u32,
    /// It does not begin earlier.
    pub at: Time,
    /// It does not begin before so long after the last of those that it waits for was delivered.
    pub think: Span,
    /// Which job it is part of.
    pub job: u16,
}

/// Transfers, and which of them wait for others.
///
/// A transfer begins when all it waits for have been delivered to their receivers.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Workload {
    /// All of them.
    pub transfers: Vec<Transfer>,
    /// Who waits for whom: the second for the first. No cycles.
    pub edges: Vec<(TransferId, TransferId)>,
    /// The names of the jobs.
    pub jobs: Vec<String>,
}

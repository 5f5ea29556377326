//! What the generators share.

use std::collections::HashSet;

use ferroce_time::{Span, Time};

use super::{
    EDGES_MAX, TRANSFER_BYTES_MAX, TRANSFERS_MAX, Transfer, TransferId, Workload, WorkloadError,
};

/// A workload of one job that is being made.
pub(super) struct Plan(Workload);

/// The transfers that carry one message, of which there are several if it is large.
#[derive(Clone, Copy)]
pub(super) struct Message {
    first: u32,
    count: u32,
}

impl Message {
    fn parts(self) -> impl Iterator<Item = TransferId> {
        (self.first..self.first + self.count).map(TransferId)
    }
}

/// Who sends to whom, and when.
#[derive(Clone, Copy)]
pub(super) struct Sending {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) bytes: u64,
    pub(super) at: Time,
    pub(super) think: Span,
}

impl Plan {
    /// Begins a job of at most so many messages, each of so many bytes at most, and so many
    /// dependencies between them. What is too large is refused before it takes memory.
    pub(super) fn new(
        job: &str,
        messages: u128,
        bytes_max: u64,
        waits: u128,
    ) -> Result<Self, WorkloadError> {
        let parts = u128::from(parts(bytes_max));
        let mut workload = Workload::default();
        let transfers = messages.saturating_mul(parts);
        let edges = waits.saturating_mul(parts * parts);
        reserve(&mut workload, transfers, edges)?;
        workload.jobs.push(job.into());
        Ok(Self(workload))
    }

    /// Adds a message that waits for others.
    pub(super) fn send(&mut self, it: Sending, waits_for: &[Message]) -> Message {
        let message = Message {
            first: self.0.transfers.len() as u32,
            count: parts(it.bytes) as u32,
        };
        let mut left = it.bytes;
        for part in message.parts() {
            let bytes = left.min(TRANSFER_BYTES_MAX.into()) as u32;
            left -= u64::from(bytes);
            self.0.transfers.push(Transfer {
                src: it.src,
                dst: it.dst,
                bytes,
                at: it.at,
                think: it.think,
                job: 0,
            });
            let before = waits_for.iter().flat_map(|message| message.parts());
            self.0.edges.extend(before.map(|before| (before, part)));
        }
        message
    }

    pub(super) fn finish(self) -> Workload {
        self.0
    }
}

/// How many transfers carry so many bytes.
pub(super) fn parts(bytes: u64) -> u64 {
    bytes.div_ceil(TRANSFER_BYTES_MAX.into())
}

/// Makes room for more, within the limits.
pub(super) fn reserve(
    workload: &mut Workload,
    transfers: u128,
    edges: u128,
) -> Result<(), WorkloadError> {
    let transfers_all = transfers.saturating_add(workload.transfers.len() as u128);
    let edges_all = edges.saturating_add(workload.edges.len() as u128);
    if transfers_all > TRANSFERS_MAX.into() {
        let transfers = transfers_all;
        return Err(WorkloadError::Transfers { transfers });
    }
    if edges_all > EDGES_MAX.into() {
        return Err(WorkloadError::Edges { edges: edges_all });
    }
    workload.transfers.reserve_exact(transfers as usize);
    workload.edges.reserve_exact(edges as usize);
    Ok(())
}

/// Refuses a number that is out of its range.
pub(super) fn within(
    field: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), WorkloadError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(WorkloadError::Field {
        field,
        value: value.to_string(),
        allowed: format!("{min} to {max}"),
    })
}

/// The most bytes of a message: more than a link carries in the time that the simulator counts.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1 << 50;

/// Refuses fewer hosts than `min`, and hosts that are listed twice.
pub(super) fn distinct(field: &'static str, hosts: &[u32], min: u64) -> Result<(), WorkloadError> {
    if (hosts.len() as u64) < min {
        let hosts = if min == 1 { "host" } else { "hosts" };
        return Err(WorkloadError::Field {
            field,
            value: "list".into(),
            allowed: format!("at least {min} {hosts}"),
        });
    }
    let mut seen = HashSet::with_capacity(hosts.len());
    match hosts.iter().find(|host| !seen.insert(**host)) {
        None => Ok(()),
        Some(&host) => Err(WorkloadError::Twice { field, host }),
    }
}

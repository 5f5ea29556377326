//! Code that the generators share.

use std::collections::HashSet;

use ferroce_base::time::{Span, Time};

use super::{
    EDGES_MAX, TRANSFER_BYTES_MAX, TRANSFERS_MAX, Transfer, TransferId, Workload, WorkloadError,
};
use crate::topology::HOSTS_MAX;

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

/// Sender, receiver and time.
#[derive(Clone, Copy)]
pub(super) struct Sending {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) bytes: u64,
    pub(super) at: Time,
    pub(super) think: Span,
}

impl Plan {
    /// Begins a job of at most this many messages, each of this many bytes at most, and this many
    /// dependencies between them. What is too large is refused before it takes memory.
    pub(super) fn new(
        job: &str,
        messages: u128,
        bytes_max: u64,
        waits: u128,
    ) -> Result<Self, WorkloadError> {
        let parts = u128::from(parts(bytes_max));
        let transfers = messages.saturating_mul(parts);
        let edges = waits.saturating_mul(parts * parts);
        let mut plan = Self::begin(job);
        reserve(&mut plan.0, transfers, edges)?;
        Ok(plan)
    }

    /// Begins a job whose size is not known yet; each message needs to be
    /// [allowed](Self::allow).
    pub(super) fn begin(job: &str) -> Self {
        Self(Workload {
            jobs: vec![job.into()],
            ..Workload::default()
        })
    }

    /// Begins a job of at least this many messages, the first of which are refused if that is too many.
    pub(super) fn at_least(job: &str, messages: u128) -> Result<Self, WorkloadError> {
        let plan = Self::begin(job);
        within_limits(&plan.0, messages, 0)?;
        Ok(plan)
    }

    /// Adds a message that waits for others; refuses what is too much.
    pub(super) fn add(
        &mut self,
        it: Sending,
        waits_for: &[Message],
    ) -> Result<Message, WorkloadError> {
        let count = u128::from(parts(it.bytes));
        let before = waits_for.iter().map(|message| u128::from(message.count));
        within_limits(&self.0, count, count * before.sum::<u128>())?;
        Ok(self.send(it, waits_for))
    }

    /// Adds work of a host that waits for others, begins then at the earliest, and takes so long; refuses
    /// what is too much.
    pub(super) fn work(
        &mut self,
        host: u32,
        at: Time,
        takes: Span,
        waits_for: &[Message],
    ) -> Result<Message, WorkloadError> {
        let work = Sending {
            src: host,
            dst: host,
            bytes: 0,
            at,
            think: takes,
        };
        self.add(work, waits_for)
    }

    /// Adds a message that waits for others, or work if it has no bytes.
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

    /// Has one message wait for another; refuses what is too much.
    pub(super) fn wait(&mut self, after: Message, before: Message) -> Result<(), WorkloadError> {
        let edges = u128::from(after.count) * u128::from(before.count);
        within_limits(&self.0, 0, edges)?;
        for after in after.parts() {
            self.0.edges.extend(before.parts().map(|it| (it, after)));
        }
        Ok(())
    }

    /// Makes room for another message; refuses what is too much.
    pub(super) fn allow(&self, bytes: u64) -> Result<(), WorkloadError> {
        within_limits(&self.0, parts(bytes).into(), 0)
    }

    pub(super) fn finish(self) -> Workload {
        self.0
    }
}

/// How many transfers carry this many bytes; work is one without.
pub(super) fn parts(bytes: u64) -> u64 {
    bytes.div_ceil(TRANSFER_BYTES_MAX.into()).max(1)
}

/// The size of one of this many pieces: they differ by a byte at most, the larger ones come first.
pub(super) fn share(bytes: u64, pieces: u32, piece: u32) -> u64 {
    let (even, rest) = (bytes / u64::from(pieces), bytes % u64::from(pieces));
    even + u64::from(u64::from(piece) < rest)
}

/// Makes room for more, within the limits.
pub(super) fn reserve(
    workload: &mut Workload,
    transfers: u128,
    edges: u128,
) -> Result<(), WorkloadError> {
    within_limits(workload, transfers, edges)?;
    workload.transfers.reserve_exact(transfers as usize);
    workload.edges.reserve_exact(edges as usize);
    Ok(())
}

/// Refuses more than a workload may have.
fn within_limits(workload: &Workload, transfers: u128, edges: u128) -> Result<(), WorkloadError> {
    let transfers_all = transfers.saturating_add(workload.transfers.len() as u128);
    let edges_all = edges.saturating_add(workload.edges.len() as u128);
    if transfers_all > TRANSFERS_MAX.into() {
        let transfers = transfers_all;
        return Err(WorkloadError::Transfers { transfers });
    }
    if edges_all > EDGES_MAX.into() {
        return Err(WorkloadError::Edges { edges: edges_all });
    }
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

/// The most bytes of a message, 64 GiB: simulating the packets of a larger one takes too long.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1 << 36;

/// Refuses fewer hosts than `min`, more than there can be, and hosts that are listed twice.
pub(super) fn distinct(field: &'static str, hosts: &[u32], min: u64) -> Result<(), WorkloadError> {
    if !(min..=HOSTS_MAX.into()).contains(&(hosts.len() as u64)) {
        return Err(WorkloadError::Field {
            field,
            value: format!("list of {}", hosts.len()),
            allowed: format!("{min} to {HOSTS_MAX} hosts"),
        });
    }
    let mut seen = HashSet::with_capacity(hosts.len());
    match hosts.iter().find(|host| !seen.insert(**host)) {
        None => Ok(()),
        Some(&host) => Err(WorkloadError::Twice { field, host }),
    }
}

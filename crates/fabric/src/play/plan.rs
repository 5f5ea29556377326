//! What hosts know while a window of time passes.

use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_base::time::Span;
use ferroce_device::MrInfo;

use super::{ConnectionLook, JobConfig};
use crate::fabric::Fabric;
use crate::workload::{Dependents, Transfer, TransferId, Workload};

/// In place of a connection.
const NONE: u32 = u32::MAX;

/// What hosts know while a window of time passes: what is to be sent and by which connections. It changes
/// only between windows, but for the dependencies that are left of a transfer, which only its sender counts.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) workload: Workload,
    pub(super) jobs: Vec<JobConfig>,
    /// Jobs that have been aborted.
    pub(super) is_dead: Vec<bool>,
    pub(super) dependents: Dependents,
    /// How many transfers each still waits for.
    waits: Vec<AtomicU32>,
    /// The connection of each transfer.
    of_transfer: Vec<u32>,
    pub(super) connections: Vec<Connection>,
    /// The memory of each host, to write to.
    pub(super) memories: Vec<MrInfo>,
    /// How long one host does not know what another one does.
    pub(super) lookahead: Span,
}

/// A connection, and whether its queue pairs are there.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) look: ConnectionLook,
    pub(super) is_made: bool,
}

impl Plan {
    pub(super) fn new(workload: Workload, jobs: Vec<JobConfig>) -> Self {
        let waits = workload.waits().into_iter().map(AtomicU32::new);
        Self {
            is_dead: vec![false; jobs.len()],
            jobs,
            dependents: Dependents::of(&workload),
            waits: waits.collect(),
            of_transfer: vec![NONE; workload.transfers.len()],
            connections: Vec::new(),
            memories: Vec::new(),
            lookahead: Span::ZERO,
            workload,
        }
    }

    pub(super) fn meet(&mut self, fabric: &Fabric) {
        let hosts = 0..fabric.topology().hosts;
        self.memories = hosts.map(|host| *fabric.host(host).memory()).collect();
        self.lookahead = fabric.lookahead();
    }

    pub(super) fn transfer(&self, id: TransferId) -> &Transfer {
        &self.workload.transfers[id.0 as usize]
    }

    pub(super) fn job(&self, id: TransferId) -> &JobConfig {
        &self.jobs[usize::from(self.transfer(id).job)]
    }

    /// Whether a transfer waits for no others.
    pub(super) fn is_free(&self, id: TransferId) -> bool {
        self.waits[id.0 as usize].load(Ordering::Relaxed) == 0
    }

    /// One of the transfers that another one waits for has been delivered. Returns whether it was the last.
    pub(super) fn free(&self, id: TransferId) -> bool {
        // Only the thread of its sender's host counts, so this orders nothing.
        self.waits[id.0 as usize].fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// The connection of a transfer, if it has one.
    pub(super) fn connection_of(&self, id: TransferId) -> Option<u32> {
        let connection = self.of_transfer[id.0 as usize];
        (connection != NONE).then_some(connection)
    }

    pub(super) fn assign(&mut self, id: TransferId, connection: u32) {
        self.of_transfer[id.0 as usize] = connection;
    }
}

//! What hosts know while a window of time passes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use ferroce_base::time::{Span, Time};
use ferroce_device::{MrInfo, Mtu, Qpn};
use ferroce_wire::Psn;

use super::{ConnectionLook, JobConfig};
use crate::fabric::Fabric;
use crate::workload::{Transfer, TransferGraph, TransferId};

/// In place of a connection: of what is not prepared, of work, and of what is in several parts.
const NONE: u32 = u32::MAX;
const WORK: u32 = u32::MAX - 1;
const SPLIT: u32 = u32::MAX - 2;

/// What hosts know while a window of time passes: what is to be sent and by which connections. It changes
/// only between windows. Dependencies that are left of a transfer are an exception; only its sender counts them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) workload: Arc<TransferGraph>,
    pub(super) jobs: Vec<JobConfig>,
    /// Jobs that have been aborted.
    pub(super) is_dead: Vec<bool>,
    /// How many transfers each still waits for.
    waits: Vec<AtomicU32>,
    /// The connection of each transfer.
    of_transfer: Vec<u32>,
    /// Those that are in several parts.
    splits: HashMap<TransferId, Split>,
    pub(super) connections: Vec<Connection>,
    /// The connection of each queue pair of each host.
    pub(super) of_qp: HashMap<(u32, Qpn), u32>,
    /// The memory of each host, to write to.
    pub(super) memories: Vec<MrInfo>,
    /// How long one host does not know what another one does.
    pub(super) lookahead: Span,
    /// Time that has been left out because nothing changed in it: the fabric's clock is so much behind.
    pub(super) left_out: Span,
}

/// A transfer that is in several parts.
#[derive(Debug)]
struct Split {
    /// The connection of each part, and its bytes.
    parts: Vec<(u32, u32)>,
    /// How many are not delivered.
    undelivered: AtomicU16,
    /// How many are not acknowledged.
    unacknowledged: u16,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) look: ConnectionLook,
    /// Its queue pairs are there.
    pub(super) is_made: bool,
    /// How many of the parts that are outstanding have been delivered.
    pub(super) delivered: u32,
    /// One past the last packet of what its present queue pairs have acknowledged.
    pub(super) una: Psn,
}

/// What a connection carries of a transfer: all of it, unless the job splits them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) of: TransferId,
    pub(super) bytes: u32,
    /// Packets of it that are not sent, because they are of time that is left out.
    pub(super) left_out: u32,
}

impl Share {
    /// The packets that are sent of it.
    pub(super) fn packets(&self, mtu: Mtu) -> u32 {
        self.bytes.div_ceil(mtu.bytes()).max(1) - self.left_out
    }
}

impl Plan {
    pub(super) fn new(workload: Arc<TransferGraph>, jobs: Vec<JobConfig>) -> Self {
        let waits = workload.waits().into_iter().map(AtomicU32::new);
        Self {
            is_dead: vec![false; jobs.len()],
            jobs,
            waits: waits.collect(),
            of_transfer: vec![NONE; workload.transfers.len()],
            splits: HashMap::new(),
            connections: Vec::new(),
            of_qp: HashMap::new(),
            memories: Vec::new(),
            lookahead: Span::ZERO,
            left_out: Span::ZERO,
            workload,
        }
    }

    pub(super) fn meet(&mut self, fabric: &Fabric) {
        let hosts = 0..fabric.topology().hosts;
        self.memories = hosts.map(|host| *fabric.host(host).memory()).collect();
        self.lookahead = fabric.lookahead();
    }

    /// What a time of the fabric is with the time that has been left out.
    pub(super) fn shown(&self, at: Time) -> Time {
        at.after(self.left_out)
    }

    /// The fabric's time of one with the time that has been left out.
    pub(super) fn of_fabric(&self, at: Time) -> Time {
        at.before(self.left_out)
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

    /// Those that wait for a transfer.
    pub(super) fn dependents(&self, id: TransferId) -> &[TransferId] {
        self.workload.dependents.at(id)
    }

    /// A part of a transfer has been delivered. Returns whether it was the last.
    pub(super) fn deliver(&self, id: TransferId) -> bool {
        // Only the thread of its receiver's host counts.
        let split = self.split(id);
        split.is_none_or(|it| it.undelivered.fetch_sub(1, Ordering::Relaxed) == 1)
    }

    /// A part of a transfer has been acknowledged. Returns whether it was the last.
    pub(super) fn acknowledge(&mut self, id: TransferId) -> bool {
        if self.of_transfer[id.0 as usize] != SPLIT {
            return true;
        }
        self.splits.get_mut(&id).is_none_or(|it| {
            it.unacknowledged -= 1;
            it.unacknowledged == 0
        })
    }

    fn split(&self, id: TransferId) -> Option<&Split> {
        match self.of_transfer[id.0 as usize] {
            SPLIT => self.splits.get(&id),
            _ => None,
        }
    }

    /// The connections that carry a transfer, and the bytes that each carries.
    pub(super) fn parts(&self, id: TransferId) -> impl Iterator<Item = (u32, u32)> {
        let (whole, split) = match self.of_transfer[id.0 as usize] {
            NONE | WORK => (None, None),
            SPLIT => (None, self.splits.get(&id)),
            connection => (Some((connection, self.transfer(id).bytes)), None),
        };
        let split = split.into_iter().flat_map(|it| &it.parts);
        whole.into_iter().chain(split.copied())
    }

    /// Counts a transfer that has started, for the connections that carry it.
    pub(super) fn note_started(&mut self, id: TransferId) {
        let count = |connection: u32| self.connections[connection as usize].look.transfers += 1;
        match self.of_transfer[id.0 as usize] {
            NONE | WORK => {}
            SPLIT => {
                let parts = self.splits.get(&id).into_iter().flat_map(|it| &it.parts);
                parts.map(|(connection, _)| *connection).for_each(count);
            }
            connection => [connection].into_iter().for_each(count),
        }
    }

    /// Whether the connections of a transfer are there, if it needs any.
    pub(super) fn is_prepared(&self, id: TransferId) -> bool {
        self.of_transfer[id.0 as usize] != NONE
    }

    /// Work needs no connections.
    pub(super) fn prepare_work(&mut self, id: TransferId) {
        self.of_transfer[id.0 as usize] = WORK;
    }

    /// Has connections carry a transfer, with the bytes of each.
    pub(super) fn assign(&mut self, id: TransferId, parts: Vec<(u32, u32)>) {
        self.of_transfer[id.0 as usize] = match parts[..] {
            [(connection, _)] => connection,
            _ => SPLIT,
        };
        if parts.len() > 1 {
            let count = parts.len() as u16;
            let split = Split {
                parts,
                undelivered: AtomicU16::new(count),
                unacknowledged: count,
            };
            self.splits.insert(id, split);
        }
    }
}

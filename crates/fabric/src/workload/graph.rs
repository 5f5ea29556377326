//! A workload in the form in which it runs.

use super::{Transfer, TransferId, Workload};

/// A workload that was [checked](Workload::check), as a graph: the transfers, and which of them wait for each. It
/// takes half the memory that pairs of transfers would.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct TransferGraph {
    /// All transfers.
    pub transfers: Vec<Transfer>,
    /// The transfers that wait for each.
    pub dependents: Dependents,
    /// The names of the jobs.
    pub jobs: Vec<String>,
}

impl TransferGraph {
    /// For how many others each transfer waits.
    #[must_use]
    pub fn waits(&self) -> Vec<u32> {
        let mut waits = vec![0; self.transfers.len()];
        for waiter in self.dependents.all() {
            waits[waiter.0 as usize] += 1;
        }
        waits
    }
}

impl From<Workload> for TransferGraph {
    fn from(workload: Workload) -> Self {
        Self {
            dependents: Dependents::of(&workload),
            transfers: workload.transfers,
            jobs: workload.jobs,
        }
    }
}

/// Which transfers wait for each transfer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Dependents {
    /// Where those of each transfer begin, and where the last ones end.
    first: Vec<u32>,
    after: Vec<TransferId>,
}

impl Dependents {
    /// Those of a workload all whose edges are between transfers that exist, in the order of the
    /// edges.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        let mut first = vec![0_u32; workload.transfers.len() + 1];
        for (before, _) in &workload.edges {
            first[before.0 as usize + 1] += 1;
        }
        for transfer in 1..first.len() {
            first[transfer] += first[transfer - 1];
        }
        let mut next = first.clone();
        let mut after = vec![TransferId(0); workload.edges.len()];
        for (before, it) in &workload.edges {
            let place = &mut next[before.0 as usize];
            after[*place as usize] = *it;
            *place += 1;
        }
        Self { first, after }
    }

    /// Those that wait for this one.
    #[inline]
    #[must_use]
    pub fn at(&self, transfer: TransferId) -> &[TransferId] {
        let at = transfer.0 as usize;
        &self.after[self.first[at] as usize..self.first[at + 1] as usize]
    }

    /// All that wait for any other, once for each that they wait for.
    #[must_use]
    pub fn all(&self) -> &[TransferId] {
        &self.after
    }
}

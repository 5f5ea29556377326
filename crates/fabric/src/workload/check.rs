//! Checks whether a topology can run a workload.

use ferroce_base::time::{Span, Time};

use super::graph::Dependents;
use super::{
    EDGES_MAX, JOBS_MAX, TRANSFER_BYTES_MAX, TRANSFERS_MAX, Transfer, TransferId, Workload,
    WorkloadError,
};
use crate::topology::Topology;

impl Workload {
    /// Says what is wrong first, if the hosts of a topology cannot run it.
    ///
    /// Hosts and jobs exist, no host sends to itself, bytes and times are as [`Transfer`] says, and no
    /// transfers wait for each other.
    pub fn check(&self, topology: &Topology) -> Result<(), WorkloadError> {
        let (transfers, edges) = (self.transfers.len() as u128, self.edges.len() as u128);
        if transfers > TRANSFERS_MAX.into() {
            return Err(WorkloadError::Transfers { transfers });
        }
        if edges > EDGES_MAX.into() {
            return Err(WorkloadError::Edges { edges });
        }
        let jobs = self.jobs.len();
        if jobs > JOBS_MAX as usize {
            return Err(WorkloadError::Jobs { jobs });
        }
        for (at, transfer) in self.transfers.iter().enumerate() {
            self.check_transfer(at, transfer, topology)?;
        }
        self.check_edges()
    }

    fn check_transfer(
        &self,
        at: usize,
        it: &Transfer,
        topology: &Topology,
    ) -> Result<(), WorkloadError> {
        let transfer = at;
        for host in [it.src, it.dst] {
            if host >= topology.hosts {
                let last = topology.hosts.saturating_sub(1);
                return Err(WorkloadError::NoHost {
                    transfer,
                    host,
                    last,
                });
            }
        }
        if it.src == it.dst && !it.is_work() {
            let host = it.src;
            return Err(WorkloadError::Itself { transfer, host });
        }
        let bytes = it.bytes;
        if !it.is_work() && !(1..=TRANSFER_BYTES_MAX).contains(&bytes) {
            return Err(WorkloadError::Bytes { transfer, bytes });
        }
        let field = match (it.at, it.think) {
            (Time::NEVER, _) => "start",
            (_, Span::NEVER) => "think time",
            _ if usize::from(it.job) < self.jobs.len() => return Ok(()),
            _ => {
                let (job, jobs) = (it.job, self.jobs.len());
                return Err(WorkloadError::NoJob {
                    transfer,
                    job,
                    jobs,
                });
            }
        };
        Err(WorkloadError::Never { transfer, field })
    }

    fn check_edges(&self) -> Result<(), WorkloadError> {
        let transfers = self.transfers.len();
        for (edge, &(before, after)) in self.edges.iter().enumerate() {
            if let Some(unknown) = [before, after]
                .into_iter()
                .find(|it| it.0 as usize >= transfers)
            {
                let transfer = unknown.0;
                return Err(WorkloadError::NoTransfer {
                    edge,
                    transfer,
                    transfers,
                });
            }
        }
        match self.cycle() {
            None => Ok(()),
            Some(transfers) => Err(WorkloadError::Cycle { transfers }),
        }
    }

    /// Transfers that wait for each other, each for the one before it, if there are any.
    fn cycle(&self) -> Option<Vec<u32>> {
        if self.edges.is_empty() {
            return None;
        }
        let mut waits = self.waits();
        let dependents = Dependents::of(self);
        let mut ready: Vec<u32> = (0..)
            .zip(&waits)
            .filter(|it| *it.1 == 0)
            .map(|it| it.0)
            .collect();
        while let Some(transfer) = ready.pop() {
            for after in dependents.at(TransferId(transfer)) {
                let left = &mut waits[after.0 as usize];
                *left -= 1;
                if *left == 0 {
                    ready.push(after.0);
                }
            }
        }
        // A transfer that still waits, waits for one that still waits: going back ends in a circle.
        let start = waits.iter().position(|left| *left > 0)? as u32;
        let mut waits_for = vec![u32::MAX; waits.len()];
        for (before, after) in &self.edges {
            if waits[before.0 as usize] > 0 {
                waits_for[after.0 as usize] = before.0;
            }
        }
        let mut seen = vec![false; waits.len()];
        let mut at = start;
        while !std::mem::replace(&mut seen[at as usize], true) {
            at = waits_for[at as usize];
        }
        let mut cycle = vec![at];
        let mut next = waits_for[at as usize];
        while next != at {
            cycle.push(next);
            next = waits_for[next as usize];
        }
        cycle.reverse();
        Some(cycle)
    }

    /// For how many others each transfer waits. All edges are between transfers that exist.
    #[must_use]
    pub fn waits(&self) -> Vec<u32> {
        let mut waits = vec![0; self.transfers.len()];
        for (_, after) in &self.edges {
            waits[after.0 as usize] += 1;
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use ferroce_dcqcn::Rate;

    use super::*;
    use crate::topology::CableSpec;
    use crate::workload::Collective;

    fn broken(change: impl FnOnce(&mut Workload)) -> String {
        let cable = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));
        let topology = Topology::star(4, cable).unwrap();
        let collective = Collective::new(vec![0, 1, 2, 3], 4_000);
        let mut workload = collective.ring_all_reduce().unwrap();
        assert_eq!(workload.check(&topology), Ok(()));
        change(&mut workload);
        workload.check(&topology).unwrap_err().to_string()
    }

    #[test]
    fn each_mistake_is_named() {
        assert_eq!(
            broken(|it| it.transfers[5].dst = 4),
            "transfer 5: unknown host 4: the topology has hosts 0 to 3"
        );
        assert_eq!(
            broken(|it| it.transfers[5].dst = it.transfers[5].src),
            "transfer 5: host 1 sends to itself; choose another sender or receiver"
        );
        assert_eq!(
            broken(|it| it.transfers[5].bytes = 0),
            "transfer 5: invalid bytes 0: must be 1 to 1073741824"
        );
        assert_eq!(
            broken(|it| it.transfers[5].bytes = TRANSFER_BYTES_MAX + 1),
            "transfer 5: invalid bytes 1073741825: must be 1 to 1073741824"
        );
        assert_eq!(
            broken(|it| it.transfers[5].at = Time::NEVER),
            "transfer 5: invalid start: must be less than 213 days"
        );
        assert_eq!(
            broken(|it| it.transfers[5].think = Span::NEVER),
            "transfer 5: invalid think time: must be less than 213 days"
        );
        assert_eq!(
            broken(|it| it.jobs.clear()),
            "transfer 0: unknown job 0: the workload has 0 jobs; name each job"
        );
        assert_eq!(
            broken(|it| it.edges[3].0 = TransferId(24)),
            "dependency 3: unknown transfer 24: the workload has 24 transfers"
        );
        assert_eq!(
            broken(|it| it.jobs = vec![String::new(); 65_537]),
            "the workload has 65537 jobs: must be at most 65536; merge fewer workloads"
        );
    }

    #[test]
    fn cycles_are_found() {
        let edge = |a, b| (TransferId(a), TransferId(b));
        assert_eq!(
            broken(|it| it.edges = vec![edge(7, 7)]),
            "transfers wait for each other: 7 -> 7; remove one of these dependencies"
        );
        // The circle, not the way to it.
        let cycle = broken(|it| {
            it.edges = [(9, 1), (1, 2), (2, 3), (3, 1), (2, 0)]
                .map(|(a, b)| edge(a, b))
                .to_vec()
        });
        assert!(
            cycle.contains(": 1 -> 2 -> 3 -> 1;")
                || cycle.contains(": 2 -> 3 -> 1 -> 2;")
                || cycle.contains(": 3 -> 1 -> 2 -> 3;"),
            "{cycle}"
        );
        let all = broken(|it| it.edges = (0..24).map(|at| edge(at, (at + 1) % 24)).collect());
        assert!(all.contains("(16 more)"), "{all}");
    }
}

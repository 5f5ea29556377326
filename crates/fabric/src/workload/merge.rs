//! Combines several workloads.

use super::plan::reserve;
use super::{JOBS_MAX, Transfer, TransferId, Workload, WorkloadError};

impl Workload {
    /// All of these at the same time, their jobs and transfers numbered one after the other.
    pub fn merge(parts: impl IntoIterator<Item = Self>) -> Result<Self, WorkloadError> {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            all.append(part)?;
        }
        Ok(all)
    }

    fn append(&mut self, part: Self) -> Result<(), WorkloadError> {
        reserve(self, part.transfers.len() as u128, part.edges.len() as u128)?;
        let jobs = self.jobs.len() + part.jobs.len();
        if jobs > JOBS_MAX as usize {
            return Err(WorkloadError::Jobs { jobs });
        }
        // A number that is wrong by itself must not become that of another part.
        if let Some(transfer) = part
            .transfers
            .iter()
            .position(|it| usize::from(it.job) >= part.jobs.len())
        {
            let (job, jobs) = (part.transfers[transfer].job, part.jobs.len());
            return Err(WorkloadError::NoJob {
                transfer,
                job,
                jobs,
            });
        }
        let transfers = part.transfers.len();
        let ends = part.edges.iter().map(|(a, b)| a.0.max(b.0));
        if let Some((edge, transfer)) = ends.enumerate().find(|it| it.1 as usize >= transfers) {
            return Err(WorkloadError::NoTransfer {
                edge,
                transfer,
                transfers,
            });
        }
        let first = self.transfers.len() as u32;
        let first_job = self.jobs.len();
        let moved = |TransferId(at)| TransferId(first + at);
        self.jobs.extend(part.jobs);
        self.transfers
            .extend(part.transfers.into_iter().map(|it| Transfer {
                job: (first_job + usize::from(it.job)) as u16,
                ..it
            }));
        let edges = part.edges.into_iter();
        self.edges.extend(edges.map(|(a, b)| (moved(a), moved(b))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Time;

    use super::*;
    use crate::workload::{Collective, incast};

    #[test]
    fn parts_stay_as_they_were() {
        let ring = Collective::new(vec![0, 1, 2], 300)
            .ring_all_reduce()
            .unwrap();
        let incast = incast(&[1, 2], 0, 7, Time::from_nanos(5)).unwrap();
        let all = Workload::merge([incast.clone(), ring.clone(), ring.clone()]).unwrap();
        assert_eq!(all.jobs, ["incast", "ring all-reduce", "ring all-reduce"]);
        assert_eq!(all.transfers[..2], incast.transfers);
        assert_eq!(all.transfers[14].job, 2);
        assert_eq!(all.bytes(), incast.bytes() + 2 * ring.bytes());
        let moved = |edge: &(TransferId, TransferId)| (edge.0.0 - 14, edge.1.0 - 14);
        let edges = |it: &[(TransferId, TransferId)]| it.iter().map(moved).collect::<Vec<_>>();
        let last = edges(&all.edges[ring.edges.len()..]);
        let expected: Vec<_> = ring.edges.iter().map(|edge| (edge.0.0, edge.1.0)).collect();
        assert_eq!(last, expected);
        assert_eq!(Workload::merge([]).unwrap(), Workload::default());
    }
}

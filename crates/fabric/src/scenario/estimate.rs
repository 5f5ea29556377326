//! Estimates the amount of work of a run.

use std::collections::VecDeque;

use super::Scenario;
use crate::topology::NodeId;

/// An estimate of the work of a run, of the right order if little is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Frames crossing a cable.
    pub hops: u64,
    /// Memory, bytes.
    pub memory: u64,
    /// Size of the results directory, bytes.
    pub results: u64,
}

/// A host with its device, and a queue pair at each end of a connection.
const HOST_BYTES: u64 = 8 << 10;
/// A transfer with its outcome, its dependencies and its connection.
const TRANSFER_BYTES: u64 = 160;
/// Its rows in tables: flows as CSV, as Parquet and as HPCC has them, and a queue pair.
const FLOW_BYTES: u64 = 250;
/// A sample in memory.
const SAMPLE_BYTES: u64 = 32;
/// Its rows as CSV and as Parquet.
const SAMPLE_ROW_BYTES: u64 = 56;

impl Scenario {
    /// Estimates the work of a run.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let mtu = u64::from(self.device.mtu.bytes());
        let transfers = self.workload.transfers.len() as u64;
        let packets = |it: &crate::Transfer| u64::from(it.bytes).div_ceil(mtu) + 1;
        let packets: u64 = self.workload.transfers.iter().map(packets).sum();
        let kinds = u64::from(self.recording.queues)
            + u64::from(self.recording.links)
            + u64::from(self.recording.rates);
        let samples = kinds * self.samples_at_most();
        Estimate {
            hops: packets.saturating_mul(self.longest_path()),
            memory: u64::from(self.topology.nodes()) * HOST_BYTES
                + transfers * TRANSFER_BYTES
                + samples * SAMPLE_BYTES,
            results: transfers * FLOW_BYTES + samples * SAMPLE_ROW_BYTES,
        }
    }

    /// Samples of one kind, if all cables are busy all the time.
    fn samples_at_most(&self) -> u64 {
        let looks = self.duration.as_nanos() / self.recording.every.as_nanos().max(1);
        let each = looks.saturating_mul(2 * self.topology.cables.len() as u64);
        each.min(self.recording.samples_max as u64)
    }

    /// Cables between the first host and the one that is furthest from it.
    fn longest_path(&self) -> u64 {
        let topology = &self.topology;
        let mut neighbours = vec![Vec::new(); topology.nodes() as usize];
        for cable in &topology.cables {
            let [a, b] = cable.ends.map(|node| node.0);
            neighbours[a as usize].push(b);
            neighbours[b as usize].push(a);
        }
        let mut distances = vec![u64::MAX; topology.nodes() as usize];
        let mut next = VecDeque::from([0]);
        distances[0] = 0;
        let mut longest = 1;
        while let Some(node) = next.pop_front() {
            let distance = distances[node as usize];
            if topology.is_host(NodeId(node)) {
                longest = longest.max(distance);
            }
            for &other in &neighbours[node as usize] {
                if distances[other as usize] == u64::MAX {
                    distances[other as usize] = distance + 1;
                    next.push_back(other);
                }
            }
        }
        longest
    }
}

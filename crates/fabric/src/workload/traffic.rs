//! What the jobs of a workload send from host to host.

use std::collections::HashMap;

use ferroce_device::Mtu;

use super::TransferGraph;

/// What a job sends from one host to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// The sending host.
    pub src: u32,
    /// The receiving host.
    pub dst: u32,
    /// The job, by its index in [`TransferGraph::jobs`].
    pub job: u16,
    /// The number of messages.
    pub messages: u64,
    /// The number of their packets.
    pub packets: u64,
}

impl TransferGraph {
    /// Returns what jobs send in packets of this path MTU, ordered by sending host, receiving host and job.
    #[must_use]
    pub fn traffic(&self, mtu: Mtu) -> Vec<Traffic> {
        let mut sums: HashMap<(u32, u32, u16), (u64, u64)> = HashMap::new();
        for it in self.transfers.iter().filter(|it| !it.is_work()) {
            let (messages, packets) = sums.entry((it.src, it.dst, it.job)).or_default();
            *messages += 1;
            *packets += u64::from(it.bytes.div_ceil(mtu.bytes()));
        }
        let traffic = |((src, dst, job), (messages, packets))| Traffic {
            src,
            dst,
            job,
            messages,
            packets,
        };
        let mut all: Vec<_> = sums.into_iter().map(traffic).collect();
        all.sort_unstable_by_key(|it| (it.src, it.dst, it.job));
        all
    }
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::{Span, Time};

    use super::*;
    use crate::workload::{Transfer, Workload};

    #[test]
    fn messages_between_hosts_add_up_and_work_does_not_count() {
        let transfer = |src, dst, bytes, job| Transfer {
            src,
            dst,
            bytes,
            at: Time::ZERO,
            think: Span::ZERO,
            job,
        };
        let workload = Workload {
            transfers: vec![
                transfer(1, 0, 1, 1),
                transfer(0, 1, 4096, 0),
                transfer(1, 0, 4097, 0),
                transfer(2, 2, 0, 0),
                transfer(0, 1, 8193, 0),
            ],
            edges: Vec::new(),
            jobs: vec!["first".into(), "second".into()],
        };
        let traffic = TransferGraph::from(workload).traffic(Mtu::Mtu4096);
        let rows = traffic
            .iter()
            .map(|it| (it.src, it.dst, it.job, it.messages, it.packets));
        let expected = [(0, 1, 0, 2, 4), (1, 0, 0, 1, 2), (1, 0, 1, 1, 1)];
        assert!(rows.eq(expected), "{traffic:?}");
    }
}

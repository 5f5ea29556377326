//! Estimates the amount of work of a run.
//!
//! `tests/memory.rs` compares the estimate of memory with runs, from which its constants are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_base::time::{Span, Time};
use ferroce_fabric::Transfer;
use ferroce_fabric::ideal::jobs::{Paths, busiest_host};
use ferroce_fabric::workload::Traffic;

use super::Scenario;

/// An estimate of the work of a run, of the right order if little is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Frames crossing a cable.
    pub hops: u64,
    /// What one thread takes on the machine of `docs/benchmarks.md`.
    pub time: Span,
    /// The most memory that is used at a time, bytes. A results directory takes up to its size more while it is
    /// written.
    pub memory: u64,
    /// Size of the results directory, bytes.
    pub results: u64,
}

/// What a frame that crosses a cable takes in a small fabric, nanoseconds.
const HOP_NS: f64 = 135.0;
/// The same for each host, whose memory the processor's caches do not hold.
const HOP_OF_HOST_NS: f64 = 0.105;
/// What a transfer takes besides, from its file to its result.
const TRANSFER_NS: f64 = 1_700.0;

/// A host with its device.
const HOST_BYTES: u64 = 3 << 10;
/// A cable with the two ports behind it.
const CABLE_BYTES: u64 = 3 << 10;
/// A frame that waits in a switch, with its packet.
const FRAME_BYTES: u64 = 300;
/// A queue pair at each end of a connection, with their queues.
const QP_PAIR_BYTES: u64 = 2_700;
/// A connection, with queue pairs or without.
const CONNECTION_BYTES: u64 = 250;
/// A transfer with its outcome, and what finds the longest chain of transfers.
const TRANSFER_BYTES: u64 = 84;
/// The same if it waits for its time and not for others.
const FIRST_TRANSFER_BYTES: u64 = 200;
/// One transfer waiting for another.
const EDGE_BYTES: u64 = 4;
/// A transfer and a wait while the workload is checked, when there is nothing else yet.
const CHECKED_BYTES: (u64, u64) = (48, 12);
/// The rows of a transfer in tables: flows as CSV, as Parquet and as HPCC has them, and a queue pair with its path.
const FLOW_BYTES: u64 = 350;
/// A sample in memory.
const SAMPLE_BYTES: u64 = 48;
/// Its rows as CSV and as Parquet.
const SAMPLE_ROW_BYTES: u64 = 56;

impl Scenario {
    /// Estimates the work of a run.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let traffic = self.workload.traffic(self.device.mtu);
        let transfers = traffic.iter().map(|it| it.messages).sum();
        let packets = traffic.iter().map(packets).sum();
        let hops = self.hops(&traffic);
        let kinds = u64::from(self.recording.queues)
            + u64::from(self.recording.links)
            + u64::from(self.recording.rates)
            + u64::from(self.recording.goodput);
        let samples = kinds * self.samples_within(self.duration);
        Estimate {
            hops,
            time: self.time(hops, transfers),
            memory: self.memory(&traffic, packets, hops, kinds),
            results: transfers * FLOW_BYTES + samples * SAMPLE_ROW_BYTES,
        }
    }

    /// Cables that the packets cross.
    fn hops(&self, traffic: &[Traffic]) -> u64 {
        let mut paths = Paths::new(&self.topology, self.device.mtu, self.switch.latency);
        let hops = traffic.iter().map(|it| {
            let cables = u64::from(paths.cables(it.src, it.dst));
            packets(it).saturating_mul(cables)
        });
        hops.fold(0, u64::saturating_add)
    }

    fn time(&self, hops: u64, transfers: u64) -> Span {
        let hop = HOP_NS + HOP_OF_HOST_NS * f64::from(self.topology.hosts);
        Span::from_nanos((hops as f64 * hop + transfers as f64 * TRANSFER_NS) as u64)
    }

    /// The most memory that is used at a time, by the number of packets, of cables that they cross, and of kinds of
    /// samples that are recorded.
    fn memory(&self, traffic: &[Traffic], packets: u64, hops: u64, kinds: u64) -> u64 {
        let waits = self.workload.waits();
        let first = waits.iter().filter(|waits| **waits == 0).count() as u64;
        let others = waits.len() as u64 - first;
        let edges = self.workload.dependents.all().len() as u64;
        let (connections, connected) = self.connections(traffic, &waits);
        let arrivals = self.workload.transfers.iter().map(|it| it.at).max();
        let arrivals = arrivals.unwrap_or(Time::ZERO).since(Time::ZERO);
        let busy = busiest_host(&self.workload, &self.topology).max(arrivals);
        let samples = self.samples_within(busy.min(self.duration));
        // Frames wait where most paths meet, and seldom in all switches at a time.
        let buffer = match self.topology.switches() {
            0 => 0,
            _ => self.switch.buffer_bytes / self.longest_frame(),
        };
        let running = u64::from(self.topology.hosts) * HOST_BYTES
            + self.topology.cables.len() as u64 * CABLE_BYTES
            + packets.min(buffer) * FRAME_BYTES
            + connections * CONNECTION_BYTES
            + connected * QP_PAIR_BYTES
            + first * FIRST_TRANSFER_BYTES
            + others * TRANSFER_BYTES
            + edges * EDGE_BYTES
            + kinds * samples.min(hops) * SAMPLE_BYTES;
        let (transfer, edge) = CHECKED_BYTES;
        running.max(waits.len() as u64 * transfer + edges * edge)
    }

    /// Connections of all jobs, and the most that have queue pairs at a time.
    fn connections(&self, traffic: &[Traffic], waits: &[u32]) -> (u64, u64) {
        let links = if self.topology.pairing.is_some() {
            2
        } else {
            1
        };
        let (mut shared, mut own) = (0, 0);
        for it in traffic {
            let job = &self.jobs[usize::from(it.job)];
            // Transfers take turns with links and queue pairs, or are split over them.
            let lanes = links * u64::from(job.qps_per_connection);
            match (job.qp_per_transfer, job.split_data) {
                (true, _) => own += it.messages,
                (false, true) => shared += lanes,
                (false, false) => shared += lanes.min(it.messages),
            }
        }
        let own_first = if own > 0 {
            self.own_first(waits)
        } else {
            Vec::new()
        };
        (shared + own, shared + self.at_a_time(own_first))
    }

    /// The transfers with a queue pair of their own that wait for no others.
    fn own_first(&self, waits: &[u32]) -> Vec<&Transfer> {
        let transfers = self.workload.transfers.iter().zip(waits);
        let own = |it: &Transfer| !it.is_work() && self.jobs[usize::from(it.job)].qp_per_transfer;
        transfers
            .filter(|(it, waits)| **waits == 0 && own(it))
            .map(|(it, _)| it)
            .collect()
    }

    /// The most of these transfers that are under way at a time, if hosts share their rates equally among what
    /// they send, or among what they take.
    fn at_a_time(&self, mut transfers: Vec<&Transfer>) -> u64 {
        transfers.sort_by_key(|it| it.at);
        let paths = Paths::new(&self.topology, self.device.mtu, self.switch.latency);
        let at_hosts = |host: fn(&Transfer) -> u32| {
            let mut ports = vec![SharedPort::default(); self.topology.hosts as usize];
            let mut changes = Vec::with_capacity(2 * transfers.len());
            for it in &transfers {
                let port = &mut ports[host(it) as usize];
                port.advance(it.at, |at| changes.push((at, -1)));
                port.begin(paths.busy(host(it), it.bytes));
                changes.push((it.at, 1));
            }
            for port in &mut ports {
                port.advance(Time::NEVER, |at| changes.push((at, -1)));
            }
            changes.sort_unstable();
            let mut under_way = 0_i64;
            let counts = changes.into_iter().map(|(_, change)| {
                under_way += change;
                under_way
            });
            counts.max().unwrap_or(0).unsigned_abs()
        };
        at_hosts(|it| it.src).max(at_hosts(|it| it.dst))
    }

    /// Samples of one kind, if all cables are busy for this long.
    fn samples_within(&self, busy: Span) -> u64 {
        let looks = busy.as_nanos() / self.recording.every.as_nanos().max(1);
        let each = looks.saturating_mul(2 * self.topology.cables.len() as u64);
        each.min(self.recording.samples_max as u64)
    }
}

/// The packets of messages, and one that acknowledges each.
fn packets(traffic: &Traffic) -> u64 {
    traffic.packets + traffic.messages
}

/// A port that transfers share equally.
#[derive(Clone, Default)]
struct SharedPort {
    now: Time,
    /// What each transfer has had of the port, if it has always been there.
    served: Span,
    /// That at the end of each.
    ends: BinaryHeap<Reverse<Span>>,
}

impl SharedPort {
    /// Begins a transfer that would take this long alone.
    fn begin(&mut self, takes: Span) {
        self.ends.push(Reverse(self.served + takes));
    }

    /// Serves the transfers until then; `tell` is called with the end of each that is over.
    fn advance(&mut self, to: Time, mut tell: impl FnMut(Time)) {
        while let Some(&Reverse(end)) = self.ends.peek() {
            let sharing = self.ends.len() as u64;
            let at = self.now.after((end - self.served) * sharing);
            if at > to {
                self.served += to.since(self.now) / sharing;
                break;
            }
            self.ends.pop();
            (self.now, self.served) = (at, end);
            tell(at);
        }
        self.now = to;
    }
}

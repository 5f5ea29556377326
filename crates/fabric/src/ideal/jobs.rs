//! Minimum durations: alone in the fabric, or on the busiest port.

use std::collections::{HashMap, VecDeque};

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;
use ferroce_device::Mtu;

use crate::sizes;
use crate::topology::{NodeId, Topology};
use crate::workload::{TransferGraph, TransferId};

/// The shortest paths of a topology, found as they are asked for, and how long messages take on them. Hosts
/// that the topology does not have cause a panic.
#[derive(Debug)]
pub struct Paths<'a> {
    topology: &'a Topology,
    mtu: u32,
    /// Of each switch.
    latency: Span,
    /// The cables of each node, and the nodes at their other ends.
    neighbours: Vec<Vec<(usize, u32)>>,
    /// Cables of the path between two hosts.
    known: HashMap<(u32, u32), Path>,
    /// From which host, and by which cable each node is reached from there.
    tree: (u32, Vec<Option<(usize, u32)>>),
}

/// What counts of a path.
#[derive(Clone, Copy, Default, Debug)]
struct Path {
    cables: u32,
    /// Delays of its cables, latencies of its switches.
    delay: Span,
    /// Of its slowest cable.
    slowest: Rate,
    /// What the first packet of a message takes to be sent by each but the slowest, per byte.
    others_ps_per_byte: f64,
}

impl<'a> Paths<'a> {
    /// Creates the paths of a topology without knowing any; `latency` is that of each switch.
    #[must_use]
    pub fn new(topology: &'a Topology, mtu: Mtu, latency: Span) -> Self {
        let mut neighbours = vec![Vec::new(); topology.nodes() as usize];
        for (cable, it) in topology.cables.iter().enumerate() {
            let [a, b] = it.ends;
            neighbours[a.0 as usize].push((cable, b.0));
            neighbours[b.0 as usize].push((cable, a.0));
        }
        Self {
            topology,
            mtu: mtu.bytes(),
            latency,
            neighbours,
            known: HashMap::new(),
            tree: (u32::MAX, Vec::new()),
        }
    }

    /// Returns how long a message takes from the first bit that leaves to the last that arrives.
    pub fn one_way(&mut self, src: u32, dst: u32, bytes: u32) -> Span {
        let path = self.path(src, dst);
        let first = sizes::first_packet(bytes, self.mtu);
        let others = (path.others_ps_per_byte * f64::from(first)) as u64;
        let all = path.slowest.transmission(sizes::message(bytes, self.mtu));
        path.delay + all + Span::from_picos(others)
    }

    /// Returns how long a message takes until its acknowledgement is back.
    pub fn round_trip(&mut self, src: u32, dst: u32, bytes: u32) -> Span {
        let path = self.path(dst, src);
        let ack = path.slowest.transmission(sizes::ACK)
            + Span::from_picos((path.others_ps_per_byte * f64::from(sizes::ACK)) as u64);
        self.one_way(src, dst, bytes) + path.delay + ack
    }

    /// Returns how many cables a packet crosses; 0 if it cannot arrive.
    pub fn cables(&mut self, src: u32, dst: u32) -> u32 {
        self.path(src, dst).cables
    }

    /// Returns how long all ports of a host together are busy with a message.
    #[must_use]
    pub fn busy(&self, host: u32, bytes: u32) -> Span {
        let cables = self.neighbours[host as usize].iter();
        let bps = cables.map(|(cable, _)| self.topology.cables[*cable].rate.bps());
        match bps.sum() {
            0 => Span::ZERO,
            bps => Rate::from_bps(bps).transmission(sizes::message(bytes, self.mtu)),
        }
    }

    fn path(&mut self, src: u32, dst: u32) -> Path {
        if let Some(path) = self.known.get(&(src, dst)) {
            return *path;
        }
        if self.tree.0 != src {
            self.tree = (src, self.tree_from(src));
        }
        let mut path = Path::default();
        let mut at = dst;
        let mut rates = Vec::new();
        while let Some((cable, before)) = self.tree.1[at as usize] {
            let cable = &self.topology.cables[cable];
            path.cables += 1;
            path.delay += cable.delay;
            rates.push(cable.rate);
            at = before;
        }
        path.delay += self.latency * (rates.len() as u64).saturating_sub(1);
        rates.sort();
        path.slowest = rates.first().copied().unwrap_or_default();
        let picos = |rate: &Rate| 8e12 / rate.bps() as f64;
        path.others_ps_per_byte = rates.iter().skip(1).map(picos).sum();
        self.known.insert((src, dst), path);
        path
    }

    /// By which cable and from which node every node is reached first.
    fn tree_from(&self, src: u32) -> Vec<Option<(usize, u32)>> {
        let mut tree = vec![None; self.neighbours.len()];
        let mut next = VecDeque::from([src]);
        while let Some(node) = next.pop_front() {
            if node != src && self.topology.is_host(NodeId(node)) {
                continue;
            }
            for &(cable, other) in &self.neighbours[node as usize] {
                if other != src && tree[other as usize].is_none() {
                    tree[other as usize] = Some((cable, node));
                    next.push_back(other);
                }
            }
        }
        tree
    }
}

/// Returns how long the host that has most to send and to take needs at least, if all cables have the highest rate.
pub fn busiest_host(workload: &TransferGraph, topology: &Topology) -> Span {
    let mut bytes = vec![0_u64; topology.hosts as usize];
    for it in &workload.transfers {
        bytes[it.src as usize] += u64::from(it.bytes);
        bytes[it.dst as usize] += u64::from(it.bytes);
    }
    let most = bytes.into_iter().max().unwrap_or(0);
    let rate = topology.cables.iter().map(|it| it.rate.bps()).max();
    let nanos = u128::from(most) * 8_000_000_000 / u128::from(rate.unwrap_or(1).max(1));
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 1_000))
}

/// The shortest that a job can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdealJob {
    /// When its first transfer begins.
    pub began: Time,
    /// The longest chain of transfers that wait for each other, or what its busiest port has to send or
    /// take, whichever is longer.
    pub takes: Span,
}

/// Returns the shortest that each job can take, in their order.
pub fn of_jobs(workload: &TransferGraph, paths: &mut Paths<'_>) -> Vec<IdealJob> {
    let mut jobs = longest_chains(workload, paths);
    for (job, busy) in jobs.iter_mut().zip(busiest_ports(workload, paths)) {
        job.takes = job.takes.max(busy);
    }
    jobs
}

fn longest_chains(workload: &TransferGraph, paths: &mut Paths<'_>) -> Vec<IdealJob> {
    let transfers = &workload.transfers;
    let mut waits = workload.waits();
    let mut began = vec![Time::NEVER; workload.jobs.len()];
    let mut ended = vec![Time::ZERO; workload.jobs.len()];
    // When the last of those that each waits for was delivered; `NEVER` if none was.
    let mut released = vec![Time::NEVER; transfers.len()];
    let mut next: VecDeque<u32> = (0..transfers.len() as u32)
        .filter(|it| waits[*it as usize] == 0)
        .collect();
    while let Some(at) = next.pop_front() {
        let it = &transfers[at as usize];
        let released_at = Some(released[at as usize]).filter(|at| *at != Time::NEVER);
        let due = it.due(released_at);
        let (start, end) = match it.is_work() {
            true => (due.before(it.think), due),
            false => (due, due.after(paths.one_way(it.src, it.dst, it.bytes))),
        };
        let job = usize::from(it.job);
        began[job] = began[job].min(start);
        ended[job] = ended[job].max(end);
        for waiter in workload.dependents.at(TransferId(at)) {
            let waiter = waiter.0 as usize;
            released[waiter] = match released[waiter] {
                Time::NEVER => end,
                other => other.max(end),
            };
            waits[waiter] -= 1;
            if waits[waiter] == 0 {
                next.push_back(waiter as u32);
            }
        }
    }
    let jobs = began.into_iter().zip(ended);
    jobs.map(|(began, ended)| IdealJob {
        began,
        takes: ended.since(began),
    })
    .collect()
}

fn busiest_ports(workload: &TransferGraph, paths: &Paths<'_>) -> Vec<Span> {
    let mut busy: HashMap<(u16, u32, bool), Span> = HashMap::new();
    for it in workload.transfers.iter().filter(|it| !it.is_work()) {
        for (host, sends) in [(it.src, true), (it.dst, false)] {
            let span = busy.entry((it.job, host, sends)).or_insert(Span::ZERO);
            *span += paths.busy(host, it.bytes);
        }
    }
    let mut busiest = vec![Span::ZERO; workload.jobs.len()];
    for ((job, ..), span) in busy {
        let busiest = &mut busiest[usize::from(job)];
        *busiest = (*busiest).max(span);
    }
    busiest
}

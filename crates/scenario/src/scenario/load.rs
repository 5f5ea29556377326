//! The load of cables by messages that arrive over time, whether or not those before them are delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use ferroce_base::time::Span;
use ferroce_dcqcn::Rate;
use ferroce_fabric::topology::{Port, Ports};
use ferroce_fabric::{Transfer, sizes};

use super::Scenario;
use crate::results::line_name;

/// Fewer messages on a cable are a burst and not a load.
const MESSAGES_MIN: f64 = 30.0;

/// The most that one direction of a cable is given to carry, relative to its rate.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Load {
    /// The cable, and the end that it is sent from.
    line: (usize, usize),
    /// Between the first message and the last.
    window: Span,
    /// Above 1, the cable carries less than what arrives in that time.
    share: f64,
    /// The job with most of the bytes of all cables.
    job: usize,
}

/// What is sent between two hosts, or over a cable.
#[derive(Clone, Copy, Default)]
struct Demand {
    messages: f64,
    bytes: f64,
}

/// Messages between random hosts: what a run draws of them says little about a host of thousands.
#[derive(Default)]
struct Random {
    hosts: BTreeSet<u32>,
    all: Demand,
}

impl Random {
    /// What each host sends to each other one on average.
    fn pair(&self) -> Demand {
        let hosts = self.hosts.len();
        self.all.split(hosts * hosts.saturating_sub(1).max(1))
    }
}

impl Demand {
    fn of(transfer: &Transfer, mtu: u32) -> Self {
        Self {
            messages: 1.0,
            bytes: sizes::message(transfer.bytes, mtu).into(),
        }
    }

    /// One of `parts` equal parts.
    fn split(self, parts: usize) -> Self {
        Self {
            messages: self.messages / parts as f64,
            bytes: self.bytes / parts as f64,
        }
    }
}

impl AddAssign for Demand {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

impl Scenario {
    /// Says that messages arrive faster than a cable carries them.
    pub(super) fn check_load(&self, say: &mut dyn FnMut(&str, String)) {
        let Some(load) = self.highest_load().filter(|load| load.share > 1.0) else {
            return;
        };
        let (cable, end) = load.line;
        let rate = self.topology.cables[cable].rate;
        let key = format!("job[{}].load", load.job);
        let remedy = match self.is_random(load.job) {
            true => {
                let factor = (100.0 / load.share).floor() / 100.0;
                format!("multiply load by {factor:.2} or less")
            }
            false => {
                let longer = Span::from_picos((load.window.as_picos() as f64 * load.share) as u64);
                format!("let them arrive in {} or more", longer.at_most())
            }
        };
        let text = format!(
            "messages arrive faster than {} carries them at {rate}: those of {} take {:.2} times as long, and \
             queues grow until the last; {remedy}",
            line_name(&self.topology, cable, end),
            load.window.about(),
            load.share
        );
        say(&key, text);
    }

    /// The highest load of a cable, if hosts are on one path, or share several equally.
    fn highest_load(&self) -> Option<Load> {
        let arrivals = self.arrivals();
        let first = arrivals.iter().map(|it| it.at).min()?;
        let last = arrivals.iter().map(|it| it.at).max()?;
        let window = last.since(first);
        // The last message has the time after the window.
        let arrivals: Vec<_> = arrivals.into_iter().filter(|it| it.at < last).collect();
        let loads = self.demands(&arrivals).into_iter().zip(0..);
        let loads = loads.filter(|(demand, _)| demand.messages >= MESSAGES_MIN);
        let share = |(demand, line): (Demand, usize)| {
            let rate = self.topology.cables[line / 2].rate;
            (demand.bytes / carried(rate, window), line)
        };
        let (share, line) = loads.map(share).max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Load {
            line: (line / 2, line % 2),
            window,
            share,
            job: self.largest_job(&arrivals),
        })
    }

    /// The transfers of jobs that arrive over time and wait for no others.
    fn arrivals(&self) -> Vec<&Transfer> {
        let jobs = self.workload.jobs.len();
        let (mut first, mut is_load) = (vec![None; jobs], vec![false; jobs]);
        for it in &self.workload.transfers {
            let job = usize::from(it.job);
            is_load[job] |= *first[job].get_or_insert(it.at) != it.at;
        }
        for after in self.workload.dependents.all() {
            let job = self.workload.transfers[after.0 as usize].job;
            is_load[usize::from(job)] = false;
        }
        let transfers = self.workload.transfers.iter();
        transfers
            .filter(|it| is_load[usize::from(it.job)])
            .collect()
    }

    /// What transfers add up to on both directions of each cable: at 2n that from the first end of cable n.
    fn demands(&self, transfers: &[&Transfer]) -> Vec<Demand> {
        let mtu = self.device.mtu.bytes();
        let is_random: Vec<_> = (0..self.jobs.len()).map(|it| self.is_random(it)).collect();
        let mut random: BTreeMap<u16, Random> = BTreeMap::new();
        let mut to: BTreeMap<u32, BTreeMap<u32, Demand>> = BTreeMap::new();
        for it in transfers {
            let demand = Demand::of(it, mtu);
            if is_random[usize::from(it.job)] {
                let of_job = random.entry(it.job).or_default();
                of_job.hosts.extend([it.src, it.dst]);
                of_job.all += demand;
                to.entry(it.dst).or_default();
            } else {
                *to.entry(it.dst).or_default().entry(it.src).or_default() += demand;
            }
        }
        let ports = Ports::of(&self.topology);
        let mut lines = vec![Demand::default(); 2 * self.topology.cables.len()];
        for (dst, senders) in to {
            let mut at = vec![Demand::default(); self.topology.nodes() as usize];
            for (src, demand) in senders {
                at[src as usize] += demand;
            }
            for job in random.values().filter(|job| job.hosts.contains(&dst)) {
                let pair = job.pair();
                job.hosts.iter().for_each(|src| at[*src as usize] += pair);
            }
            // From the furthest node on, each passes on what it has itself, and what came to it.
            let nodes = ports.nearest(&self.topology, dst);
            let mut distances = vec![u32::MAX; at.len()];
            for &(node, distance) in &nodes {
                distances[node.0 as usize] = distance;
            }
            for &(node, distance) in nodes.iter().rev() {
                let demand = at[node.0 as usize];
                if distance == 0 || demand.messages == 0.0 {
                    continue;
                }
                let closer = |port: &&Port| distances[port.peer.0 as usize] == distance - 1;
                let parts = ports.at(node).iter().filter(closer).count();
                for port in ports.at(node).iter().filter(closer) {
                    let part = demand.split(parts);
                    lines[2 * port.cable as usize + usize::from(port.end)] += part;
                    at[port.peer.0 as usize] += part;
                }
            }
        }
        lines
    }

    /// Whether hosts send each other messages at random.
    fn is_random(&self, job: usize) -> bool {
        self.lines.contains_key(&format!("job[{job}].load"))
    }

    fn largest_job(&self, transfers: &[&Transfer]) -> usize {
        let mut bytes = vec![0_u64; self.workload.jobs.len()];
        for it in transfers {
            bytes[usize::from(it.job)] += u64::from(it.bytes);
        }
        let jobs = bytes.iter().enumerate();
        jobs.max_by_key(|(_, bytes)| **bytes)
            .map_or(0, |(job, _)| job)
    }
}

/// Bytes that a cable carries in this time.
fn carried(rate: Rate, time: Span) -> f64 {
    rate.bps() as f64 / 8.0 * time.as_picos() as f64 / 1e12
}

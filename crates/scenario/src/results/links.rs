//! What each line carried while jobs ran, and whose bytes they were.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use ferroce_base::time::Time;
use ferroce_dcqcn::Rate;
use ferroce_fabric::{Fault, LineCounters, Simulation, Topology};
use serde::{Deserialize, Serialize};

use super::paths::PathsTaken;
use super::{QpRow, line_name};
use crate::scenario::Scenario;

/// Connections of which a line remembers how much they sent over it.
const TALKERS: usize = 3;
/// Links that a summary has.
const BUSIEST: usize = 5;

/// What one direction of a cable carried.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carried {
    /// Bytes that left, with all overhead.
    pub bytes: u64,
    /// The same as a share, 0 to 1, of what its rate allows from the first transfer to the end of the run.
    pub utilisation: f64,
    /// The same of the sampling interval in which it was largest; null if there was no whole one.
    pub peak: Option<f64>,
    /// The longest queue of one priority that waited for it, bytes; zero at a host.
    pub queue_max: u64,
    /// PFC frames that came from its other end.
    pub pauses: u64,
    /// Packets dropped because they found no room to wait for it.
    pub dropped: u64,
    /// Packets lost on it, or because it was down.
    pub lost: u64,
    /// Connections whose paths have it.
    pub connections: u32,
}

/// A line, and the connections that sent most over it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkRow {
    /// Its number: twice the cable's, plus one for the direction from its second end.
    pub line: u32,
    /// What it carried.
    pub carried: Carried,
    /// Those that sent most, as indexes into [`Results::qps`](super::Results::qps), the largest first.
    pub talkers: [Option<u32>; TALKERS],
}

/// A link that had little room for more.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BusyLink {
    /// One direction of a link, named like the port of `worst_queue`.
    pub link: String,
    /// What it carried.
    #[serde(flatten)]
    pub carried: Carried,
    /// The connections that sent most over it; three at most.
    pub talkers: Vec<Talker>,
}

/// A connection that sends over a link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Talker {
    /// The sending host.
    pub src: String,
    /// The receiving host.
    pub dst: String,
    /// The sender's queue pair.
    pub qpn: u32,
    /// Payload of its transfers that were acknowledged.
    pub bytes: u64,
}

/// The lines that have carried something or lost it.
pub(super) fn all(
    scenario: &Scenario,
    simulation: &Simulation,
    qps: &[QpRow],
    taken: &PathsTaken,
) -> Vec<LinkRow> {
    let fabric = &simulation.fabric;
    let began = simulation.player.job_outcomes.iter();
    let began = began.filter_map(|it| it.began).min();
    let during = began.unwrap_or(Time::ZERO)..simulation.now();
    let mut rates: HashMap<usize, Vec<(Time, Rate)>> = HashMap::new();
    for (at, fault) in &scenario.timeline {
        if let Fault::Rate(cable, rate) = fault {
            rates.entry(*cable).or_default().push((*at, *rate));
        }
    }
    let users = users(2 * scenario.topology.cables.len(), qps, taken);
    let rows = (0..).zip(users).map(|(line, users)| {
        let (cable, end) = (line as usize / 2, line as usize % 2);
        let rate = scenario.topology.cables[cable].rate;
        let changes = rates.get(&cable).map_or(&[][..], Vec::as_slice);
        let room = capacity(rate, changes, &during);
        let LineCounters {
            bytes,
            lost,
            dropped_down,
            flushed,
            ..
        } = fabric.line(cable, end);
        let carried = Carried {
            bytes,
            utilisation: four_digits(bytes as f64 / room.max(1.0)),
            peak: simulation.peak(line as usize).map(four_digits),
            queue_max: fabric.queue(cable, end).1,
            pauses: fabric.line(cable, 1 - end).pauses,
            dropped: fabric.dropped(cable, end),
            lost: lost + dropped_down + flushed,
            connections: users.count,
        };
        LinkRow {
            line,
            carried,
            talkers: users.most,
        }
    });
    rows.filter(|LinkRow { carried: it, .. }| it.bytes + it.lost + it.dropped > 0)
        .collect()
}

/// The bytes that can leave in a span of time at a rate that changes at these times.
fn capacity(rate: Rate, changes: &[(Time, Rate)], during: &Range<Time>) -> f64 {
    let mut changes = changes.to_vec();
    changes.sort_by_key(|(at, _)| *at);
    let (mut bytes, mut since, mut rate) = (0.0, during.start, rate);
    for (at, next) in changes.into_iter().chain([(during.end, rate)]) {
        let at = at.clamp(since, during.end);
        bytes += rate.bps() as f64 * at.since(since).as_picos() as f64 / 8e12;
        (since, rate) = (at, next);
    }
    bytes
}

fn four_digits(share: f64) -> f64 {
    (share * 1e4).round().min(1e4) / 1e4
}

/// The busiest links, the first of them first.
pub(super) fn busiest(topology: &Topology, links: &[LinkRow], qps: &[QpRow]) -> Vec<BusyLink> {
    let mut all: Vec<_> = links.iter().collect();
    let rank = |it: &LinkRow| (it.carried.utilisation, it.carried.bytes);
    all.sort_by(|a, b| {
        let ((a, a_bytes), (b, b_bytes)) = (rank(a), rank(b));
        b.total_cmp(&a).then(b_bytes.cmp(&a_bytes))
    });
    let name = |host: u32| topology.names[host as usize].clone();
    let talker = |qp: u32| {
        let it = &qps[qp as usize];
        Talker {
            src: name(it.host),
            dst: name(it.peer),
            qpn: it.qpn,
            bytes: it.bytes,
        }
    };
    let link = |it: &LinkRow| BusyLink {
        link: line_name(topology, it.line as usize / 2, it.line as usize % 2),
        carried: it.carried,
        talkers: it.talkers.into_iter().flatten().map(talker).collect(),
    };
    all.into_iter().take(BUSIEST).map(link).collect()
}

/// Who uses a line.
#[derive(Clone, Copy, Default)]
struct Users {
    count: u32,
    most: [Option<u32>; TALKERS],
}

fn users(lines: usize, qps: &[QpRow], taken: &PathsTaken) -> Vec<Users> {
    let mut users = vec![Users::default(); lines];
    for number in 0..qps.len() as u32 {
        for line in taken.lines(number as usize) {
            let it = &mut users[*line as usize];
            it.count += 1;
            // The one that sent least of those that are kept makes room.
            let bytes = |it: Option<u32>| it.map(|it| qps[it as usize].bytes);
            if bytes(it.most[TALKERS - 1]) < Some(qps[number as usize].bytes) {
                it.most[TALKERS - 1] = Some(number);
                it.most.sort_by_key(|it| Reverse(bytes(*it)));
            }
        }
    }
    users
}

//! What each line carried while jobs ran, and whose bytes they were.

use std::cmp::Reverse;

use ferroce_base::time::{Span, Time};
use serde::Serialize;

use super::paths::PathsTaken;
use super::{QpRow, line_name};
use crate::topology::Topology;
use crate::{LineCounters, Simulation};

/// Connections of which a line remembers how much they sent over it.
const TALKERS: usize = 3;
/// Links that a summary has.
const BUSIEST: usize = 5;

/// What one direction of a cable carried.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carried {
    /// Bytes that left, with all overhead.
    pub bytes: u64,
    /// The share of the time from the first transfer to the end of the run in which bytes left, 0 to 1.
    pub utilisation: f64,
    /// The same of the sampling interval in which most left; null if there was no whole one.
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

/// A link that was busy for a large share of the time.
#[derive(Clone, PartialEq, Debug, Serialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
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
pub(super) fn all(simulation: &Simulation, qps: &[QpRow], taken: &PathsTaken) -> Vec<LinkRow> {
    let fabric = &simulation.fabric;
    let topology = fabric.topology();
    let began = simulation
        .player
        .job_outcomes
        .iter()
        .filter_map(|it| it.began)
        .min();
    let busy = fabric.now().since(began.unwrap_or(Time::ZERO));
    let users = users(2 * topology.cables.len(), qps, taken);
    let rows = (0..).zip(users).map(|(line, users)| {
        let (cable, end) = (line as usize / 2, line as usize % 2);
        let share = |bytes: u64, span: Span| {
            let most = topology.cables[cable].rate.bps() as f64 * span.as_picos() as f64 / 8e12;
            (bytes as f64 / most.max(1.0) * 1e4).round().min(1e4) / 1e4
        };
        let LineCounters {
            bytes,
            lost,
            dropped_down,
            flushed,
            ..
        } = fabric.line(cable, end);
        let carried = Carried {
            bytes,
            utilisation: share(bytes, busy),
            peak: simulation
                .peak(line as usize)
                .map(|(bytes, every)| share(bytes, every)),
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

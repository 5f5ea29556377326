//! Collisions: connections of a job that share a line although other paths were free, and what that costs.

use ferroce_fabric::topology::{Port, Ports};
use ferroce_fabric::{NodeId, Routes, Simulation, TransferId, sizes};
use serde::{Deserialize, Serialize};

use super::line_name;
use super::paths::{PathsTaken, addresses};
use crate::scenario::Scenario;

/// How evenly switches spread the connections of a job over paths of equal cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// Connections of the job.
    pub connections: u32,
    /// Those that cross a link with more connections of the job than an even spread would put there.
    pub colliding: u32,
    /// The link that the job's messages keep busy longest, named like that of `worst_queue`.
    pub busiest: String,
    /// Connections of the job on that link. Those that switches sent another way later do not count.
    pub sharing: u32,
    /// How long these keep it busy at least; the job cannot take less.
    pub busy_ns: u64,
    /// The same of the busiest link if every switch spread the messages evenly over all shortest paths.
    pub even_ns: u64,
}

impl Spread {
    /// Returns whether collisions make the job longer than `ideal_ns`, its shortest time, by 5 % or more.
    #[must_use]
    pub fn matters(&self, ideal_ns: u64) -> bool {
        let otherwise = ideal_ns.max(self.even_ns);
        self.busy_ns as f64 > otherwise as f64 * 1.05
    }
}

/// The spread of each job; `None` where the paths of a connection are not known.
pub(super) fn of_jobs(
    scenario: &Scenario,
    simulation: &Simulation,
    taken: &PathsTaken,
) -> Vec<Option<Spread>> {
    let topology = &scenario.topology;
    let connections = connections(scenario, simulation, taken);
    let mut fabric = Even {
        ports: Ports::of(topology),
        routes: Routes::new(topology, |_| true),
        hosts: topology.hosts,
        at: vec![Load::default(); topology.nodes() as usize],
        open: vec![0; topology.nodes() as usize],
        is_found: vec![false; topology.nodes() as usize],
        lines: vec![Load::default(); 2 * topology.cables.len()],
    };
    let busy = |line: usize, bytes: f64| {
        let bps = topology.cables[line / 2].rate.bps().max(1);
        bytes * 8e9 / bps as f64
    };
    let longest = |loads: &[Load]| {
        let busy = loads
            .iter()
            .enumerate()
            .map(|(line, it)| (busy(line, it.bytes), line));
        busy.reduce(|a, b| if b.0 > a.0 { b } else { a })
            .unwrap_or_default()
    };
    let of_job = |job: u16| {
        let mut own: Vec<&Connection<'_>> = connections.iter().filter(|it| it.job == job).collect();
        if own.is_empty() || own.iter().any(|it| it.lines.is_empty()) {
            return None;
        }
        own.sort_by_key(|it| it.dest);
        fabric.lines.fill(Load::default());
        for to_one in own.chunk_by(|a, b| a.dest == b.dest) {
            fabric.spread(to_one);
        }
        let mut actual = vec![Load::default(); fabric.lines.len()];
        for it in own.iter().filter(|it| it.stays) {
            for line in it.lines {
                actual[*line as usize].add(it.load, 1.0);
            }
        }
        let is_crowded = |line: &u32| {
            let even = fabric.lines[*line as usize].connections;
            actual[*line as usize].connections > (even - 1e-6).ceil().max(1.0)
        };
        let colliding = own
            .iter()
            .filter(|it| it.stays && it.lines.iter().any(is_crowded));
        let (busy_ns, busiest) = longest(&actual);
        Some(Spread {
            connections: own.len() as u32,
            colliding: colliding.count() as u32,
            busiest: line_name(topology, busiest / 2, busiest % 2),
            sharing: actual[busiest].connections as u32,
            busy_ns: busy_ns as u64,
            even_ns: longest(&fabric.lines).0 as u64,
        })
    };
    (0..simulation.player.job_outcomes.len() as u16)
        .map(of_job)
        .collect()
}

/// What connections put on lines.
#[derive(Clone, Copy, Default)]
struct Load {
    connections: f64,
    /// On the wire.
    bytes: f64,
}

impl Load {
    /// Adds a share of another.
    fn add(&mut self, other: Self, share: f64) {
        self.connections += other.connections * share;
        self.bytes += other.bytes * share;
    }
}

struct Connection<'a> {
    job: u16,
    /// The sending host, and its port, from 0.
    from: (NodeId, usize),
    /// The receiving address.
    dest: u32,
    lines: &'a [u32],
    /// Switches did not send it another way.
    stays: bool,
    load: Load,
}

fn connections<'a>(
    scenario: &Scenario,
    simulation: &Simulation,
    taken: &'a PathsTaken,
) -> Vec<Connection<'a>> {
    let player = &simulation.player;
    let mtu = scenario.device.mtu.bytes();
    let connections = player
        .connections()
        .enumerate()
        .map(|(number, it)| Connection {
            job: it.job,
            from: (NodeId(it.ends[0]), usize::from(it.leaves_by) - 1),
            dest: addresses(&simulation.fabric, it)[1],
            lines: taken.lines(number),
            stays: !taken.has_changed(number),
            load: Load {
                connections: 1.0,
                bytes: 0.0,
            },
        });
    let mut connections: Vec<_> = connections.collect();
    let transfers = 0..player.workload().transfers.len() as u32;
    for (connection, bytes) in transfers.flat_map(|id| player.parts_of(TransferId(id))) {
        let load = &mut connections[connection as usize].load;
        load.bytes += f64::from(sizes::message(bytes, mtu));
    }
    // Those of transfers that did not begin.
    connections.retain(|it| it.load.bytes > 0.0);
    connections
}

/// Spreads messages evenly over all shortest paths.
struct Even {
    ports: Ports,
    routes: Routes,
    hosts: u32,
    /// What has come to each node and not left it.
    at: Vec<Load>,
    /// From how many ports something is still to come to each node.
    open: Vec<u32>,
    is_found: Vec<bool>,
    /// What each line carries.
    lines: Vec<Load>,
}

impl Even {
    /// Adds connections that lead to the same address.
    fn spread(&mut self, connections: &[&Connection<'_>]) {
        let dest = connections[0].dest;
        let mut nodes = Vec::new();
        for it in connections {
            let port = self.ports.at(it.from.0)[it.from.1];
            self.put(port, it.load, 1.0);
            if port.peer.0 >= self.hosts {
                find(&mut self.is_found, port.peer, &mut nodes);
            }
        }
        let sources = nodes.len();
        // All switches on the way.
        let mut next = 0;
        while let Some(&node) = nodes.get(next) {
            next += 1;
            for number in self.routes.ports(node, dest) {
                let peer = self.ports.at(node)[usize::from(*number)].peer;
                if peer.0 >= self.hosts {
                    self.open[peer.0 as usize] += 1;
                    find(&mut self.is_found, peer, &mut nodes);
                }
            }
        }
        let mut ready: Vec<_> = nodes[..sources].to_vec();
        ready.retain(|node| self.open[node.0 as usize] == 0);
        while let Some(node) = ready.pop() {
            let load = std::mem::take(&mut self.at[node.0 as usize]);
            let count = self.routes.ports(node, dest).len();
            for place in 0..count {
                let number = self.routes.ports(node, dest)[place];
                let port = self.ports.at(node)[usize::from(number)];
                self.put(port, load, 1.0 / count as f64);
                if port.peer.0 >= self.hosts {
                    let open = &mut self.open[port.peer.0 as usize];
                    *open -= 1;
                    if *open == 0 {
                        ready.push(port.peer);
                    }
                }
            }
        }
        nodes
            .iter()
            .for_each(|node| self.is_found[node.0 as usize] = false);
    }

    /// Puts a share of a load on the line that leaves a port, and into the switch at its other end.
    fn put(&mut self, port: Port, load: Load, share: f64) {
        self.lines[2 * port.cable as usize + usize::from(port.end)].add(load, share);
        if port.peer.0 >= self.hosts {
            self.at[port.peer.0 as usize].add(load, share);
        }
    }
}

/// Adds a node unless it has been found.
fn find(is_found: &mut [bool], node: NodeId, nodes: &mut Vec<NodeId>) {
    if !std::mem::replace(&mut is_found[node.0 as usize], true) {
        nodes.push(node);
    }
}

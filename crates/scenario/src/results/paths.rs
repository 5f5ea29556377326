//! The paths of connections: the lines that their packets cross from host to host.
//!
//! A switch that chooses by hash sends all packets of a queue pair the same way, until it finds a way around a
//! cable or the queue pair is replaced.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use ferroce_base::time::Time;
use ferroce_device::Pairing;
use ferroce_fabric::ideal::Path;
use ferroce_fabric::route::{flow_hash, udp_source_port};
use ferroce_fabric::topology::Ports;
use ferroce_fabric::{
    ConnectionLook, Fabric, Fault, NodeId, Player, Routes, Routing, Simulation, TransferId,
};

use crate::scenario::Scenario;

/// The paths of all connections of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PathsTaken {
    /// The lines of all of them, one path after the other.
    lines: Vec<u32>,
    /// Where the path of each is among them.
    places: Vec<Range<usize>>,
    has_changed: Vec<bool>,
}

impl PathsTaken {
    pub(super) fn of(scenario: &Scenario, simulation: &Simulation) -> Self {
        let looks: Vec<_> = simulation.player.connections().copied().collect();
        let mut taken = Self {
            lines: Vec::new(),
            places: vec![0..0; looks.len()],
            has_changed: looks.iter().map(|it| it.failures > 0).collect(),
        };
        let lives = lives(&simulation.player, looks.len());
        // Those that carried something, in the order in which they began.
        let mut order: Vec<_> = (0..looks.len()).collect();
        order.retain(|it| lives[*it].start != Time::NEVER);
        order.sort_by_key(|it| lives[*it].start);
        let mut begun = 0;
        let mut tracer = Tracer {
            fabric: &simulation.fabric,
            is_random: scenario.switch.routing == Routing::Random,
            ports: Ports::of(&scenario.topology),
            routes: Routes::new(&scenario.topology, |_| true),
            down: BTreeSet::new(),
        };
        // How many connections were compared with each state of the routes.
        let mut compared: HashMap<Vec<usize>, usize> = HashMap::new();
        for (at, until, changed) in routings(scenario, simulation.now()) {
            for (cable, is_up) in changed {
                tracer.set_up(cable, is_up);
            }
            let state = tracer.down.iter().copied().collect();
            let done = compared.entry(state).or_default();
            for &connection in &order[*done..begun] {
                if lives[connection].end >= at && !taken.has_changed[connection] {
                    let now = tracer.trace(&looks[connection]);
                    taken.has_changed[connection] = !now.iter().eq(taken.lines(connection));
                }
            }
            while let Some(&connection) = order.get(begun)
                && lives[connection].start < until
            {
                let start = taken.lines.len();
                taken.lines.extend(tracer.trace(&looks[connection]));
                taken.places[connection] = start..taken.lines.len();
                begun += 1;
            }
            *done = begun;
        }
        taken
    }

    /// Returns the lines, numbered as in [`Sample::of`](ferroce_fabric::Sample::of), that a connection's packets crossed
    /// when it began; none if they may take many paths, there was none, or it carried nothing. If it connected
    /// anew, they are those that its last queue pairs would have taken.
    #[must_use]
    pub fn lines(&self, connection: usize) -> &[u32] {
        &self.lines[self.places[connection].clone()]
    }

    /// Returns whether switches sent it another way later, or it connected anew.
    #[must_use]
    pub fn has_changed(&self, connection: usize) -> bool {
        self.has_changed[connection]
    }
}

/// When the first transfer of each connection was posted, and the last one acknowledged.
fn lives(player: &Player, connections: usize) -> Vec<Range<Time>> {
    let mut lives = vec![Time::NEVER..Time::ZERO; connections];
    for (transfer, outcome) in (0..).map(TransferId).zip(&player.outcomes) {
        for (connection, _) in player.parts_of(transfer) {
            let life = &mut lives[connection as usize];
            life.start = life.start.min(outcome.started);
            life.end = life.end.max(outcome.acknowledged);
        }
    }
    lives
}

/// Cables, and whether switches use them from now on.
type Changes = Vec<(usize, bool)>;

/// The spans of time in which switches have the same routes, each with what is new about them.
fn routings(scenario: &Scenario, now: Time) -> Vec<(Time, Time, Changes)> {
    let mut timeline: Vec<_> = scenario
        .timeline
        .iter()
        .filter(|(at, _)| *at <= now)
        .collect();
    timeline.sort_by_key(|(at, _)| *at);
    let mut routings = vec![(Time::ZERO, Time::NEVER, Vec::new())];
    let mut is_up = HashMap::new();
    let mut is_routed = HashMap::new();
    for (at, fault) in timeline {
        match *fault {
            Fault::CableDown(cable) => drop(is_up.insert(cable, false)),
            Fault::CableUp(cable) => drop(is_up.insert(cable, true)),
            Fault::Reroute => {
                let news = is_up.iter().filter(|(cable, is_up)| {
                    is_routed.get(*cable).copied().unwrap_or(true) != **is_up
                });
                let mut news: Changes = news.map(|(cable, is_up)| (*cable, *is_up)).collect();
                news.sort_unstable();
                is_routed.extend(news.iter().copied());
                if let Some(last) = routings.last_mut() {
                    last.1 = *at;
                }
                routings.push((*at, Time::NEVER, news));
            }
            _ => {}
        }
    }
    routings
}

/// Finds paths over routes.
struct Tracer<'a> {
    fabric: &'a Fabric,
    is_random: bool,
    ports: Ports,
    routes: Routes,
    /// Cables that the routes avoid.
    down: BTreeSet<usize>,
}

impl Tracer<'_> {
    fn set_up(&mut self, cable: usize, is_up: bool) {
        self.routes.set_up(self.fabric.topology(), cable, is_up);
        match is_up {
            true => self.down.remove(&cable),
            false => self.down.insert(cable),
        };
    }

    /// The lines of a connection's path; none if there is no single one.
    fn trace(&self, it: &ConnectionLook) -> Vec<u32> {
        if self.is_random || it.uses_many_paths {
            return Vec::new();
        }
        let topology = self.fabric.topology();
        let [src, dst] = addresses(self.fabric, it);
        let flow = flow_hash(src, dst, udp_source_port(it.qpns[0], it.qpns[1]));
        let choose = |node: NodeId, ports: &[u16]| match topology.is_host(node) {
            true => self.port(node, it.leaves_by),
            // A switch offers one port at least.
            false => self.fabric.pick(node, ports, flow).unwrap_or_default(),
        };
        let ends = [it.ends[0], dst];
        let path = Path::new(topology, &self.ports, &self.routes, ends, choose);
        let hops = path.map_or_else(Vec::new, |path| path.hops);
        hops.into_iter()
            .map(|hop| 2 * hop.cable + u32::from(hop.end))
            .collect()
    }

    /// The port, from 0, by which a host sends what belongs to a link, from 1: a bond changes to the other one.
    fn port(&self, host: NodeId, link: u8) -> u16 {
        let port = u16::from(link) - 1;
        let is_bond = self.fabric.topology().pairing == Some(Pairing::Bond);
        let cable = self.ports.at(host)[usize::from(port)].cable as usize;
        match is_bond && self.down.contains(&cable) {
            true => 1 - port,
            false => port,
        }
    }
}

/// The addresses of a connection's ends: those of its link, unless that is one of a bond.
pub(super) fn addresses(fabric: &Fabric, it: &ConnectionLook) -> [u32; 2] {
    let port = it.link.min(fabric.host(it.ends[0]).hca.ports());
    it.ends.map(|host| fabric.topology().address(host, port))
}

//! Parts and initial state of a network.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferroce_base::random::mix;
use ferroce_base::time::{Span, Time};

use super::border::{Border, ELSEWHERE};
use super::cables::update_cut_through;
use super::watch::Watch;
use super::{FabricConfig, NO_LINE, Network, links};
use crate::events::EventQueue;
use crate::frame::Parcel;
use crate::line::{Line, Loss, Way};
use crate::packets::Packets;
use crate::route::Routes;
use crate::rules::Rules;
use crate::switch::watchdog::Watchdog;
use crate::switch::{Switch, SwitchConfig};
use crate::topology::{CableSpec, Division, NodeId, Part, Ports, RATE_MIN, Topology};

impl<P: Parcel> Network<P> {
    /// Creates an idle network.
    pub fn new(config: FabricConfig) -> Self {
        let division = Division::whole(&config.topology);
        let mut parts = Self::divided(&config, &division);
        parts.swap_remove(0)
    }

    /// Creates an idle network in parts.
    pub(crate) fn divided(config: &FabricConfig, division: &Division) -> Vec<Self> {
        let topology = &config.topology;
        let ports = Ports::of(topology);
        let plan = Plan {
            config,
            division,
            port_numbers: port_numbers(topology, &ports),
            ports,
            routes: Arc::new(Routes::new(topology, |_| true)),
        };
        let parts = (0..).zip(division.parts());
        let mut parts: Vec<_> = parts
            .map(|(number, part)| plan.part(number, part))
            .collect();
        for switch in topology.hosts..topology.nodes() {
            update_cut_through(&mut parts, topology, division, NodeId(switch));
        }
        parts
    }

    /// Creates a network that takes the same time between any two hosts, or from a host to itself,
    /// for any packet: a star whose lines have unlimited bandwidth.
    ///
    /// # Panics
    /// Panics if there are more hosts than a switch may have ports, or none.
    pub fn plain(hosts: u32, latency: Span) -> Self {
        let cable = CableSpec::new(RATE_MIN, Span::ZERO);
        let mut network = Self::new(FabricConfig {
            topology: Topology::star(hosts, cable).expect("no more than ports"),
            switch: SwitchConfig {
                cuts_through: false,
                ..SwitchConfig::default()
            },
            seed: 0,
        });
        for line in &mut network.lines {
            line.set_rate(None);
        }
        network.set_latency(latency);
        network
    }

    /// Sets the latency of a [plain](Self::plain) network for packets sent from now on.
    pub fn set_latency(&mut self, latency: Span) {
        for (_, line) in self.host_lines.iter().copied().flat_map(links) {
            self.lines[(line ^ 1) as usize].set_delay(latency);
        }
    }
}

/// What parts are made of.
struct Plan<'a> {
    config: &'a FabricConfig,
    division: &'a Division,
    ports: Ports,
    /// Of both ends of each cable.
    port_numbers: Vec<[u16; 2]>,
    routes: Arc<Routes>,
}

impl Plan<'_> {
    fn part<P: Parcel>(&self, number: u16, part: &Part) -> Network<P> {
        let topology = &self.config.topology;
        let mut border = Border::new(part.clone(), self.division.parts().len());
        let mut lines = Vec::with_capacity(2 * part.cables.len());
        for line in part
            .cables
            .iter()
            .flat_map(|cable| [2 * cable, 2 * cable + 1])
        {
            let (line, exit) = self.line(number, line);
            border.exits.push(exit);
            lines.push(line);
        }
        let hosts = part.nodes.partition_point(|node| *node < topology.hosts);
        let (hosts, switches) = part.nodes.split_at(hosts);
        let host_lines = hosts.iter().map(|host| {
            let mut lines = self.leaving(*host);
            [
                lines.next().unwrap_or(NO_LINE),
                lines.next().unwrap_or(NO_LINE),
            ]
        });
        let switches = switches.iter().map(|node| {
            let own = mix(mix(self.config.seed, 1), u64::from(node - topology.hosts));
            Switch::new(*node, self.leaving(*node), self.config.switch.clone(), own)
        });
        Network {
            rules: Rules::default(),
            watch: Watch::default(),
            now: Time::ZERO,
            events: EventQueue::new(hosts.len() + 2 * lines.len() + 1, horizon(&lines)),
            switches: switches.collect(),
            watchdog: self.config.switch.watchdog.map(Watchdog::new),
            host_lines: host_lines.collect(),
            intakes: BTreeMap::new(),
            lossless: self.config.switch.lossless,
            lines,
            packets: Packets::default(),
            border,
            routes: Arc::clone(&self.routes),
            events_at_once: 0,
            hops: 0,
        }
    }

    /// The lines that leave a node, port by port, by their numbers in its part.
    fn leaving(&self, node: u32) -> impl Iterator<Item = u32> {
        let ports = self.ports.at(NodeId(node)).iter();
        ports.map(|port| {
            let (cable, end) = (port.cable as usize, usize::from(port.end));
            (2 * self.division.cable(cable, end) + end) as u32
        })
    }

    /// A line as a part has it, and where it leads if that is another part.
    fn line(&self, part: u16, number: u32) -> (Line, (u16, u32)) {
        let (cable, end) = (number as usize / 2, number as usize % 2);
        let spec = &self.config.topology.cables[cable];
        let [from, to] = [spec.ends[end], spec.ends[1 - end]];
        let homes = [from, to].map(|node| self.division.home(node));
        let place = |node: usize, port: u16| match homes[node].part == part {
            true => (homes[node].number, port),
            false => (ELSEWHERE, port),
        };
        let ports = self.port_numbers[cable];
        let way = Way {
            from: place(0, ports[end]),
            to: place(1, ports[1 - end]),
        };
        let own = mix(mix(self.config.seed, 0), number.into());
        let mut line = Line::new(way, spec.rate, spec.delay, own);
        line.set_loss(Loss::random(spec.loss_share()));
        line.leads_out = way.to.0 == ELSEWHERE;
        if !self.config.topology.is_host(spec.ends[1 - end]) {
            line.latency = self.config.switch.latency;
        }
        let there = 2 * self.division.cable(cable, 1 - end) + end;
        (line, (homes[1].part, there as u32))
    }
}

/// The numbers of the ports at both ends of each cable.
fn port_numbers(topology: &Topology, ports: &Ports) -> Vec<[u16; 2]> {
    let mut numbers = vec![[0; 2]; topology.cables.len()];
    for node in 0..topology.nodes() {
        for (number, port) in (0..).zip(ports.at(NodeId(node))) {
            numbers[port.cable as usize][usize::from(port.end)] = number;
        }
    }
    numbers
}

/// Whether a switch may forward what has begun to arrive, by each of the lines that come to it: if they are as fast
/// as any that leaves it. Its own frame would run dry otherwise.
pub(super) fn allow_cut_through(
    lines: &[Line],
    leaving: &[u32],
) -> impl Iterator<Item = (u32, bool)> {
    let rate = |line: u32| lines[line as usize].rate();
    let fastest = leaving.iter().map(|line| rate(*line)).max();
    // The way back of the same cable.
    leaving
        .iter()
        .map(move |line| (line ^ 1, Some(rate(line ^ 1)) >= fastest))
}

/// How far ahead most events lie: a frame that crosses a line.
fn horizon(lines: &[Line]) -> Span {
    let crossing = |line: &Line| line.crossing(4096 + 100);
    lines.iter().map(crossing).max().unwrap_or_default()
}

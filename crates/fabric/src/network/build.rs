//! Parts and initial state of a network.

use std::collections::BTreeMap;

use ferroce_base::random::mix;
use ferroce_base::time::{Span, Time};

use super::watch::Watch;
use super::{FabricConfig, NO_LINE, Network, links};
use crate::events::EventQueue;
use crate::frame::Parcel;
use crate::line::{Line, Loss, Way};
use crate::packets::Packets;
use crate::route::Routes;
use crate::rules::Rules;
use crate::switch::{Switch, SwitchConfig};
use crate::topology::{CableSpec, NodeId, RATE_MIN, Topology};

impl<P: Parcel> Network<P> {
    /// Creates an idle network.
    pub fn new(config: FabricConfig) -> Self {
        let FabricConfig {
            topology,
            switch,
            seed,
        } = config;
        let hosts = topology.hosts as usize;
        let (mut lines, leaving) = make_lines(&topology, seed);
        let (of_hosts, of_switches) = leaving.split_at(hosts);
        let both = |lines: &Vec<u32>| [lines[0], lines.get(1).copied().unwrap_or(NO_LINE)];
        let host_lines = of_hosts.iter().map(both).collect();
        for line in of_switches.iter().flatten() {
            // The way back of the same cable.
            lines[(line ^ 1) as usize].latency = switch.latency;
        }
        if switch.cuts_through {
            for leaving in of_switches {
                allow_cut_through(&mut lines, leaving);
            }
        }
        let lossless = switch.lossless;
        let switches = (0..).zip(of_switches).map(|(number, leaving)| {
            let own = mix(mix(seed, 1), number);
            Switch::new(leaving.iter().copied(), switch.clone(), own)
        });
        Self {
            rules: Rules::default(),
            watch: Watch::default(),
            now: Time::ZERO,
            events: EventQueue::new(hosts + 2 * lines.len(), horizon(&lines)),
            switches: switches.collect(),
            lines,
            host_lines,
            intakes: BTreeMap::new(),
            lossless,
            packets: Packets::default(),
            routes: Routes::new(&topology, |_| true),
            is_up: vec![true; topology.cables.len()],
            is_routed: vec![true; topology.cables.len()],
            topology,
            events_at_once: 0,
            hops: 0,
        }
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

/// The lines of all cables, and the numbers of those that leave each node, port by port.
fn make_lines(topology: &Topology, seed: u64) -> (Vec<Line>, Vec<Vec<u32>>) {
    let mut leaving = vec![Vec::new(); topology.nodes() as usize];
    let mut ports = Vec::new();
    for (cable, index) in topology.cables.iter().zip(0..) {
        ports.push(cable.ends.map(|NodeId(node)| {
            let port = leaving[node as usize].len() as u16;
            leaving[node as usize].push(0);
            (node, port)
        }));
        for (end, (node, port)) in (0..).zip(ports[index]) {
            leaving[node as usize][usize::from(port)] = 2 * index as u32 + end;
        }
    }
    let mut lines = Vec::with_capacity(2 * ports.len());
    for (cable, [first, second]) in topology.cables.iter().zip(ports) {
        for (from, to) in [(first, second), (second, first)] {
            let own = mix(mix(seed, 0), lines.len() as u64);
            let mut line = Line::new(Way { from, to }, cable.rate, cable.delay, own);
            line.set_loss(Loss::random(cable.loss_share()));
            lines.push(line);
        }
    }
    (lines, leaving)
}

/// Lets a switch forward what has begun to arrive, on lines as fast as any that leaves it: its own frame
/// would run dry otherwise.
pub(super) fn allow_cut_through(lines: &mut [Line], leaving: &[u32]) {
    let rate = |line: &u32| lines[*line as usize].rate();
    let fastest = leaving.iter().map(rate).max();
    for line in leaving {
        // The way back of the same cable.
        let coming = &mut lines[(line ^ 1) as usize];
        coming.cuts_through = Some(coming.rate()) >= fastest;
    }
}

/// How far ahead most events lie: a frame that crosses a line.
fn horizon(lines: &[Line]) -> Span {
    let crossing = |line: &Line| line.crossing(4096 + 100);
    lines.iter().map(crossing).max().unwrap_or_default()
}

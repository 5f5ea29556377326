//! Information about a network and the frames on it, and consistency checks.

use std::collections::BTreeMap;

use ferroce_base::time::Span;
use ferroce_dcqcn::Rate;

use super::Network;
use super::intake::Intake;
use crate::frame::{Frame, Parcel};
use crate::line::{Line, LineCounters};
use crate::route::pick;
use crate::switch::{Port, Switch, SwitchCounters};

impl<P: Parcel> Network<P> {
    /// The latency of the switches; none if there are no switches.
    pub(crate) fn switch_latency(&self) -> Option<Span> {
        self.switches.first().map(|switch| switch.config.latency)
    }

    /// Returns the number of line crossings by frames on their path from end to end.
    pub fn hops(&self) -> u64 {
        self.hops
    }

    /// Returns the counters of the line that leaves a cable's first (0) or second (1) end. Each part of a network has
    /// those of its own half.
    pub fn line(&self, cable: usize, end: usize) -> LineCounters {
        self.lines[2 * cable + end].counters()
    }

    /// Whether a line may lose packets or flips bits.
    pub(crate) fn is_unreliable(&self) -> bool {
        self.lines.iter().any(Line::is_bad)
    }

    /// Returns the rate of each direction of a cable.
    pub(crate) fn rate(&self, cable: usize) -> Rate {
        self.lines[2 * cable].rate()
    }

    /// The counters of the switch with this number here, hosts included.
    pub(crate) fn switch(&self, switch: u32) -> &SwitchCounters {
        &self.switches[self.switch_index(switch)].counters
    }

    /// Returns the bytes that wait at the end of a cable for the line that leaves it, and the
    /// maximum that one priority has had. Zero at a host, whose device does the waiting.
    pub fn queue(&self, cable: usize, end: usize) -> (u64, u64) {
        let port = self.switch_port(cable, end);
        port.map_or((0, 0), |port| (port.queue_bytes(), port.queue_max()))
    }

    /// Returns the frames that a switch dropped at the end of a cable because they found no room to wait
    /// for the line that leaves it.
    pub(crate) fn dropped(&self, cable: usize, end: usize) -> u64 {
        self.switch_port(cable, end).map_or(0, Port::dropped)
    }

    /// The port at the end of a cable, if it is a switch's.
    fn switch_port(&self, cable: usize, end: usize) -> Option<&Port> {
        let (node, port) = self.lines[2 * cable + end].way.from;
        let is_switch = !self.is_host(node);
        is_switch.then(|| &self.switches[self.switch_index(node)].ports[usize::from(port)])
    }

    /// The port that a switch with this number here takes for a flow by its hash, of those that lead to its
    /// destination.
    pub(crate) fn pick(&self, switch: u32, ports: &[u16], flow: u32) -> Option<u16> {
        pick(ports, flow, self.switches[self.switch_index(switch)].salt)
    }
}

/// Checks that all losses are counted, and that all parts of a network, between which there is nothing, are
/// consistent.
///
/// # Panics
/// Panics if something is wrong.
pub(crate) fn audit<P: Parcel>(parts: &[&Network<P>]) {
    let mut arrived = BTreeMap::new();
    for part in parts {
        assert!(part.border.is_empty(), "what crosses borders has arrived");
        let in_lines: u64 = part.lines.iter().map(Line::frames).sum();
        let in_hosts: usize = part.intakes.values().map(|it| it.waiting().count()).sum();
        let in_switches: u64 = part.switches.iter().map(Switch::frames).sum();
        assert_eq!(
            part.packets.len() as u64,
            in_lines + in_switches + in_hosts as u64,
            "packets under way"
        );
        for (number, line) in (0..).zip(&part.lines) {
            let (sent, lost) = (line.sent(), line.lost_or_under_way());
            let total: &mut (u64, u64) = arrived.entry(part.number_of_line(number)).or_default();
            *total = (total.0 + sent, total.1 + lost);
        }
    }
    let arrived = |line: u32| arrived.get(&line).map_or(0, |(sent, lost)| sent - lost);
    let lines = 0..2 * parts
        .iter()
        .flat_map(|it| &it.border.part.cables)
        .max()
        .map_or(0, |it| it + 1);
    let hops: u64 = parts.iter().map(|part| part.hops).sum();
    assert_eq!(
        lines.map(arrived).sum::<u64>(),
        hops,
        "frames that have crossed a line"
    );
    for part in parts {
        for switch in &part.switches {
            switch.audit();
            let leaving = switch.leaving();
            let came = leaving
                .iter()
                .map(|line| arrived(part.number_of_line(line ^ 1)));
            let flushed = leaving.iter().map(|line| &part.lines[*line as usize]);
            let flushed: u64 = flushed.map(|line| line.counters().flushed).sum();
            assert_eq!(
                came.sum::<u64>(),
                switch.taken() + flushed,
                "frames that came, and what became of them: {:?}",
                switch.counters
            );
        }
    }
}

/// What is in flight, for tests that look at it or change it.
impl<P: Parcel> Network<P> {
    /// Returns the packets on lines, first those that have not crossed their first line, each
    /// line's in the order in which they arrive.
    pub fn under_way(&self) -> impl Iterator<Item = (&Frame, &P)> {
        let frames = self.lines.iter().flat_map(Line::under_way);
        frames.map(|frame| (frame, self.packets.get(frame.packet)))
    }

    /// Returns the packets that wait in switches, and in hosts that take them slowly.
    pub fn waiting(&self) -> impl Iterator<Item = (&Frame, &P)> {
        let in_hosts = self.intakes.values().flat_map(Intake::waiting);
        let frames = self
            .switches
            .iter()
            .flat_map(Switch::waiting)
            .chain(in_hosts);
        frames.map(|frame| (frame, self.packets.get(frame.packet)))
    }

    /// The number of a line in the whole network.
    pub(crate) fn number_of_line(&self, line: u32) -> u32 {
        2 * self.border.part.cables[line as usize / 2] + line % 2
    }

    /// Drops packets on lines for which `passes` returns false; it is called in the order of
    /// [`Self::under_way`].
    pub fn retain(&mut self, mut passes: impl FnMut(&Frame, &P) -> bool) {
        for line in 0..self.lines.len() {
            let (it, packets) = (&mut self.lines[line], &mut self.packets);
            it.retain(|frame| {
                let kept = passes(frame, packets.get(frame.packet));
                if !kept {
                    packets.give_back(frame.packet);
                }
                kept
            });
            let next = it.next();
            self.events.set(self.arrival(line as u32), next);
        }
    }

    /// Puts a packet that the host has not sent on the line of a host's first link, the given time later than what it
    /// sends now.
    pub fn inject(&mut self, host: u32, mut frame: Frame, packet: P, late: Span) {
        let id = self.packets.take();
        *self.packets.get_mut(id) = packet;
        frame.packet = id;
        let [line, _] = self.host_lines[host as usize];
        self.send_late(line, frame, late);
    }
}

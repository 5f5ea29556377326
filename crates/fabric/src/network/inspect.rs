//! Information about a network and the frames on it, and consistency checks.

use ferroce_base::time::Span;

use super::Network;
use super::intake::Intake;
use crate::frame::{Frame, Parcel};
use crate::line::{Line, LineCounters};
use crate::switch::{Switch, SwitchCounters};
use crate::topology::{NodeId, Topology};

impl<P: Parcel> Network<P> {
    /// The latency of the switches; zero if there are none.
    pub(crate) fn switch_latency(&self) -> Span {
        let first = self.switches.first();
        first.map_or(Span::ZERO, |switch| switch.config.latency)
    }

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the number of line crossings by frames on their path from end to end.
    pub fn hops(&self) -> u64 {
        self.hops
    }

    /// Returns the counters of the line that leaves a cable's first (0) or second (1) end.
    pub fn line(&self, cable: usize, end: usize) -> LineCounters {
        self.lines[2 * cable + end].counters()
    }

    /// Returns the counters of a switch.
    pub fn switch(&self, switch: NodeId) -> &SwitchCounters {
        &self.switches[self.switch_index(switch)].counters
    }

    /// Returns the bytes that wait at the end of a cable for the line that leaves it, and the
    /// maximum that one priority has had. Zero at a host, whose device does the waiting.
    pub fn queue(&self, cable: usize, end: usize) -> (u64, u64) {
        let (node, port) = self.lines[2 * cable + end].way.from;
        if self.topology.is_host(NodeId(node)) {
            return (0, 0);
        }
        let port = &self.switches[self.switch_index(NodeId(node))].ports[usize::from(port)];
        (port.queue_bytes(), port.queue_max())
    }

    /// Checks that all losses are counted, and that all parts are consistent.
    ///
    /// # Panics
    /// Panics if something is wrong.
    pub fn audit(&self) {
        let in_lines: u64 = self.lines.iter().map(Line::frames).sum();
        let in_hosts: usize = self.intakes.values().map(|it| it.waiting().count()).sum();
        let in_switches: u64 = self.switches.iter().map(Switch::frames).sum();
        assert_eq!(
            self.packets.len() as u64,
            in_lines + in_switches + in_hosts as u64,
            "packets under way"
        );
        let arrived: u64 = self.lines.iter().map(Line::arrived).sum();
        assert_eq!(arrived, self.hops, "frames that have crossed a line");
        for switch in &self.switches {
            switch.audit();
            let leaving = switch.leaving();
            let came = leaving.iter().map(|line| &self.lines[(line ^ 1) as usize]);
            let flushed = leaving.iter().map(|line| &self.lines[*line as usize]);
            let flushed: u64 = flushed.map(|line| line.counters().flushed).sum();
            assert_eq!(
                came.map(Line::arrived).sum::<u64>(),
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

    /// The line that leaves the first (0) or second (1) end of a cable.
    pub(crate) fn leaving(cable: usize, end: usize) -> u32 {
        (2 * cable + end) as u32
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

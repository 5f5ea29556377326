//! Deadlocks of priority flow control: ports that wait for each other in a circle, forever.
//!
//! A port that is paused waits until the switch behind its line has forwarded enough of what came by that line.
//! If that in turn waits at ports that are paused, and so on around a circle, nothing moves any more.

use super::Network;
use crate::frame::Parcel;
use crate::switch::PRIORITIES;
use crate::topology::NodeId;

impl<P: Parcel> Network<P> {
    /// Returns lines, as cables and their ends, whose frames of one priority wait for the next line's, and those of
    /// the last for the first one's, forever unless a cable goes down; `None` if there is no such circle.
    pub fn deadlock(&self) -> Option<Vec<(usize, usize)>> {
        let circle = (0..PRIORITIES).find_map(|priority| self.circle(priority))?;
        let ends = circle.into_iter();
        Some(
            ends.map(|line| (line as usize / 2, line as usize % 2))
                .collect(),
        )
    }

    fn circle(&self, priority: usize) -> Option<Vec<u32>> {
        let stuck = self.stuck(priority);
        let mut line = stuck.iter().position(|is_stuck| *is_stuck)? as u32;
        let mut followed = Vec::new();
        while !followed.contains(&line) {
            followed.push(line);
            line = self.waited_for(line, priority, &stuck)?;
        }
        let first = followed.iter().position(|it| *it == line)?;
        Some(followed.split_off(first))
    }

    /// The lines that are paused and stay so if no other line that is does ever send again.
    fn stuck(&self, priority: usize) -> Vec<bool> {
        let lines = 0..self.lines.len() as u32;
        let mut stuck: Vec<bool> = lines
            .clone()
            .map(|it| self.is_paused(it, priority))
            .collect();
        loop {
            let moves = |line: &u32| stuck[*line as usize] && !self.stays(*line, priority, &stuck);
            let moving: Vec<u32> = lines.clone().filter(moves).collect();
            if moving.is_empty() {
                return stuck;
            }
            moving.iter().for_each(|line| stuck[*line as usize] = false);
        }
    }

    /// Whether frames wait for a line between switches that are not wanted at its end.
    fn is_paused(&self, line: u32, priority: usize) -> bool {
        let way = self.lines[line as usize].way;
        let [from, to] = [way.from.0, way.to.0].map(NodeId);
        let between_switches = !self.topology.is_host(from) && !self.topology.is_host(to);
        between_switches && self.switches[self.switch_index(from)].is_held(way.from.1, priority)
    }

    /// Whether a line stays paused while those that are stuck do.
    fn stays(&self, line: u32, priority: usize, stuck: &[bool]) -> bool {
        let (node, ingress) = self.lines[line as usize].way.to;
        let switch = &self.switches[self.switch_index(NodeId(node))];
        switch.keeps_pausing(ingress, priority, |port| stuck[port as usize])
    }

    /// A stuck line that frames wait for which came by another one.
    fn waited_for(&self, line: u32, priority: usize, stuck: &[bool]) -> Option<u32> {
        let (node, ingress) = self.lines[line as usize].way.to;
        let switch = &self.switches[self.switch_index(NodeId(node))];
        let mut leaving = switch.ports.iter().map(|port| (port.line, port));
        let (line, _) = leaving
            .find(|(line, port)| stuck[*line as usize] && port.bytes_from(ingress, priority) > 0)?;
        Some(line)
    }
}

//! Deadlocks of priority flow control: ports that wait for each other in a circle, forever.
//!
//! A port that is paused waits until the switch behind its line has forwarded enough of what came by that line.
//! If that in turn waits at ports that are paused, and so on around a circle, nothing moves any more.

use super::Network;
use super::border::ELSEWHERE;
use crate::frame::Parcel;
use crate::switch::{PRIORITIES, Switch};

/// Lines, as cables and their ends, whose frames of one priority wait for the next line's, and those of
/// the last for the first one's, forever unless a cable goes down; `None` if there is no such circle.
pub(crate) fn deadlock<P: Parcel>(
    parts: &[&Network<P>],
    cables: usize,
) -> Option<Vec<(usize, usize)>> {
    let lines = Lines::of(parts, cables);
    let circle = (0..PRIORITIES).find_map(|priority| lines.circle(priority))?;
    let ends = circle.into_iter();
    Some(ends.map(|line| (line / 2, line % 2)).collect())
}

/// The lines between switches, by their numbers in the whole network.
struct Lines<'a, P> {
    /// Where each begins and ends, a switch and its port; none for those of hosts.
    all: Vec<[Option<Port<'a, P>>; 2]>,
}

struct Port<'a, P> {
    part: &'a Network<P>,
    switch: &'a Switch,
    number: u16,
}

impl<P> Clone for Port<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Port<'_, P> {}

impl<'a, P: Parcel> Lines<'a, P> {
    fn of(parts: &[&'a Network<P>], cables: usize) -> Self {
        let mut all = vec![[None; 2]; 2 * cables];
        for part in parts {
            for (line, it) in (0..).zip(&part.lines) {
                let ends = &mut all[part.number_of_line(line) as usize];
                for ((node, number), end) in [it.way.from, it.way.to].into_iter().zip(ends) {
                    if node != ELSEWHERE && !part.is_host(node) {
                        let switch = &part.switches[part.switch_index(node)];
                        *end = Some(Port {
                            part,
                            switch,
                            number,
                        });
                    }
                }
            }
        }
        Self { all }
    }

    fn circle(&self, priority: usize) -> Option<Vec<usize>> {
        let stuck = self.stuck(priority);
        let mut line = stuck.iter().position(|is_stuck| *is_stuck)?;
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
        let lines = 0..self.all.len();
        let mut stuck: Vec<bool> = lines
            .clone()
            .map(|it| self.is_paused(it, priority))
            .collect();
        loop {
            let moves = |line: &usize| stuck[*line] && !self.stays(*line, priority, &stuck);
            let moving: Vec<usize> = lines.clone().filter(moves).collect();
            if moving.is_empty() {
                return stuck;
            }
            moving.iter().for_each(|line| stuck[*line] = false);
        }
    }

    /// Whether frames wait for a line between switches that are not wanted at its end.
    fn is_paused(&self, line: usize, priority: usize) -> bool {
        match self.all[line] {
            [Some(from), Some(_)] => from.switch.is_held(from.number, priority),
            _ => false,
        }
    }

    /// Whether a line stays paused while those that are stuck do.
    fn stays(&self, line: usize, priority: usize, stuck: &[bool]) -> bool {
        self.all[line][1].is_some_and(|to| {
            let is_stuck = |line| stuck[to.part.number_of_line(line) as usize];
            to.switch.keeps_pausing(to.number, priority, is_stuck)
        })
    }

    /// A stuck line that frames wait for which came by another one.
    fn waited_for(&self, line: usize, priority: usize, stuck: &[bool]) -> Option<usize> {
        let to = self.all[line][1]?;
        let mut ports = to.switch.ports.iter();
        let line = |line| to.part.number_of_line(line) as usize;
        let port = ports
            .find(|port| stuck[line(port.line)] && port.bytes_from(to.number, priority) > 0)?;
        Some(line(port.line))
    }
}

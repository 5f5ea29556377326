//! Changes to cables: they are cut and repaired, slow down, lose and damage packets.

use ferroce_dcqcn::Rate;

use super::build::allow_cut_through;
use super::{Network, Stations, link_at, links};
use crate::frame::Parcel;
use crate::line::{Loss, Way};
use crate::topology::NodeId;

impl<P: Parcel> Network<P> {
    /// Cuts a cable, or repairs it. What is on it is lost, and so is what waits for it.
    pub fn set_up(&mut self, ends: &mut impl Stations<P>, cable: usize, is_up: bool) {
        if std::mem::replace(&mut self.is_up[cable], is_up) == is_up {
            return;
        }
        for index in [2 * cable, 2 * cable + 1] {
            if is_up {
                self.lines[index].mend();
            } else {
                let lost: Vec<_> = self.lines[index].cut().collect();
                lost.into_iter().for_each(|packet| self.lose(packet));
                self.events.set(self.arrival(index as u32), None);
            }
            self.restart_port(ends, index as u32, is_up);
        }
    }

    /// Has a line's port begin anew. While the line is down no peer pauses it; from the moment that it
    /// is up the port knows what the other end wants, whose buffer may still be full of what came before.
    fn restart_port(&mut self, ends: &mut impl Stations<P>, line: u32, is_up: bool) {
        let Way { from, to } = self.lines[line as usize].way;
        let paused = match is_up {
            true => self.pausing(to),
            false => 0,
        };
        let (node, port) = from;
        if self.topology.is_host(NodeId(node)) {
            ends.set_paused(self.now, node, link_at(port), paused);
            self.kick(ends, node);
            return;
        }
        let switch = self.switch_index(NodeId(node));
        if !is_up {
            for (frame, resumes) in self.switches[switch].flush(port) {
                self.lines[line as usize].count_flushed(1);
                self.lose(frame.packet);
                if resumes {
                    self.tell_pause(switch, frame.ingress);
                }
            }
            self.events.set(self.departure(line), None);
        }
        self.switches[switch].set_paused(port, paused);
        self.serve(switch, port);
    }

    /// Priorities that a port wants no frames of; a host's takes all, unless it is slow.
    fn pausing(&self, (node, port): (u32, u16)) -> u8 {
        match self.topology.is_host(NodeId(node)) {
            true => {
                let mut links = links(self.host_lines[node as usize]);
                let leaving = links.find(|(link, _)| *link == link_at(port));
                let intake = leaving.and_then(|(_, line)| self.intakes.get(&(line ^ 1)));
                intake.map_or(0, |it| it.pausing)
            }
            false => {
                let switch = &self.switches[self.switch_index(NodeId(node))];
                switch.ports[usize::from(port)].pausing
            }
        }
    }

    /// Makes switches find paths around cables that are down, and use cables again that are up. So do
    /// hosts with two links.
    pub fn reroute(&mut self, ends: &mut impl Stations<P>) {
        for cable in 0..self.is_up.len() {
            let is_up = self.is_up[cable];
            if std::mem::replace(&mut self.is_routed[cable], is_up) == is_up {
                continue;
            }
            self.routes.set_up(&self.topology, cable, is_up);
            for line in [2 * cable, 2 * cable + 1] {
                let (node, port) = self.lines[line].way.from;
                if self.topology.is_host(NodeId(node)) && self.topology.pairing.is_some() {
                    ends.set_carrier(self.now, node, link_at(port), is_up);
                    self.kick(ends, node);
                }
            }
        }
    }

    /// Changes the rate of a cable in both directions, for packets sent from now on.
    pub fn set_rate(&mut self, cable: usize, rate: Rate) {
        for line in &mut self.lines[2 * cable..][..2] {
            line.set_rate(Some(rate));
        }
        for node in self.topology.cables[cable].ends {
            if self.topology.is_host(node) {
                continue;
            }
            let switch = &self.switches[self.switch_index(node)];
            if switch.config.cuts_through {
                allow_cut_through(&mut self.lines, &switch.leaving());
            }
        }
    }

    /// Makes a cable lose packets in both directions.
    pub fn set_loss(&mut self, cable: usize, loss: Loss) {
        for line in &mut self.lines[2 * cable..][..2] {
            line.set_loss(loss);
        }
    }

    /// Makes a cable flip a bit in a share of packets, in units of 2^-32, in both directions, which
    /// no switch notices.
    pub fn set_corruption(&mut self, cable: usize, share: u32) {
        for line in &mut self.lines[2 * cable..][..2] {
            line.set_corruption(share);
        }
    }
}

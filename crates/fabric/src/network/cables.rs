//! Changes to cables: they are cut and repaired, slow down, lose and damage packets.
//!
//! Each part of a network that has an end of a cable changes its half.

use std::borrow::BorrowMut;

use ferroce_dcqcn::Rate;

use super::border::ELSEWHERE;
use super::build::allow_cut_through;
use super::{Network, Stations, link_at};
use crate::frame::Parcel;
use crate::line::{Line, Loss};
use crate::topology::{Division, NodeId, Topology};

impl<P: Parcel> Network<P> {
    /// Cuts a cable, or repairs it. What is on it is lost, and so is what waits for it. Each end of a cable that
    /// is repaired learns which priorities the other end wants no frames of, whose buffer may still be full of
    /// what came before; while it is down no end pauses the other.
    pub(crate) fn set_up(
        &mut self,
        ends: &mut impl Stations<P>,
        cable: usize,
        is_up: bool,
        unwanted: [u8; 2],
    ) {
        for (index, unwanted) in [2 * cable, 2 * cable + 1].into_iter().zip(unwanted) {
            if is_up {
                self.lines[index].mend();
            } else {
                let lost: Vec<_> = self.lines[index].cut().collect();
                lost.iter().for_each(|frame| self.lose(frame));
                self.events.set(self.arrival(index as u32), None);
            }
            let unwanted = if is_up { unwanted } else { 0 };
            self.restart_port(ends, index as u32, is_up, unwanted);
        }
    }

    /// Has a line's port begin anew.
    fn restart_port(&mut self, ends: &mut impl Stations<P>, line: u32, is_up: bool, unwanted: u8) {
        let (node, port) = self.lines[line as usize].way.from;
        if node == ELSEWHERE {
            return;
        }
        if self.is_host(node) {
            ends.set_paused(self.now, node, link_at(port), unwanted);
            self.kick(ends, node);
            return;
        }
        let switch = self.switch_index(node);
        if !is_up {
            for (frame, resumes) in self.switches[switch].flush(port) {
                self.lines[line as usize].count_flushed(1);
                self.lose(&frame);
                if resumes {
                    self.tell_pause(switch, frame.ingress);
                }
            }
            self.events.set(self.departure(line), None);
        }
        self.switches[switch].set_paused(port, unwanted);
        self.serve(switch, port);
    }

    /// Priorities that the port here wants no frames of to which a cable's line leads from its first (0) or second
    /// (1) end; a host's takes all, unless it is slow.
    pub(crate) fn unwanted(&self, cable: usize, end: usize) -> u8 {
        let line = 2 * cable + end;
        let (node, port) = self.lines[line].way.to;
        if self.is_host(node) {
            let intake = self.intakes.get(&(line as u32));
            return intake.map_or(0, |it| it.pausing);
        }
        let switch = &self.switches[self.switch_index(node)];
        switch.ports[usize::from(port)].pausing
    }

    /// Tells hosts with two links which of them has a carrier.
    pub(crate) fn tell_carrier(&mut self, ends: &mut impl Stations<P>, cable: usize, is_up: bool) {
        for line in [2 * cable, 2 * cable + 1] {
            let (node, port) = self.lines[line].way.from;
            if self.is_host(node) {
                ends.set_carrier(self.now, node, link_at(port), is_up);
                self.kick(ends, node);
            }
        }
    }

    /// Changes the rate of a cable in both directions, for packets sent from now on.
    pub(crate) fn set_rate(&mut self, cable: usize, rate: Rate) {
        for line in self.both(cable) {
            line.set_rate(Some(rate));
        }
    }

    /// Makes a cable lose packets in both directions.
    pub(crate) fn set_loss(&mut self, cable: usize, loss: Loss) {
        for line in self.both(cable) {
            line.set_loss(loss);
        }
    }

    /// Makes a cable flip a bit in a share of packets, in units of 2^-32, in both directions, which
    /// no switch notices.
    pub(crate) fn set_corruption(&mut self, cable: usize, share: u32) {
        for line in self.both(cable) {
            line.set_corruption(share);
        }
    }

    fn both(&mut self, cable: usize) -> &mut [Line] {
        &mut self.lines[2 * cable..][..2]
    }
}

/// Has a switch forward what has begun to arrive by its lines, or not, as their rates allow.
pub(crate) fn update_cut_through<P: Parcel>(
    parts: &mut [impl BorrowMut<Network<P>>],
    topology: &Topology,
    division: &Division,
    node: NodeId,
) {
    let home = division.home(node);
    let part = parts[usize::from(home.part)].borrow();
    let switch = &part.switches[part.switch_index(home.number)];
    if !switch.config.cuts_through {
        return;
    }
    let leaving = switch.leaving();
    let allowed = allow_cut_through(&part.lines, &leaving);
    let allowed: Vec<_> = allowed
        .map(|(line, allowed)| (part.number_of_line(line), allowed))
        .collect();
    for (line, allowed) in allowed {
        // The part that sends decides when a frame arrives.
        let (cable, end) = (line as usize / 2, line as usize % 2);
        let sender = division.home(topology.cables[cable].ends[end]).part;
        let line = 2 * division.cable(cable, end) + end;
        parts[usize::from(sender)].borrow_mut().lines[line].cuts_through = allowed;
    }
}

//! Faults: what changes cables, hosts and routes while a fabric runs.

use std::sync::Arc;

use ferroce_dcqcn::Rate;
use ferroce_device::{Attr, QpAttr, QpModify, QpState};
use ferroce_transport::Qp;

use super::{Fabric, Part};
use crate::line::Loss;
use crate::network::update_cut_through;
use crate::topology::NodeId;

impl Fabric {
    /// Cuts a cable, or repairs it. What is on it is lost, and so is what waits for it.
    pub fn set_up(&mut self, cable: usize, is_up: bool) {
        if std::mem::replace(&mut self.is_up[cable], is_up) == is_up {
            return;
        }
        self.settle();
        let unwanted = [0, 1].map(|end| {
            let (far, cable) = self.at_end(cable, 1 - end);
            far.unwanted(cable, end)
        });
        self.at_both_ends(cable, |part, cable| {
            let (net, mut cards) = part.split();
            net.set_up(&mut cards, cable, is_up, unwanted);
        });
        self.exchange();
    }

    /// Makes switches find paths around cables that are down, and use cables again that are up. So do
    /// hosts with two links.
    pub fn reroute(&mut self) {
        let is_changed = |cable: &usize| self.is_up[*cable] != self.is_routed[*cable];
        let changed: Vec<_> = (0..self.is_up.len()).filter(is_changed).collect();
        // All parts have the same routes, which one may change while the others have none.
        let mut routes = Arc::default();
        for part in &mut self.parts {
            routes = std::mem::take(&mut part.net.routes);
        }
        for cable in changed {
            let is_up = self.is_up[cable];
            self.is_routed[cable] = is_up;
            Arc::make_mut(&mut routes).set_up(&self.topology, cable, is_up);
            if self.topology.pairing.is_some() {
                self.at_both_ends(cable, |part, cable| {
                    let (net, mut cards) = part.split();
                    net.tell_carrier(&mut cards, cable, is_up);
                });
            }
        }
        for part in &mut self.parts {
            part.net.routes = Arc::clone(&routes);
        }
    }

    /// Changes the rate of a cable in both directions, for packets sent from now on.
    pub fn set_rate(&mut self, cable: usize, rate: Rate) {
        self.at_both_ends(cable, |part, cable| part.net.set_rate(cable, rate));
        for node in self.topology.cables[cable].ends {
            if !self.topology.is_host(node) {
                let nets = self.parts.iter_mut().map(|part| &mut part.net);
                update_cut_through(
                    &mut nets.collect::<Vec<_>>(),
                    &self.topology,
                    &self.division,
                    node,
                );
            }
        }
    }

    /// Makes a host take packets no faster than at a rate, on each of its links, or as fast as they arrive again. It
    /// then pauses the lossless priorities of switches, and drops what has no room.
    pub fn set_intake(&mut self, host: u32, rate: Option<Rate>) {
        let number = self.division.home(NodeId(host)).number;
        let (net, mut cards) = self.part_mut(host).split();
        net.set_intake(&mut cards, number, rate);
    }

    /// Makes a cable lose packets in both directions.
    pub fn set_loss(&mut self, cable: usize, loss: Loss) {
        self.at_both_ends(cable, |part, cable| part.net.set_loss(cable, loss));
    }

    /// Makes a cable flip a bit in a share of packets, in units of 2^-32, in both directions, which
    /// no switch notices.
    pub fn set_corruption(&mut self, cable: usize, share: u32) {
        self.at_both_ends(cable, |part, cable| part.net.set_corruption(cable, share));
    }

    /// Does something in the parts that have a cable, whose number there is given: once if it is one.
    fn at_both_ends(&mut self, cable: usize, mut act: impl FnMut(&mut Part, usize)) {
        let ends = self.topology.cables[cable].ends;
        let [one, other] = ends.map(|node| usize::from(self.division.home(node).part));
        act(&mut self.parts[one], self.division.cable(cable, 0));
        if other != one {
            act(&mut self.parts[other], self.division.cable(cable, 1));
        }
    }

    /// Makes a host's device forget its queue pairs, as after a reset: their work is flushed, and
    /// they do not answer any more.
    pub fn reset_nic(&mut self, host: u32) {
        let hca = &mut self.host_mut(host).hca;
        let qpns: Vec<_> = hca.qps().map(Qp::qpn).collect();
        for qpn in qpns {
            let change = QpModify::to(QpState::Err, Attr::empty(), QpAttr::default());
            if let Err(error) = hca.modify_qp(qpn, &change, None) {
                debug_assert!(false, "any state leads to ERR: {error}");
            }
        }
        self.kick(host);
    }

    /// Sets whether a host is cut off from the network. Its device keeps running.
    pub fn set_silent(&mut self, host: u32, is_silent: bool) {
        self.host_mut(host).is_silent = is_silent;
        self.kick(host);
    }
}

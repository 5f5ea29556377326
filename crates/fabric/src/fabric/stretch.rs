//! What was counted in a stretch of time, and that it was counted again in time that was left out.

use ferroce_device::Counter;

use super::Fabric;
use crate::line::LineCounters;
use crate::switch::SwitchCounters;
use crate::topology::NodeId;

/// The counters of a fabric.
#[derive(Clone, Default, Debug)]
pub(crate) struct Counts {
    /// Of each line: two for each cable.
    lines: Vec<LineCounters>,
    switches: Vec<SwitchCounters>,
    hosts: Vec<[u64; Counter::COUNT]>,
}

/// What belongs to time that was left out. Lines and switches do not know of it themselves: what they count is
/// compared with where frames are.
#[derive(Default, Debug)]
pub(super) struct LeftOut(Counts);

impl LeftOut {
    /// Adds what a line has counted in that time.
    pub(super) fn add_line(&self, cable: usize, end: usize, counters: &mut LineCounters) {
        if let Some(left_out) = self.0.lines.get(2 * cable + end) {
            counters.add(&LineCounters::default(), left_out, |all| all);
        }
    }

    /// Adds what a switch has counted in that time.
    pub(super) fn add_switch(&self, switch: usize, counters: &mut SwitchCounters) {
        if let Some(left_out) = self.0.switches.get(switch) {
            counters.add(&SwitchCounters::default(), left_out, |all| all);
        }
    }
}

impl Fabric {
    /// What has been counted so far, except in time that was left out.
    pub(crate) fn counts(&self) -> Counts {
        let cables = 0..self.topology.cables.len();
        let lines = cables.flat_map(|cable| [(cable, 0), (cable, 1)]);
        let switches = self.topology.hosts..self.topology.nodes();
        let mut hosts: Vec<_> = (0..self.topology.hosts)
            .map(|host| self.host(host).hca.state().counters())
            .collect();
        for (counters, left_out) in hosts.iter_mut().zip(&self.left_out.0.hosts) {
            for (counter, left_out) in counters.iter_mut().zip(left_out) {
                *counter -= left_out;
            }
        }
        Counts {
            lines: lines
                .map(|(cable, end)| self.own_line(cable, end))
                .collect(),
            switches: switches.map(|it| *self.own_switch(NodeId(it))).collect(),
            hosts,
        }
    }

    /// Counts a part of what was counted since then once more.
    pub(crate) fn count_again(&mut self, since: &Counts, part: impl Fn(u64) -> u64) {
        let now = self.counts();
        let LeftOut(left_out) = &mut self.left_out;
        left_out
            .lines
            .resize_with(now.lines.len(), Default::default);
        let lines = since.lines.iter().zip(&now.lines);
        for (sum, (then, now)) in left_out.lines.iter_mut().zip(lines) {
            sum.add(then, now, &part);
        }
        left_out
            .switches
            .resize_with(now.switches.len(), Default::default);
        let switches = since.switches.iter().zip(&now.switches);
        for (sum, (then, now)) in left_out.switches.iter_mut().zip(switches) {
            sum.add(then, now, &part);
        }
        left_out.hosts.resize(now.hosts.len(), [0; Counter::COUNT]);
        for (host, (then, now)) in (0..).zip(since.hosts.iter().zip(&now.hosts)) {
            for (info, (then, now)) in Counter::TABLE.iter().zip(then.iter().zip(now)) {
                let again = part(now - then);
                self.left_out.0.hosts[host as usize][info.counter as usize] += again;
                self.host_mut(host).hca.count(info.counter, again);
            }
        }
    }

    /// Whether a cable loses packets or changes them now and then.
    pub(crate) fn is_unreliable(&self) -> bool {
        self.parts.iter().any(|part| part.net.is_unreliable())
    }
}

//! Code that the builders share.

use super::check::within;
use super::{
    CABLES_MAX, Cable, CableSpec, HOSTS_MAX, NodeId, SWITCHES_MAX, Topology, TopologyError,
};

/// A topology that is being put together: hosts first, then switches, then cables.
#[derive(Default)]
pub(super) struct Assembly(Topology);

impl Assembly {
    /// Begins one of this many nodes and cables; refuses those that are too large before they take
    /// memory.
    pub(super) fn new(hosts: u64, switches: u64, cables: u64) -> Result<Self, TopologyError> {
        within("hosts", hosts, 1, HOSTS_MAX)?;
        within("switches", switches, 0, SWITCHES_MAX)?;
        within("cables", cables, 1, CABLES_MAX)?;
        let topology = Topology {
            hosts: 0,
            pairing: None,
            names: Vec::with_capacity((hosts + switches) as usize),
            cables: Vec::with_capacity(cables as usize),
            port_names: Vec::new(),
        };
        Ok(Self(topology))
    }

    pub(super) fn host(&mut self, name: String) -> NodeId {
        debug_assert_eq!(self.0.switches(), 0, "hosts come first");
        self.0.hosts += 1;
        self.0.names.push(name);
        NodeId(self.0.hosts - 1)
    }

    pub(super) fn switch(&mut self, name: String) -> NodeId {
        self.0.names.push(name);
        NodeId(self.0.nodes() - 1)
    }

    /// Hosts h0, h1 and so on.
    pub(super) fn hosts(&mut self, count: u32) -> Vec<NodeId> {
        (0..count).map(|it| self.host(format!("h{it}"))).collect()
    }

    /// Switches of this name and a number.
    pub(super) fn switches(&mut self, count: u32, name: &str) -> Vec<NodeId> {
        let mut switch = |it| self.switch(format!("{name}{it}"));
        (0..count).map(&mut switch).collect()
    }

    pub(super) fn connect(&mut self, a: NodeId, b: NodeId, spec: CableSpec) {
        self.0.cables.push(Cable::new(a, b, spec));
    }

    /// Connects every node of one group with every node of another by this many cables.
    pub(super) fn mesh(&mut self, low: &[NodeId], high: &[NodeId], cables: u32, spec: CableSpec) {
        for &a in low {
            for &b in high {
                (0..cables).for_each(|_| self.connect(a, b, spec));
            }
        }
    }

    /// Connects hosts in equal groups to switches, in order.
    pub(super) fn spread(&mut self, hosts: &[NodeId], switches: &[NodeId], spec: CableSpec) {
        let each = hosts.len() / switches.len();
        for (group, &switch) in hosts.chunks(each.max(1)).zip(switches) {
            self.mesh(group, &[switch], 1, spec);
        }
    }

    pub(super) fn finish(self) -> Result<Topology, TopologyError> {
        self.0.check()?;
        Ok(self.0)
    }
}

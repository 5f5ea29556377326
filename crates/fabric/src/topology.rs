//! What is connected to what.

use ferroce_dcqcn::Rate;
use ferroce_time::Span;

/// A host or a switch. Hosts come first: those of `n` hosts are 0 to n - 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// A cable between two nodes; both ways are alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cable {
    /// What it connects.
    pub ends: [NodeId; 2],
    /// Of either way.
    pub rate: Rate,
    /// Of either way, without serialization.
    pub delay: Span,
}

/// What is connected to what.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Topology {
    /// How many hosts; each is a network card with one port.
    pub hosts: u32,
    /// The names of all nodes, which are different from each other; hosts first.
    pub names: Vec<String>,
    /// All cables.
    pub cables: Vec<Cable>,
}

impl Topology {
    /// How many nodes, hosts and switches.
    pub fn nodes(&self) -> u32 {
        self.names.len() as u32
    }

    /// Whether a node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }
}

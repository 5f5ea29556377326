//! The ports of every node.

use super::{NodeId, Topology};

/// A port: one end of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// The cable, by its index in [`Topology::cables`].
    pub cable: u32,
    /// Which end of the cable is here.
    pub end: u8,
    /// The number of the port at the other end.
    pub peer_port: u16,
    /// The node at the other end.
    pub peer: NodeId,
}

/// The ports of every node of a topology.
///
/// The number of a port is the index of its cable among those of the node, in the order of
/// [`Topology::cables`]. A host therefore has only port 0, and in topologies from builders the
/// first ports of a switch lead to hosts or to the tier below.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ports {
    /// Where those of each node begin, and where the last ones end.
    first: Vec<u32>,
    ports: Vec<Port>,
}

impl Ports {
    /// Computes the ports of a topology in which every cable ends at existing nodes, and no node
    /// has more than [`PORTS_MAX`](super::PORTS_MAX).
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let mut first = vec![0_u32; topology.names.len() + 1];
        for end in topology.cables.iter().flat_map(|cable| cable.ends) {
            first[end.0 as usize + 1] += 1;
        }
        for node in 1..first.len() {
            first[node] += first[node - 1];
        }
        let nowhere = Port {
            cable: 0,
            end: 0,
            peer_port: 0,
            peer: NodeId(0),
        };
        let mut ports = vec![nowhere; 2 * topology.cables.len()];
        let mut next = first.clone();
        for (cable, it) in (0..).zip(&topology.cables) {
            let places = it.ends.map(|node| {
                let place = &mut next[node.0 as usize];
                *place += 1;
                *place - 1
            });
            for (end, other) in [(0, 1), (1, 0)] {
                let peer = it.ends[other];
                ports[places[end] as usize] = Port {
                    cable,
                    end: end as u8,
                    peer_port: (places[other] - first[peer.0 as usize]) as u16,
                    peer,
                };
            }
        }
        Self { first, ports }
    }

    /// Returns the ports of a node by their numbers; none if there is no such node.
    #[must_use]
    pub fn at(&self, node: NodeId) -> &[Port] {
        let node = node.0 as usize;
        match (self.first.get(node), self.first.get(node + 1)) {
            (Some(&from), Some(&to)) => &self.ports[from as usize..to as usize],
            _ => &[],
        }
    }

    /// Returns the nodes that a host can reach, and itself, each with the number of cables in between; the
    /// nearest first. Hosts do not forward.
    ///
    /// The topology must be the one that the ports are of.
    #[must_use]
    pub fn nearest(&self, topology: &Topology, host: u32) -> Vec<(NodeId, u32)> {
        let mut is_found = vec![false; topology.nodes() as usize];
        is_found[host as usize] = true;
        let mut nodes = vec![(NodeId(host), 0)];
        let mut next = 0;
        while let Some(&(node, distance)) = nodes.get(next) {
            next += 1;
            if distance > 0 && topology.is_host(node) {
                continue;
            }
            for port in self.at(node) {
                if !std::mem::replace(&mut is_found[port.peer.0 as usize], true) {
                    nodes.push((port.peer, distance + 1));
                }
            }
        }
        nodes
    }

    /// Returns the node that a host is connected to: its switch, or the other host of a
    /// [`Topology::pair`].
    #[must_use]
    pub fn switch_of(&self, host: u32) -> Option<NodeId> {
        self.at(NodeId(host)).first().map(|port| port.peer)
    }
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Span;
    use ferroce_dcqcn::Rate;

    use super::*;
    use crate::topology::{CableSpec, LeafSpine};

    #[test]
    fn ports_are_numbered_by_cables() {
        let cable = CableSpec::new(Rate::from_mbps(100_000), Span::ZERO);
        let topology = LeafSpine {
            leaves: 2,
            spines: 2,
            hosts_per_leaf: 3,
            cables_per_spine: 2,
            host_cable: cable,
            spine_cable: cable,
        };
        let topology = topology.build().unwrap();
        let ports = Ports::of(&topology);
        let peers = |name| {
            let node = topology.find(name).unwrap();
            let names = ports.at(node).iter().map(|port| topology.name(port.peer));
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(peers("h4"), "leaf1");
        assert_eq!(peers("leaf1"), "h3 h4 h5 spine0 spine0 spine1 spine1");
        assert_eq!(peers("spine1"), "leaf0 leaf0 leaf1 leaf1");
        assert_eq!(ports.switch_of(4), topology.find("leaf1"));
        let near = ports.nearest(&topology, 4);
        let near = near.iter().map(|(node, far)| (topology.name(*node), *far));
        assert_eq!(
            near.collect::<Vec<_>>(),
            [
                ("h4", 0),
                ("leaf1", 1),
                ("h3", 2),
                ("h5", 2),
                ("spine0", 2),
                ("spine1", 2),
                ("leaf0", 3),
                ("h0", 4),
                ("h1", 4),
                ("h2", 4)
            ]
        );
        assert_eq!(ports.at(NodeId(10)), []);
        assert_eq!(ports.switch_of(10), None);
        for node in (0..topology.nodes()).map(NodeId) {
            for (number, port) in (0..).zip(ports.at(node)) {
                let back = ports.at(port.peer)[usize::from(port.peer_port)];
                assert_eq!((back.peer, back.peer_port), (node, number));
                assert_eq!((back.cable, back.end), (port.cable, 1 - port.end));
                let ends = topology.cables[port.cable as usize].ends;
                assert_eq!(ends[usize::from(port.end)], node);
            }
        }
    }
}

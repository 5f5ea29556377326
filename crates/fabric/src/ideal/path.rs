//! Paths from host to host.

use crate::route::Routes;
use crate::topology::{NodeId, Ports, Topology};

/// A cable and the end at which a path enters it: two for each cable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hop {
    /// The cable, by its index in [`Topology::cables`].
    pub cable: u32,
    /// Its end, 0 or 1.
    pub end: u8,
}

/// The path of a flow from one host to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// The cables, in order.
    pub hops: Vec<Hop>,
}

impl Path {
    /// Creates the path from a host to an [address](Topology::address) on which `choose` selects one
    /// of the ports that each switch offers, or a host with two links. Returns `None` if there is none.
    pub fn new(
        topology: &Topology,
        ports: &Ports,
        routes: &Routes,
        [src, dst]: [u32; 2],
        mut choose: impl FnMut(NodeId, &[u16]) -> u16,
    ) -> Option<Self> {
        let mut at = NodeId(src);
        let mut number = match ports.at(at) {
            [_, _] => choose(at, &[0, 1]),
            _ => 0,
        };
        let mut hops = Vec::new();
        loop {
            let port = ports.at(at).get(usize::from(number))?;
            let (cable, end) = (port.cable, port.end);
            hops.push(Hop { cable, end });
            at = port.peer;
            if topology.is_host(at) {
                return (at.0 == topology.host_of(dst) && src != dst).then_some(Self { hops });
            }
            // A shortest path does not come back.
            if hops.len() > topology.names.len() {
                return None;
            }
            match routes.ports(at, dst) {
                [] => return None,
                ports => number = choose(at, ports),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Span;
    use ferroce_dcqcn::Rate;

    use super::*;
    use crate::topology::{CableSpec, LeafSpine};

    fn first_path(topology: &Topology, ends: [u32; 2]) -> Option<Path> {
        let (ports, routes) = (Ports::of(topology), Routes::new(topology, |_| true));
        Path::new(topology, &ports, &routes, ends, |_, ports| ports[0])
    }

    #[test]
    fn paths_lead_from_host_to_host() {
        let topology = LeafSpine {
            leaves: 2,
            spines: 2,
            hosts_per_leaf: 2,
            cables_per_spine: 1,
            host_cable: CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1)),
            spine_cable: CableSpec::new(Rate::from_mbps(40_000), Span::from_micros(3)),
        };
        let topology = topology.build().unwrap();
        let path = first_path(&topology, [0, 3]).unwrap();
        assert_eq!(path.hops.len(), 4);
        assert_eq!(first_path(&topology, [0, 0]), None);
        assert_eq!(first_path(&topology, [0, 4]), None);
        assert_eq!(first_path(&topology, [9, 0]), None);
        let pair = Topology::pair(CableSpec::new(Rate::from_mbps(1), Span::ZERO)).unwrap();
        assert_eq!(
            first_path(&pair, [1, 0]).unwrap().hops,
            [Hop { cable: 0, end: 1 }]
        );
    }
}

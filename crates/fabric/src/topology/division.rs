//! The division of a topology into parts that can be simulated beside each other.

use std::collections::BTreeMap;

use super::{NodeId, Ports, Topology};

/// Which part each node belongs to. A host is with its switches.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    /// The part of each node, and its number there.
    homes: Vec<Home>,
    /// For each cable its numbers in the parts of its ends.
    cables: Vec<[u32; 2]>,
    parts: Vec<Part>,
}

/// Where a node is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) part: u16,
    /// Its number there, in the order of the numbers in the whole.
    pub(crate) number: u32,
}

/// What a part has, by numbers in the whole, in order.
#[derive(Clone, Default, Debug)]
pub(crate) struct Part {
    pub(crate) nodes: Vec<u32>,
    /// Those that have an end in it.
    pub(crate) cables: Vec<u32>,
}

impl Division {
    /// Everything is in one part.
    pub(crate) fn whole(topology: &Topology) -> Self {
        Self::new(topology, &vec![0; topology.nodes() as usize])
    }

    /// Divides a topology into at most this many parts along its highest switches, those furthest from any host:
    /// without them, what remains connected are leaves or pods. Each part has some of these that follow each
    /// other, and a share of the highest switches.
    pub(crate) fn of(topology: &Topology, most: usize) -> Self {
        let ports = Ports::of(topology);
        let tiers = tiers(topology, &ports);
        let highest = tiers.iter().copied().max().unwrap_or(0);
        if highest < 2 || most < 2 {
            // The highest switches have hosts themselves, or there is nothing to divide.
            return Self::whole(topology);
        }
        let pods = pods(topology, &ports, |node| tiers[node as usize] < highest);
        let mut parts = vec![None; topology.nodes() as usize];
        let (mut part, mut hosts) = (0_u16, 0);
        for pod in &pods {
            let is_host = |node: &&u32| topology.is_host(NodeId(**node));
            let here = pod.iter().filter(is_host).count();
            // A part is full when more than half of the pod would be too much.
            let full = topology.hosts as usize * (usize::from(part) + 1);
            if hosts > 0 && (2 * hosts + here) * most > 2 * full {
                part += 1;
            }
            hosts += here;
            pod.iter()
                .for_each(|node| parts[*node as usize] = Some(part));
        }
        let mut spread = (0..=part).cycle();
        let parts: Vec<u16> = parts
            .into_iter()
            .map(|it| it.or_else(|| spread.next()).unwrap_or_default())
            .collect();
        Self::new(topology, &parts)
    }

    fn new(topology: &Topology, part_of: &[u16]) -> Self {
        let count = part_of
            .iter()
            .max()
            .map_or(1, |last| usize::from(*last) + 1);
        let mut parts = vec![Part::default(); count];
        let homes: Vec<_> = (0..)
            .zip(part_of)
            .map(|(node, part)| {
                let nodes = &mut parts[usize::from(*part)].nodes;
                nodes.push(node);
                Home {
                    part: *part,
                    number: nodes.len() as u32 - 1,
                }
            })
            .collect();
        let cables = (0..).zip(&topology.cables).map(|(number, cable)| {
            cable.ends.map(|end| {
                let cables = &mut parts[usize::from(homes[end.0 as usize].part)].cables;
                if cables.last() != Some(&number) {
                    cables.push(number);
                }
                cables.len() as u32 - 1
            })
        });
        Self {
            cables: cables.collect(),
            homes,
            parts,
        }
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Where a node is.
    #[inline]
    pub(crate) fn home(&self, node: NodeId) -> Home {
        self.homes[node.0 as usize]
    }

    /// A cable's number in the part of its first (0) or second (1) end.
    pub(crate) fn cable(&self, cable: usize, end: usize) -> usize {
        self.cables[cable][end] as usize
    }
}

/// How many cables each node is away from the next host.
fn tiers(topology: &Topology, ports: &Ports) -> Vec<u32> {
    let mut tiers = vec![u32::MAX; topology.nodes() as usize];
    let mut reached: Vec<u32> = (0..topology.hosts).collect();
    let mut tier = 0;
    while !reached.is_empty() {
        reached.iter().for_each(|node| tiers[*node as usize] = tier);
        let next = reached.iter().flat_map(|node| ports.at(NodeId(*node)));
        let mut next: Vec<u32> = next.map(|port| port.peer.0).collect();
        next.retain(|node| tiers[*node as usize] == u32::MAX);
        next.sort_unstable();
        next.dedup();
        (reached, tier) = (next, tier + 1);
    }
    tiers
        .iter_mut()
        .filter(|it| **it == u32::MAX)
        .for_each(|it| *it = 0);
    tiers
}

/// The nodes that stay connected if only some are kept, in the order of the first host of each.
fn pods(topology: &Topology, ports: &Ports, is_kept: impl Fn(u32) -> bool) -> Vec<Vec<u32>> {
    let mut pod_of = vec![u32::MAX; topology.nodes() as usize];
    let mut pods: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for first in (0..topology.nodes()).filter(|node| is_kept(*node)) {
        if pod_of[first as usize] != u32::MAX {
            continue;
        }
        pod_of[first as usize] = first;
        let mut reached = vec![first];
        let mut next = 0;
        while let Some(node) = reached.get(next).copied() {
            next += 1;
            for port in ports.at(NodeId(node)) {
                let peer = port.peer.0;
                if is_kept(peer) && pod_of[peer as usize] == u32::MAX {
                    pod_of[peer as usize] = first;
                    reached.push(peer);
                }
            }
        }
        pods.insert(first, reached);
    }
    pods.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{CableSpec, FatTree, LeafSpine};
    use crate::{Rate, Span};

    const CABLE: CableSpec = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));

    fn parts(topology: &Topology, most: usize) -> Vec<usize> {
        let division = Division::of(topology, most);
        let parts = division.parts().iter();
        parts.map(|part| part.nodes.len()).collect()
    }

    fn pod(leaves: u32, spines: u32, hosts_per_leaf: u32) -> Topology {
        let pod = LeafSpine {
            leaves,
            spines,
            hosts_per_leaf,
            cables_per_spine: 1,
            host_cable: CABLE,
            spine_cable: CABLE,
        };
        pod.build().unwrap()
    }

    #[test]
    fn pods_of_a_fat_tree_are_parts_and_share_its_cores() {
        let topology = FatTree::k_ary(8, CABLE).unwrap().build().unwrap();
        // 16 hosts, 4 edges and 4 spines of a pod, and two of 16 cores.
        assert_eq!(parts(&topology, 100), [26; 8]);
        assert_eq!(parts(&topology, 2), [104; 2]);
        assert_eq!(parts(&topology, 3), [78, 53, 77]);
    }

    #[test]
    fn leaves_of_a_leaf_spine_are_parts_and_share_its_spines() {
        let topology = pod(8, 4, 8);
        assert_eq!(parts(&topology, 4), [19; 4]);
        assert_eq!(parts(&topology, 1), [76]);
    }

    #[test]
    fn a_star_is_not_divided() {
        assert_eq!(parts(&Topology::star(100, CABLE).unwrap(), 8), [101]);
    }

    #[test]
    fn hosts_are_with_both_their_switches() {
        let topology = pod(8, 2, 16);
        let topology = topology
            .with_second_links(ferroce_device::Pairing::Bond)
            .unwrap();
        let division = Division::of(&topology, 100);
        assert_eq!(division.parts().len(), 4);
        for cable in &topology.cables {
            if topology.is_host(cable.ends[0]) {
                let [one, other] = cable.ends.map(|end| division.home(end).part);
                assert_eq!(one, other);
            }
        }
    }
}

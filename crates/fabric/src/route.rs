//! Routing: equal-cost shortest paths, and the choice between them.
//!
//! A switch looks up the ports that lead to the destination on a shortest path, and takes one of
//! them by a hash of the flow, [`pick`]. Hosts do not forward.

use std::collections::HashMap;

use ferroce_base::random::mix;
use ferroce_device::Qpn;

use crate::topology::{NodeId, Port, Ports, Topology};

/// The ports of every switch that lead to every address on a shortest path.
///
/// All hosts of a switch share their routes to it, and so do all bonds of two switches; equal sets of
/// ports are stored once: 8,192 hosts in a three-tier fat-tree take about 3 MB.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    hosts: u32,
    switches: u32,
    /// For each address the cables that lead to it: one, or both of a bond.
    homes: Vec<[Home; 2]>,
    /// For each address the row of the switches at those of them that are up, [`NO_ROW`] if none is.
    rows: Vec<u32>,
    /// For each address the ports of those switches that lead to it.
    last_ports: Vec<[u16; 2]>,
    /// For each row the switches that it leads to, counted without hosts, or [`NOWHERE`].
    targets: Vec<[u32; 2]>,
    /// The rows by those.
    numbers: HashMap<[u32; 2], u32>,
    /// For each row and switch a set, by its number.
    table: Vec<u32>,
    sets: Sets,
    /// For each row and switch how many cables are in between, [`FAR`] without a path.
    distances: Vec<u16>,
    neighbours: Neighbours,
}

/// A cable that leads to an address.
#[derive(Clone, Copy, Debug)]
struct Home {
    cable: u32,
    /// The switch at its other end, counted without hosts; [`NOWHERE`] if there is none.
    switch: u32,
    is_up: bool,
}

/// Of an address that no cable leads to, or none that is up.
const NO_ROW: u32 = u32::MAX;
/// In place of a switch.
const NOWHERE: u32 = u32::MAX;
/// Of a switch without a path.
const FAR: u16 = u16::MAX;

/// Sets of port numbers, each stored once.
#[derive(Clone, Debug, Default)]
struct Sets {
    /// Where each begins and how many it has.
    places: Vec<(u32, u16)>,
    ports: Vec<u16>,
    numbers: HashMap<Vec<u16>, u32>,
}

impl Sets {
    fn at(&self, set: u32) -> &[u16] {
        let (from, count) = self.places[set as usize];
        &self.ports[from as usize..][..usize::from(count)]
    }

    /// The number of a set, which is stored if it is new.
    fn number(&mut self, ports: &[u16]) -> u32 {
        if let Some(number) = self.numbers.get(ports) {
            return *number;
        }
        let number = self.places.len() as u32;
        self.places
            .push((self.ports.len() as u32, ports.len() as u16));
        self.ports.extend_from_slice(ports);
        self.numbers.insert(ports.to_vec(), number);
        number
    }
}

impl Routes {
    /// Computes the routes over those cables, by their indexes in [`Topology::cables`], that are
    /// up.
    ///
    /// The topology must have been [checked](Topology::check).
    #[must_use]
    pub fn new(topology: &Topology, is_up: impl Fn(usize) -> bool) -> Self {
        let ports = Ports::of(topology);
        let mut routes = Self {
            hosts: topology.hosts,
            switches: topology.switches(),
            ..Self::default()
        };
        routes.neighbours = Neighbours::new(topology, &ports, &is_up);
        let mut work = Work::default();
        for address in 0..topology.addresses() {
            routes.attach(topology, address, &ports, &is_up);
            routes.find_row(address, &mut work);
        }
        routes
    }

    /// Finds paths around a cable that is down, or uses it again when it is up.
    ///
    /// Most paths stay as long as before: then only its further end, seen from their destination,
    /// has another set of ports.
    pub fn set_up(&mut self, topology: &Topology, cable: usize, is_up: bool) {
        let ends = topology.cables[cable].ends;
        let mut work = Work::default();
        if let Some(host) = ends.into_iter().find(|end| topology.is_host(*end)) {
            for address in topology.addresses_of(host.0) {
                let homes = self.homes[address as usize].iter_mut();
                homes
                    .filter(|home| home.cable == cable as u32)
                    .for_each(|home| home.is_up = is_up);
                self.find_row(address, &mut work);
            }
            return;
        }
        let ends = ends.map(|end| end.0 - self.hosts);
        for end in ends {
            self.neighbours.set_up(end, cable as u32, is_up);
        }
        for row in 0..self.targets.len() as u32 {
            let [one, other] = ends.map(|end| self.distances[self.cell(row, end)]);
            let further = ends[usize::from(other > one)];
            match one.abs_diff(other) {
                0 => {}
                1 if is_up || self.has_path(row, further) => {
                    self.find_ports(row, further, &mut work.set);
                }
                _ => self.find_paths(row, &mut work),
            }
        }
    }

    /// Returns the ports of a switch, by their numbers, that lead to an
    /// [address](Topology::address) on a shortest path; none if there is no path.
    #[inline]
    #[must_use]
    pub fn ports(&self, switch: NodeId, address: u32) -> &[u16] {
        let Some(row) = self.row(address) else {
            return &[];
        };
        let at = switch.0.wrapping_sub(self.hosts);
        if at >= self.switches {
            return &[];
        }
        let last = &self.last_ports[address as usize];
        match self.targets[row as usize].map(|target| target == at) {
            [false, false] => self.sets.at(self.table[self.cell(row, at)]),
            [true, false] => &last[..1],
            [false, true] => &last[1..],
            [true, true] => last,
        }
    }

    /// Returns the number of cables on a shortest path between two addresses that are on switches,
    /// or `None` if there is no path.
    #[must_use]
    pub fn hops(&self, src: u32, dst: u32) -> Option<u32> {
        let (from, to) = (self.row(src)?, self.row(dst)?);
        if src == dst {
            return Some(0);
        }
        let targets = self.targets[from as usize].into_iter();
        let distances = targets
            .filter(|target| *target != NOWHERE)
            .map(|target| self.distances[self.cell(to, target)]);
        let between = distances.min().filter(|between| *between != FAR)?;
        Some(u32::from(between) + 2)
    }

    fn row(&self, address: u32) -> Option<u32> {
        let row = self.rows.get(address as usize).copied();
        row.filter(|row| *row != NO_ROW)
    }

    /// Returns the memory of the routes in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of_val(&*self.homes)
            + size_of_val(&*self.rows)
            + size_of_val(&*self.neighbours.near)
            + size_of_val(&*self.last_ports)
            + size_of_val(&*self.targets)
            + size_of_val(&*self.table)
            + size_of_val(&*self.distances)
            + size_of_val(&*self.sets.places)
            + size_of_val(&*self.sets.ports)
    }

    fn cell(&self, row: u32, switch: u32) -> usize {
        row as usize * self.switches as usize + switch as usize
    }

    /// Whether a neighbour of a switch is closer to a row's targets.
    fn has_path(&self, row: u32, switch: u32) -> bool {
        let distance = |switch| self.distances[self.cell(row, switch)];
        let here = distance(switch);
        let mut near = self.neighbours.at(switch);
        near.any(|(peer, _)| distance(peer) < here)
    }

    /// Finds the shortest paths to a row's targets.
    fn find_paths(&mut self, row: u32, work: &mut Work) {
        let width = self.switches as usize;
        let distances = &mut self.distances[row as usize * width..][..width];
        distances.fill(FAR);
        let targets = self.targets[row as usize];
        self.neighbours.measure(targets, distances, &mut work.queue);
        for switch in 0..self.switches {
            self.find_ports(row, switch, &mut work.set);
        }
    }

    /// Finds the ports of a switch that lead to a row's targets, by the distances from there.
    fn find_ports(&mut self, row: u32, switch: u32, set: &mut Vec<u16>) {
        let width = self.switches as usize;
        let distances = &self.distances[row as usize * width..][..width];
        let here = distances[switch as usize];
        let closer = |peer: &u32| here != FAR && distances[*peer as usize] < here;
        let near = self.neighbours.at(switch);
        set.clear();
        set.extend(near.filter(|(peer, _)| closer(peer)).map(|(_, port)| port));
        let cell = self.cell(row, switch);
        self.table[cell] = self.sets.number(set);
    }

    /// Notes which cables lead to the next address.
    fn attach(
        &mut self,
        topology: &Topology,
        address: u32,
        ports: &Ports,
        is_up: &impl Fn(usize) -> bool,
    ) {
        let ports = ports.at(NodeId(topology.host_of(address)));
        let is_on_switch = |port: &&Port| port.peer.0 >= self.hosts;
        let of_link = topology.links_of(address).map(|link| {
            let port = link.and_then(|link| ports.get(usize::from(link) - 1));
            port.filter(is_on_switch)
        });
        self.homes.push(of_link.map(|port| Home {
            cable: port.map_or(u32::MAX, |port| port.cable),
            switch: port.map_or(NOWHERE, |port| port.peer.0 - self.hosts),
            is_up: port.is_some_and(|port| is_up(port.cable as usize)),
        }));
        let last_ports = of_link.map(|port| port.map_or(0, |port| port.peer_port));
        self.last_ports.push(last_ports);
        self.rows.push(NO_ROW);
    }

    /// Gives an address the row of the switches that it can be reached from now.
    fn find_row(&mut self, address: u32, work: &mut Work) {
        let homes = self.homes[address as usize];
        let targets = homes.map(|home| if home.is_up { home.switch } else { NOWHERE });
        self.rows[address as usize] = match targets {
            [NOWHERE, NOWHERE] => NO_ROW,
            _ => self.row_to(targets, work),
        };
    }

    /// The row that leads to these switches, which is made if it is new.
    fn row_to(&mut self, targets: [u32; 2], work: &mut Work) -> u32 {
        if let Some(row) = self.numbers.get(&targets) {
            return *row;
        }
        let row = self.targets.len() as u32;
        self.targets.push(targets);
        self.numbers.insert(targets, row);
        let cells = self.targets.len() * self.switches as usize;
        self.table.resize(cells, 0);
        self.distances.resize(cells, FAR);
        self.find_paths(row, work);
        row
    }
}

/// Room for a search.
#[derive(Default)]
struct Work {
    set: Vec<u16>,
    queue: Vec<u32>,
}

/// The switches that each switch reaches over one cable, and by which port.
#[derive(Clone, Debug, Default)]
struct Neighbours {
    first: Vec<u32>,
    near: Vec<Near>,
}

#[derive(Clone, Copy, Debug)]
struct Near {
    peer: u32,
    cable: u32,
    port: u16,
    is_up: bool,
}

impl Neighbours {
    fn new(topology: &Topology, ports: &Ports, is_up: &impl Fn(usize) -> bool) -> Self {
        let mut it = Self {
            first: vec![0],
            near: Vec::new(),
        };
        for switch in topology.hosts..topology.nodes() {
            for (number, port) in (0..).zip(ports.at(NodeId(switch))) {
                if !topology.is_host(port.peer) {
                    it.near.push(Near {
                        peer: port.peer.0 - topology.hosts,
                        cable: port.cable,
                        port: number,
                        is_up: is_up(port.cable as usize),
                    });
                }
            }
            it.first.push(it.near.len() as u32);
        }
        it
    }

    fn of(&self, switch: u32) -> std::ops::Range<usize> {
        let [from, to] = [switch, switch + 1].map(|it| self.first[it as usize] as usize);
        from..to
    }

    fn at(&self, switch: u32) -> impl Iterator<Item = (u32, u16)> {
        let near = self.near[self.of(switch)].iter();
        near.filter(|it| it.is_up).map(|it| (it.peer, it.port))
    }

    fn set_up(&mut self, switch: u32, cable: u32, is_up: bool) {
        let range = self.of(switch);
        let near = self.near[range].iter_mut();
        near.filter(|it| it.cable == cable)
            .for_each(|it| it.is_up = is_up);
    }

    /// How many cables are between each switch and the nearest of some.
    fn measure(&self, targets: [u32; 2], distances: &mut [u16], queue: &mut Vec<u32>) {
        queue.clear();
        queue.extend(targets.into_iter().filter(|target| *target != NOWHERE));
        for &target in &*queue {
            distances[target as usize] = 0;
        }
        let mut done = 0;
        while let Some(&switch) = queue.get(done) {
            done += 1;
            let next = distances[switch as usize] + 1;
            for (peer, _) in self.at(switch) {
                let distance = &mut distances[peer as usize];
                if *distance == FAR {
                    *distance = next;
                    queue.push(peer);
                }
            }
        }
    }
}

/// Returns the port that a flow takes of those that lead to its destination, or `None` if there are
/// none.
///
/// Switches with different salts choose independently of each other. Otherwise all flows that one
/// tier sends the same way would be sent the same way by the next (polarisation).
#[inline]
#[must_use]
pub fn pick(ports: &[u16], flow_hash: u32, switch_salt: u32) -> Option<u16> {
    if let [] | [_] = ports {
        return ports.first().copied();
    }
    let mixed = mix(flow_hash.into(), switch_salt.into()) >> 32;
    ports.get(place(ports.len(), mixed as u32)).copied()
}

/// One of `len` places for a number: as even as a remainder, without a division.
#[inline]
pub(crate) fn place(len: usize, number: u32) -> usize {
    ((u64::from(number) * len as u64) >> 32) as usize
}

/// Returns the hash of a flow as switches see it: addresses, and the UDP source port; everything
/// else is the same.
#[inline]
#[must_use]
pub fn flow_hash(src: u32, dst: u32, udp_source_port: u16) -> u32 {
    let ends = (u64::from(src) << 32) | u64::from(dst);
    (mix(ends, udp_source_port.into()) >> 32) as u32
}

/// Returns the UDP source port of a packet whose queue pair has this one otherwise, and which has this
/// [entropy](ferroce_device::Outgoing::entropy).
#[inline]
#[must_use]
pub const fn port_with_entropy(udp_source_port: u16, entropy: u16) -> u16 {
    0xc000 | udp_source_port.wrapping_add(entropy) & 0x3fff
}

/// Returns the UDP source port of a queue pair's packets, derived from the numbers of both queue
/// pairs.
///
/// This is what Linux computes if the flow label of an address is 0 (`rdma_get_udp_sport`), and
/// therefore what mlx5, rxe, hns and irdma use: the product of both numbers is folded into a flow
/// label of 20 bits, and that into the 14 lower bits of a port from 0xc000 on. Both directions of a
/// connection get the same port.
#[must_use]
pub fn udp_source_port(src_qpn: Qpn, dst_qpn: Qpn) -> u16 {
    let [src, dst] = [src_qpn, dst_qpn].map(|it| u64::from(u32::from(it)));
    let product = src * dst;
    let folded = product ^ (product >> 20);
    let label = (folded ^ (folded >> 40)) & 0xf_ffff;
    let port = (label ^ (label >> 14)) & 0x3fff;
    0xc000 | port as u16
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Span;
    use ferroce_dcqcn::Rate;
    use ferroce_device::Pairing;
    use ferroce_testing::Dice;

    use super::*;
    use crate::topology::{CableSpec, Dumbbell, FatTree, LeafSpine};

    const CABLE: CableSpec = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));

    fn port(src_qpn: u32, dst_qpn: u32) -> u16 {
        udp_source_port(Qpn::new(src_qpn), Qpn::new(dst_qpn))
    }

    fn find(topology: &Topology, name: &str) -> NodeId {
        topology.find(name).unwrap()
    }

    #[test]
    fn leaves_use_all_spines() {
        let topology = LeafSpine::k_ary(4, CABLE).unwrap().build().unwrap();
        let routes = Routes::new(&topology, |_| true);
        let ports = |switch, host| routes.ports(find(&topology, switch), host);
        assert_eq!(ports("leaf0", 0), [0]);
        assert_eq!(ports("leaf0", 1), [1]);
        assert_eq!(ports("leaf0", 7), [2, 3]);
        assert_eq!(ports("spine1", 7), [3]);
        assert!(routes.ports(NodeId(0), 7).is_empty(), "a host");
        assert!(ports("leaf0", 8).is_empty(), "no host");
        assert_eq!(routes.hops(0, 0), Some(0));
        assert_eq!(routes.hops(0, 1), Some(2));
        assert_eq!(routes.hops(0, 7), Some(4));
        assert_eq!(routes.hops(0, 8), None);
    }

    #[test]
    fn cables_that_are_down_are_avoided() {
        let topology = LeafSpine::k_ary(4, CABLE).unwrap().build().unwrap();
        let cable = |a: &str, b: &str| {
            let ends = [find(&topology, a), find(&topology, b)];
            topology
                .cables
                .iter()
                .position(|it| it.ends == ends)
                .unwrap()
        };
        let without = |down: &[usize]| Routes::new(&topology, |cable| !down.contains(&cable));
        let leaf0 = find(&topology, "leaf0");

        let routes = without(&[cable("leaf3", "spine0")]);
        assert_eq!(routes.ports(leaf0, 7), [3], "by spine1 only");
        // The spine itself takes the long way.
        assert_eq!(routes.ports(find(&topology, "spine0"), 7), [0, 1, 2]);
        assert_eq!(routes.ports(leaf0, 5), [2, 3]);

        let routes = without(&[cable("leaf3", "spine0"), cable("leaf3", "spine1")]);
        assert!(routes.ports(leaf0, 7).is_empty());
        assert_eq!(routes.hops(0, 7), None);
        assert_eq!(routes.hops(6, 7), Some(2));

        let routes = without(&[cable("h7", "leaf3")]);
        assert!(routes.ports(leaf0, 7).is_empty());
        assert!(routes.ports(find(&topology, "leaf3"), 7).is_empty());
        assert_eq!(routes.ports(leaf0, 6), [2, 3]);
        assert_eq!((routes.hops(0, 7), routes.hops(7, 0)), (None, None));
    }

    #[test]
    fn parallel_cables_are_ports_of_equal_cost() {
        let mut topology = Dumbbell {
            left_hosts: 2,
            right_hosts: 2,
            host_cable: CABLE,
            middle_cable: CABLE,
        }
        .build()
        .unwrap();
        topology.cables.push(topology.cables[4]);
        assert_eq!(topology.check(), Ok(()));
        let routes = Routes::new(&topology, |_| true);
        assert_eq!(routes.ports(NodeId(4), 3), [2, 3]);
        let routes = Routes::new(&topology, |cable| cable != 4);
        assert_eq!(routes.ports(NodeId(4), 3), [3]);
    }

    #[test]
    fn a_pair_needs_no_routes() {
        let routes = Routes::new(&Topology::pair(CABLE).unwrap(), |_| true);
        assert!(routes.ports(NodeId(0), 1).is_empty());
        assert_eq!(routes.hops(0, 1), None);
    }

    #[test]
    fn routes_of_8192_hosts_are_small() {
        let topology = FatTree::k_ary(32, CABLE).unwrap().build().unwrap();
        assert_eq!((topology.hosts, topology.switches()), (8_192, 1_280));
        let routes = Routes::new(&topology, |_| true);
        assert!(routes.memory() < 5_000_000, "{}", routes.memory());
        let leaf = find(&topology, "pod0-leaf0");
        let uplinks: Vec<u16> = (16..32).collect();
        assert_eq!(routes.ports(leaf, 8_191), uplinks);
        assert_eq!(routes.ports(leaf, 16), uplinks);
        assert_eq!(routes.ports(leaf, 15), [15]);
        assert_eq!(routes.hops(0, 8_191), Some(6));
        assert_eq!(routes.hops(0, 16), Some(4));
        // To sixteen leaves, 1,280 switches: itself, ports to below, all ports to above.
        assert!(
            routes.sets.places.len() < 100,
            "{}",
            routes.sets.places.len()
        );
    }

    /// A leaf of a bond delivers what is for it itself; all others use both.
    #[test]
    fn a_bond_is_reached_by_the_cables_that_are_up() {
        let topology = LeafSpine::k_ary(4, CABLE).unwrap().build().unwrap();
        let topology = topology.with_second_links(Pairing::Bond).unwrap();
        let second = |host: usize| topology.cables.len() - topology.hosts as usize + host;
        let leaves = [0, 1, 2, 3].map(|leaf| find(&topology, &format!("leaf{leaf}")));
        let ports = |routes: &Routes| leaves.map(|leaf| routes.ports(leaf, 7).to_vec());
        let mut routes = Routes::new(&topology, |_| true);
        // leaf2 has the first cables of four hosts, then two spines; leaf3 has two spines, then the
        // second cables.
        assert_eq!(ports(&routes), [vec![4, 5], vec![0, 1], vec![3], vec![5]]);
        assert_eq!(routes.hops(6, 4), Some(2));
        routes.set_up(&topology, second(7), false);
        assert_eq!(ports(&routes)[3], [0, 1], "by the other leaf");
        assert_eq!(routes.hops(7, 4), Some(2));
        routes.set_up(&topology, 7, false);
        assert!(ports(&routes).iter().all(Vec::is_empty));
        assert_eq!(routes.hops(0, 7), None);
        routes.set_up(&topology, second(7), true);
        assert_eq!(ports(&routes)[2], [4, 5]);

        let star = Topology::star(3, CABLE).unwrap();
        let star = star.with_second_links(Pairing::Bond).unwrap();
        let routes = Routes::new(&star, |_| true);
        assert_eq!(routes.ports(find(&star, "switch0"), 1), [1, 4]);
    }

    #[test]
    fn ports_are_reached_by_their_own_cables() {
        let topology = LeafSpine::k_ary(4, CABLE).unwrap().build().unwrap();
        let topology = topology.with_second_links(Pairing::Ports).unwrap();
        let routes = Routes::new(&topology, |_| true);
        let leaf3 = find(&topology, "leaf3");
        let [first, second] = [1, 2].map(|port| topology.address(7, port));
        assert_eq!(routes.ports(leaf3, first), [0, 1], "it is on leaf2");
        assert_eq!(routes.ports(leaf3, second), [5]);
        assert_eq!(routes.hops(first, second), Some(4));
    }

    /// Whatever happens to cables, the routes are those over the cables that are up.
    #[test]
    fn changed_routes_are_those_of_a_new_table() {
        let mut parallel = LeafSpine::k_ary(4, CABLE).unwrap().build().unwrap();
        parallel.cables.push(parallel.cables[12]);
        let fat_tree = FatTree::k_ary(4, CABLE).unwrap().build().unwrap();
        let paired = |pairing| fat_tree.clone().with_second_links(pairing).unwrap();
        let [bonds, ports] = [Pairing::Bond, Pairing::Ports].map(paired);
        for (topology, seed) in [(parallel, 1), (fat_tree, 2), (bonds, 3), (ports, 4)] {
            let mut dice = Dice::new(seed);
            let mut is_up = vec![true; topology.cables.len()];
            let mut routes = Routes::new(&topology, |_| true);
            for _ in 0..400 {
                let cable = dice.below(is_up.len() as u64) as usize;
                // Mostly whole, and at times in pieces.
                is_up[cable] = !is_up[cable] || dice.chance(30);
                routes.set_up(&topology, cable, is_up[cable]);
                if !is_up[cable] && dice.chance(50) {
                    continue;
                }
                let new = Routes::new(&topology, |cable| is_up[cable]);
                for switch in topology.hosts..topology.nodes() {
                    for address in 0..topology.addresses() {
                        let [changed, new] =
                            [&routes, &new].map(|it| it.ports(NodeId(switch), address));
                        assert_eq!(changed, new, "from {switch} to {address}: {is_up:?}");
                    }
                }
                assert_eq!(
                    routes.hops(0, topology.hosts - 1),
                    new.hops(0, topology.hosts - 1)
                );
            }
        }
    }

    #[test]
    fn flows_spread_evenly() {
        for ports in 2..=64_u16 {
            let all: Vec<u16> = (0..ports).collect();
            let mut counts = vec![0_u32; ports.into()];
            // What a hash must not mind: numbers one after the other.
            for flow in 0..1_000 * u32::from(ports) {
                counts[usize::from(pick(&all, flow, 7).unwrap())] += 1;
            }
            // Five standard deviations of a binomial distribution.
            let (low, high) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*low > 840 && *high < 1_160, "{ports}: {low} to {high}");
        }
        assert_eq!(pick(&[], 1, 2), None);
        assert_eq!(pick(&[9], 1, 2), Some(9));
    }

    #[test]
    fn two_tiers_choose_independently() {
        let ports: Vec<u16> = (0..8).collect();
        let mut counts = [[0_u32; 8]; 8];
        for flow in 0..64_000 {
            let hash = flow_hash(flow % 50, 99, port(0x100 + flow, 0x200));
            let [a, b] = [1, 2].map(|salt| usize::from(pick(&ports, hash, salt).unwrap()));
            counts[a][b] += 1;
        }
        let all = || counts.iter().flatten();
        let (low, high) = (all().min().unwrap(), all().max().unwrap());
        assert!(*low > 800 && *high < 1_200, "{low} to {high}");
    }

    #[test]
    fn source_ports_are_those_of_linux() {
        assert_eq!(port(0, 0), 0xc000);
        assert_eq!(port(1, 1), 0xc001);
        // 0x11 * 0x2000 = 0x22000: the bits above the fourteenth come down.
        assert_eq!(port(0x11, 0x2000), 0xc000 | 0x2000 ^ 0x8);
        // 0xfffffe000001 folds to 0xfffffe000001 ^ 0xfffffe0 ^ 0xff, of which 0x000ff1e stay below.
        let product = 0xff_ffff_u64 * 0xff_ffff;
        assert_eq!(product, 0xffff_fe00_0001);
        let label = ((product ^ 0xfff_ffe0) ^ ((product ^ 0xfff_ffe0) >> 40)) & 0xf_ffff;
        let expected = 0xc000 | ((label & 0x3fff) ^ (label >> 14)) as u16;
        assert_eq!(port(0xff_ffff, 0xff_ffff), expected);
        assert_eq!(port(3, 5), port(5, 3));
        let distinct: std::collections::BTreeSet<u16> =
            (0..1_000).map(|it| port(0x11 + it, 0x500 + it)).collect();
        assert!(distinct.len() > 900, "{}", distinct.len());
    }
}

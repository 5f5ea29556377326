//! Hosts with two links, and their addresses.
//!
//! A host has an address, or one at each of two ports. Addresses are numbered: first those of all hosts,
//! or of their first ports, then those of second ports.

use std::collections::BTreeSet;

use ferroce_device::Pairing;

use super::{Cable, NodeId, Ports, Topology, TopologyError};

impl Topology {
    /// Gives every host a second cable like its first. Switches with hosts form pairs, in order, which
    /// have the hosts of both: first cables lead to the first switch, second cables to the other. A
    /// single switch has both.
    ///
    /// # Errors
    /// Returns an error if the number of switches with hosts is odd, or there are too many cables.
    pub fn with_second_links(mut self, pairing: Pairing) -> Result<Self, TopologyError> {
        let ports = Ports::of(&self);
        let first_of = |host| ports.at(NodeId(host)).first().copied();
        let homes: Vec<_> = (0..self.hosts).filter_map(first_of).collect();
        let switches: BTreeSet<_> = homes.iter().map(|port| port.peer).collect();
        let switches: Vec<_> = switches.into_iter().collect();
        if switches.len() > 1 && !switches.len().is_multiple_of(2) {
            let value = switches.len() as u64;
            let field = "number of switches with hosts";
            return Err(TopologyError::Odd { field, value });
        }
        for (host, port) in (0..).map(NodeId).zip(homes) {
            let at = switches.partition_point(|switch| *switch < port.peer);
            let [one, other] = [at & !1, at | 1].map(|at| switches[at.min(switches.len() - 1)]);
            let first = &mut self.cables[port.cable as usize];
            first.ends = [host, one];
            let second = Cable {
                ends: [host, other],
                ..*first
            };
            self.cables.push(second);
        }
        self.pairing = Some(pairing);
        self.check()?;
        Ok(self)
    }

    /// Returns the number of addresses that hosts can have.
    pub fn addresses(&self) -> u32 {
        match self.pairing {
            Some(Pairing::Ports) => 2 * self.hosts,
            Some(Pairing::Bond) | None => self.hosts,
        }
    }

    /// Returns the number of the address of a host's port, from 1.
    pub fn address(&self, host: u32, port: u8) -> u32 {
        match port {
            2 => self.hosts + host,
            _ => host,
        }
    }

    /// Returns the host that has an address.
    pub fn host_of(&self, address: u32) -> u32 {
        self.port_of(address).0
    }

    /// Returns the host that has an address, and the port, from 1.
    pub fn port_of(&self, address: u32) -> (u32, u8) {
        match address.checked_sub(self.hosts) {
            None => (address, 1),
            Some(host) => (host, 2),
        }
    }

    /// The addresses that a host can have.
    pub(crate) fn addresses_of(&self, host: u32) -> impl Iterator<Item = u32> + use<> {
        (host..self.addresses()).step_by(self.hosts as usize)
    }

    /// The links of its host, from 1, that an address is reached by.
    pub(crate) fn links_of(&self, address: u32) -> [Option<u8>; 2] {
        match self.pairing {
            Some(Pairing::Bond) => [Some(1), Some(2)],
            Some(Pairing::Ports) | None => [Some(self.port_of(address).1), None],
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_base::time::Span;
    use ferroce_dcqcn::Rate;

    use super::*;
    use crate::topology::{CableSpec, LeafSpine};

    const CABLE: CableSpec = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));

    #[test]
    fn pairs_of_switches_share_their_hosts() {
        let leaves = |count| LeafSpine {
            leaves: count,
            spines: 1,
            hosts_per_leaf: 2,
            cables_per_spine: 1,
            host_cable: CABLE,
            spine_cable: CABLE,
        };
        let four = leaves(4).build().unwrap();
        let four = four.with_second_links(Pairing::Bond).unwrap();
        let ports = Ports::of(&four);
        let homes = |host| {
            let of_host = ports.at(NodeId(host)).iter();
            of_host.map(|port| four.name(port.peer)).collect::<Vec<_>>()
        };
        assert_eq!(homes(0), ["leaf0", "leaf1"]);
        assert_eq!(homes(7), ["leaf2", "leaf3"]);
        let one = leaves(1).build().unwrap();
        let one = one.with_second_links(Pairing::Ports).unwrap();
        assert_eq!(one.cables[3..], one.cables[..2]);
        assert_eq!(one.addresses_of(1).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(one.port_of(one.address(1, 2)), (1, 2));
        let three = leaves(3).build().unwrap();
        assert_eq!(
            three
                .with_second_links(Pairing::Bond)
                .unwrap_err()
                .to_string(),
            "invalid number of switches with hosts 3: must be even, for example 4"
        );
    }
}

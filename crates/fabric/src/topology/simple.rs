//! The smallest topologies.

use super::assembly::Assembly;
use super::check::within;
use super::{CableSpec, HOSTS_MAX, Topology, TopologyError};

impl Topology {
    /// Two hosts on one cable, without a switch.
    pub fn pair(cable: CableSpec) -> Result<Self, TopologyError> {
        let mut it = Assembly::new(2, 0, 1)?;
        let hosts = it.hosts(2);
        it.connect(hosts[0], hosts[1], cable);
        it.finish()
    }

    /// Hosts h0, h1... on one switch, `switch0`.
    pub fn star(hosts: u32, cable: CableSpec) -> Result<Self, TopologyError> {
        let mut it = Assembly::new(hosts.into(), 1, hosts.into())?;
        let hosts = it.hosts(hosts);
        let switch = it.switch("switch0".into());
        it.mesh(&hosts, &[switch], 1, cable);
        it.finish()
    }
}

/// Two switches with hosts on each, and what all traffic between them goes through.
///
/// The hosts of `switch0` come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dumbbell {
    /// How many hosts are on `switch0`.
    pub left_hosts: u32,
    /// How many hosts are on `switch1`.
    pub right_hosts: u32,
    /// From hosts to switches.
    pub host_cable: CableSpec,
    /// Between the switches.
    pub middle_cable: CableSpec,
}

impl Dumbbell {
    /// The topology.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        within("left_hosts", self.left_hosts.into(), 1, HOSTS_MAX)?;
        within("right_hosts", self.right_hosts.into(), 1, HOSTS_MAX)?;
        let hosts = self.left_hosts + self.right_hosts;
        let mut it = Assembly::new(hosts.into(), 2, u64::from(hosts) + 1)?;
        let hosts = it.hosts(hosts);
        let switches = it.switches(2, "switch");
        let (left, right) = hosts.split_at(self.left_hosts as usize);
        it.mesh(left, &switches[..1], 1, self.host_cable);
        it.mesh(right, &switches[1..], 1, self.host_cable);
        it.connect(switches[0], switches[1], self.middle_cable);
        it.finish()
    }
}

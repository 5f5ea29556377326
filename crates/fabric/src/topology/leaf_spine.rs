//! Leaf-spine networks with two tiers.

use super::assembly::Assembly;
use super::check::within;
use super::{CableSpec, HOSTS_MAX, PORTS_MAX, SWITCHES_MAX, Topology, TopologyError};

/// Two tiers: every leaf is connected to every spine, hosts are on leaves.
///
/// Leaves are oversubscribed by the ratio of their hosts' rates to those of their cables to spines.
/// Hosts are numbered leaf by leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSpine {
    /// Number of leaves: `leaf0`, `leaf1`...
    pub leaves: u32,
    /// Number of spines: `spine0`, `spine1`...
    pub spines: u32,
    /// Number of hosts on each leaf.
    pub hosts_per_leaf: u32,
    /// Number of cables between a leaf and a spine.
    pub cables_per_spine: u32,
    /// Cables from hosts to leaves.
    pub host_cable: CableSpec,
    /// Cables from leaves to spines.
    pub spine_cable: CableSpec,
}

impl LeafSpine {
    /// Creates the two-tier fat-tree of switches with `k` ports: k leaves, k/2 spines, k²/2 hosts,
    /// all cables alike and nothing oversubscribed.
    pub fn k_ary(k: u32, cable: CableSpec) -> Result<Self, TopologyError> {
        super::fat_tree::check_k(k)?;
        Ok(Self {
            leaves: k,
            spines: k / 2,
            hosts_per_leaf: k / 2,
            cables_per_spine: 1,
            host_cable: cable,
            spine_cable: cable,
        })
    }

    /// Builds the topology.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let (leaves, spines) = (u64::from(self.leaves), u64::from(self.spines));
        within("leaves", leaves, 1, SWITCHES_MAX)?;
        within("spines", spines, 1, SWITCHES_MAX)?;
        within("hosts_per_leaf", self.hosts_per_leaf.into(), 1, HOSTS_MAX)?;
        let parallel = self.cables_per_spine;
        within("cables_per_spine", parallel.into(), 1, PORTS_MAX)?;
        let hosts = leaves * u64::from(self.hosts_per_leaf);
        let between = leaves * spines * u64::from(parallel);
        let mut it = Assembly::new(hosts, leaves + spines, hosts + between)?;
        let hosts = it.hosts(hosts as u32);
        let leaves = it.switches(self.leaves, "leaf");
        let spines = it.switches(self.spines, "spine");
        it.spread(&hosts, &leaves, self.host_cable);
        it.mesh(&leaves, &spines, parallel, self.spine_cable);
        it.finish()
    }
}

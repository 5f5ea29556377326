//! Fat-trees with three tiers.

use super::assembly::Assembly;
use super::check::within;
use super::{CableSpec, HOSTS_MAX, PORTS_MAX, SWITCHES_MAX, Topology, TopologyError};

/// Three tiers: pods of leaves and spines, and cores between the pods.
///
/// Within a pod every leaf is connected to every spine. Spine number i of each pod is connected to
/// the cores i * `cores_per_spine` and following, so that any two pods meet in every core. Hosts are
/// numbered leaf by leaf, pod by pod.
///
/// [`FatTree::k_ary`] creates the well-known one of equal switches; change its counts or cables for
/// an oversubscribed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FatTree {
    /// Number of pods.
    pub pods: u32,
    /// Number of leaves per pod: `pod0-leaf0`, `pod0-leaf1`...
    pub leaves_per_pod: u32,
    /// Number of spines per pod: `pod0-spine0`, `pod0-spine1`...
    pub spines_per_pod: u32,
    /// Number of cores that a spine is connected to: `core0`, `core1`...
    pub cores_per_spine: u32,
    /// Number of hosts on each leaf.
    pub hosts_per_leaf: u32,
    /// Cables from hosts to leaves.
    pub host_cable: CableSpec,
    /// Cables from leaves to spines.
    pub spine_cable: CableSpec,
    /// Cables from spines to cores.
    pub core_cable: CableSpec,
}

/// A fat-tree is made of switches with this many ports.
pub(super) fn check_k(k: u32) -> Result<(), TopologyError> {
    // Larger ones have too many hosts in either form.
    within("k", k.into(), 2, 362)?;
    if k.is_multiple_of(2) {
        return Ok(());
    }
    let (field, value) = ("k", k.into());
    Err(TopologyError::Odd { field, value })
}

impl FatTree {
    /// Creates the three-tier fat-tree of switches with `k` ports: k pods, k²/2 leaves and as many
    /// spines, k²/4 cores, k³/4 hosts, all cables alike and nothing oversubscribed.
    pub fn k_ary(k: u32, cable: CableSpec) -> Result<Self, TopologyError> {
        check_k(k)?;
        Ok(Self {
            pods: k,
            leaves_per_pod: k / 2,
            spines_per_pod: k / 2,
            cores_per_spine: k / 2,
            hosts_per_leaf: k / 2,
            host_cable: cable,
            spine_cable: cable,
            core_cable: cable,
        })
    }

    /// Builds the topology.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        within("pods", self.pods.into(), 1, SWITCHES_MAX)?;
        within("leaves_per_pod", self.leaves_per_pod.into(), 1, PORTS_MAX)?;
        within("spines_per_pod", self.spines_per_pod.into(), 1, PORTS_MAX)?;
        within("cores_per_spine", self.cores_per_spine.into(), 1, PORTS_MAX)?;
        within("hosts_per_leaf", self.hosts_per_leaf.into(), 1, HOSTS_MAX)?;
        // Each factor has 16 bits or little more; a product of three fits in any case.
        let pods = u64::from(self.pods);
        let leaves = pods * u64::from(self.leaves_per_pod);
        let spines = pods * u64::from(self.spines_per_pod);
        let cores = u64::from(self.spines_per_pod) * u64::from(self.cores_per_spine);
        let hosts = leaves * u64::from(self.hosts_per_leaf);
        let to_spines = leaves * u64::from(self.spines_per_pod);
        let to_cores = spines * u64::from(self.cores_per_spine);
        let cables = hosts + to_spines + to_cores;
        let mut it = Assembly::new(hosts, leaves + spines + cores, cables)?;

        let hosts = it.hosts(hosts as u32);
        let mut in_pods = |count, name| -> Vec<Vec<_>> {
            let of = |pod| it.switches(count, &format!("pod{pod}-{name}"));
            (0..self.pods).map(of).collect()
        };
        let leaves = in_pods(self.leaves_per_pod, "leaf");
        let spines = in_pods(self.spines_per_pod, "spine");
        let cores = it.switches(cores as u32, "core");

        it.spread(&hosts, &leaves.concat(), self.host_cable);
        for (leaves, spines) in leaves.iter().zip(&spines) {
            it.mesh(leaves, spines, 1, self.spine_cable);
        }
        for spines in &spines {
            let planes = cores.chunks(self.cores_per_spine as usize);
            for (&spine, plane) in spines.iter().zip(planes) {
                it.mesh(&[spine], plane, 1, self.core_cable);
            }
        }
        it.finish()
    }
}

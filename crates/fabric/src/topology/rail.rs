//! Pods of servers with several cards.

use super::assembly::Assembly;
use super::check::within;
use super::{CableSpec, HOSTS_MAX, NodeId, PORTS_MAX, SWITCHES_MAX, Topology, TopologyError};

/// A rail-optimised pod, as in AI clusters: servers with several cards. Cards with the same number
/// share a leaf, their rail, and spines connect the rails.
///
/// Each card is a separate host: card 3 of server 17 is `s17-nic3`, host number 17 * `nics` + 3. If
/// a leaf does not have enough ports for all servers, they form several units with their own rails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RailPod {
    /// Number of servers.
    pub servers: u32,
    /// Number of cards per server, which is the number of rails per unit.
    pub nics: u32,
    /// Number of servers that share their rails. With one unit these are `rail0`, `rail1`..., with
    /// several `unit0-rail0`, `unit0-rail1`...
    pub servers_per_unit: u32,
    /// Number of spines: `spine0`, `spine1`...
    pub spines: u32,
    /// Number of cables between a rail and a spine.
    pub cables_per_spine: u32,
    /// Cables from cards to rails.
    pub host_cable: CableSpec,
    /// Cables from rails to spines.
    pub spine_cable: CableSpec,
}

impl RailPod {
    /// Builds the topology.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let (servers, nics) = (u64::from(self.servers), u64::from(self.nics));
        within("servers", servers, 1, HOSTS_MAX)?;
        within("nics", nics, 1, HOSTS_MAX)?;
        within(
            "servers_per_unit",
            self.servers_per_unit.into(),
            1,
            HOSTS_MAX,
        )?;
        within("spines", self.spines.into(), 1, SWITCHES_MAX)?;
        let parallel = self.cables_per_spine;
        within("cables_per_spine", parallel.into(), 1, PORTS_MAX)?;
        let units = self.servers.div_ceil(self.servers_per_unit);
        let (hosts, rails) = (servers * nics, u64::from(units) * nics);
        let spines = u64::from(self.spines);
        let between = rails.saturating_mul(spines * u64::from(parallel));
        let cables = hosts.saturating_add(between);
        let mut it = Assembly::new(hosts, rails + spines, cables)?;

        for server in 0..self.servers {
            for nic in 0..self.nics {
                it.host(format!("s{server}-nic{nic}"));
            }
        }
        let name = |unit| match units {
            1 => "rail".to_owned(),
            _ => format!("unit{unit}-rail"),
        };
        let rails: Vec<_> = (0..units)
            .flat_map(|unit| it.switches(self.nics, &name(unit)))
            .collect();
        let spines = it.switches(self.spines, "spine");

        for server in 0..self.servers {
            let first = server / self.servers_per_unit * self.nics;
            for nic in 0..self.nics {
                let rail = rails[(first + nic) as usize];
                it.connect(NodeId(server * self.nics + nic), rail, self.host_cable);
            }
        }
        it.mesh(&rails, &spines, parallel, self.spine_cable);
        it.finish()
    }
}

//! Topologies: hosts, switches and cables.
//!
//! A [`Topology`] is plain data: hosts, switches and the cables between them. It comes from a
//! builder ([`Topology::pair`], [`Topology::star`], [`Dumbbell`], [`LeafSpine`], [`FatTree`],
//! [`RailPod`], [`Topology::from_list`]), from a file ([`HpccTopology`]), or is constructed directly;
//! [`Topology::check`] checks whether it can be simulated.
//!
//! ```
//! use ferroce_fabric::topology::{CableSpec, LeafSpine};
//! use ferroce_fabric::{Rate, Span};
//!
//! let cable = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));
//! let pod = LeafSpine {
//!     leaves: 4,
//!     spines: 2,
//!     hosts_per_leaf: 8,
//!     cables_per_spine: 1,
//!     host_cable: cable,
//!     spine_cable: cable,
//! };
//! let topology = pod.build().unwrap();
//! assert_eq!((topology.hosts, topology.switches()), (32, 6));
//! assert_eq!(topology.names[31..34], ["h31", "leaf0", "leaf1"]);
//! ```

mod assembly;
mod check;
mod division;
mod error;
mod fat_tree;
mod hpcc;
mod leaf_spine;
mod list;
mod ports;
mod rail;
mod second;
mod simple;

use ferroce_base::time::Span;
use ferroce_base::units::Probability;
use ferroce_dcqcn::Rate;
use ferroce_device::Pairing;

pub(crate) use self::division::{Division, Part};
pub use self::error::TopologyError;
pub use self::fat_tree::FatTree;
pub use self::hpcc::HpccTopology;
pub use self::leaf_spine::LeafSpine;
pub use self::list::NamedCable;
pub use self::ports::{Port, Ports};
pub use self::rail::RailPod;
pub use self::simple::Dumbbell;

/// The maximum number of hosts in a topology.
pub const HOSTS_MAX: u32 = 1 << 16;
/// The maximum number of switches in a topology.
pub const SWITCHES_MAX: u32 = 1 << 16;
/// The maximum number of cables in a topology.
pub const CABLES_MAX: u32 = 1 << 20;
/// The maximum number of ports of a switch: their numbers are 16 bits wide.
pub const PORTS_MAX: u32 = u16::MAX as u32;
/// The minimum rate of a cable.
pub const RATE_MIN: Rate = Rate::from_mbps(1);
/// The maximum delay of a cable: several times around the earth.
pub const DELAY_MAX: Span = Span::from_secs(1);

/// A host or a switch. Hosts come first: those of `n` hosts are 0 to n - 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// A cable between two nodes; both directions are alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cable {
    /// The nodes that it connects.
    pub ends: [NodeId; 2],
    /// Rate of each direction.
    pub rate: Rate,
    /// Delay of each direction, without serialization.
    pub delay: Span,
    /// Probability of losing a packet, independently for each packet and direction.
    pub loss: Probability,
}

impl Cable {
    /// Creates a cable without loss.
    #[must_use]
    pub const fn new(a: NodeId, b: NodeId, spec: CableSpec) -> Self {
        Self {
            ends: [a, b],
            rate: spec.rate,
            delay: spec.delay,
            loss: Probability::ZERO,
        }
    }

    /// Returns the loss in units of 2^-32, for comparison with random draws; certain loss is 1
    /// less.
    #[must_use]
    pub fn loss_share(&self) -> u32 {
        // A float that is too large becomes the largest integer.
        (self.loss.as_f64() * (1_u64 << 32) as f64).round() as u32
    }
}

/// The parameters from which builders create many cables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CableSpec {
    /// Rate of each direction, [`RATE_MIN`] to [`Rate::MAX`].
    pub rate: Rate,
    /// Delay of each direction, without serialization, at most [`DELAY_MAX`].
    pub delay: Span,
}

impl CableSpec {
    /// Creates the parameters from a rate and a delay.
    #[must_use]
    pub const fn new(rate: Rate, delay: Span) -> Self {
        Self { rate, delay }
    }
}

/// Hosts, switches and cables.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Topology {
    /// Number of hosts; each is a network card.
    pub hosts: u32,
    /// What the second cable of a host is; without it, each host has one.
    pub pairing: Option<Pairing>,
    /// The names of all nodes, which must be unique; hosts first.
    pub names: Vec<String>,
    /// All cables. Their order numbers the ports of each node, see [`Ports`].
    pub cables: Vec<Cable>,
    /// The names of the ports at both ends of each cable, if they have names; else empty.
    pub port_names: Vec<[String; 2]>,
}

impl Topology {
    /// Returns the number of nodes, hosts and switches.
    pub fn nodes(&self) -> u32 {
        self.names.len() as u32
    }

    /// Returns the number of switches.
    pub fn switches(&self) -> u32 {
        self.nodes().saturating_sub(self.hosts)
    }

    /// Returns whether a node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }

    /// Returns the name of a node, or an empty string if there is no such node.
    pub fn name(&self, node: NodeId) -> &str {
        self.names.get(node.0 as usize).map_or("", String::as_str)
    }

    /// Returns the name of the port at an end of a cable (0 or 1): that of its node and, after a colon, its own
    /// if it has one: `leaf1:33`.
    #[must_use]
    pub fn port_name(&self, cable: usize, end: usize) -> String {
        let node = self.name(self.cables[cable].ends[end]);
        match self.port_names.get(cable) {
            Some(ports) => format!("{node}:{}", ports[end]),
            None => node.to_owned(),
        }
    }

    /// Returns the node with this name. This searches all names.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let at = self.names.iter().position(|it| it == name)?;
        Some(NodeId(at as u32))
    }
}

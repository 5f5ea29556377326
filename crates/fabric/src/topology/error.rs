//! The reasons why a topology is invalid.

use ferroce_base::time::Span;

use super::{DELAY_MAX, PORTS_MAX, RATE_MIN};
use crate::Rate;

/// The reason why a topology is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A number is out of its range.
    #[error("invalid {field} {value}: must be {min} to {max}")]
    Count {
        /// What the number counts.
        field: &'static str,
        /// The number.
        value: u64,
        /// The smallest that is allowed.
        min: u64,
        /// The largest that is allowed.
        max: u64,
    },
    /// A number that must be even is not.
    #[error("invalid {field} {value}: must be even, for example {}", value + 1)]
    Odd {
        /// What the number counts.
        field: &'static str,
        /// The number.
        value: u64,
    },
    /// Nodes that have no name.
    #[error("{hosts} hosts but {names} node names: name every host, then every switch")]
    Unnamed {
        /// How many hosts.
        hosts: u32,
        /// How many names.
        names: usize,
    },
    /// Two nodes have the same name, or one has none.
    #[error(
        "node {node} is named {name:?}: must be a name of at least one character that no other node has"
    )]
    Name {
        /// The second of them.
        node: u32,
        /// The name.
        name: String,
    },
    /// A cable names a node that does not exist.
    #[error("cable {cable}: unknown node {node:?}: add it to the nodes or correct the name")]
    NoNode {
        /// Its place among the cables.
        cable: usize,
        /// What was given for the node.
        node: String,
    },
    /// Both ends of a cable are at the same node.
    #[error("cable {cable} connects {node} to itself: connect it to another node or remove it")]
    Loop {
        /// Its place among the cables.
        cable: usize,
        /// The name of the node.
        node: String,
    },
    /// The rate of a cable is out of range.
    #[error(
        "cable {cable}: invalid rate {rate}: must be {RATE_MIN} to {}",
        Rate::MAX
    )]
    Rate {
        /// Its place among the cables, and its ends.
        cable: String,
        /// The rate.
        rate: Rate,
    },
    /// The delay of a cable is out of range.
    #[error("cable {cable}: invalid delay {delay}: must be 0 to {DELAY_MAX}")]
    Delay {
        /// Its place among the cables, and its ends.
        cable: String,
        /// The delay.
        delay: Span,
    },
    /// A host has no cable, or too many.
    #[error("host {host} has {cables} cables: must be {}", number_and_hint(*cables, *max))]
    HostCables {
        /// The name of the host.
        host: String,
        /// How many it has.
        cables: u32,
        /// How many it may have.
        max: u32,
    },
    /// A switch has too many cables.
    #[error(
        "switch {switch} has {cables} cables: must be at most {PORTS_MAX}; use several switches"
    )]
    SwitchCables {
        /// The name of the switch.
        switch: String,
        /// How many it has.
        cables: u32,
    },
    /// There are parts without a path between them.
    #[error("no path from {from} to {to}: add a cable that connects them")]
    Disconnected {
        /// The name of the first node.
        from: String,
        /// The name of one that cannot be reached from it.
        to: String,
    },
}

/// How many cables a host must have, and what to do if it has not.
const fn number_and_hint(cables: u32, max: u32) -> &'static str {
    match (max, cables) {
        (1, 0) => "exactly 1; connect it to one switch",
        (1, _) => "exactly 1, unless host_links says what a second one is",
        (_, 0) => "1 or 2; connect it to a switch",
        _ => "1 or 2; make the other ports of a server a host of their own",
    }
}

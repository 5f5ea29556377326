//! Floods against two devices that exchange data: what an attacker does with one processor.
//!
//! | module | content |
//! |---|---|
//! | [`packets`] | the packets of each flood, made by an attacker who knows the protocol and most of the victim |
//! | [`attacker`] | where they are sent from: an address of the attacker's own, or the peer's |
//! | [`victims`] | the two devices, and how much data they move meanwhile |
//! | [`trial`] | both together, and what the attack achieved |

pub mod attacker;
pub mod packets;
pub mod trial;
pub mod victims;

pub use attacker::{Attacker, LEAST, Origin, Sent};
pub use packets::{Aim, Flood, Known, Packets};
pub use trial::{Effort, Outcome, Reply, quiet, under_fire};
pub use victims::{Load, Victims};

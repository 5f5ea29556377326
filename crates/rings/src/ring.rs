//! A ring of packets in memory that two processes share: one writes, one reads.
//!
//! The reader believes nothing of what it finds there: positions, kinds and lengths are checked as
//! packets are, and each packet is copied before it is used. A writer that breaks a rule
//! loses its ring. `docs/design/same-host.md` has the reasons.
//!
//! [`Producer`] writes, [`Consumer`] reads, [`Memory`] is what they share. Neither makes a system
//! call, and neither waits.

mod consumer;
mod layout;
mod memory;
mod producer;
mod sizes;

pub use self::consumer::{Broken, Consumer, Entry};
pub use self::layout::{Class, Kind};
pub use self::memory::Memory;
pub use self::producer::{Producer, Refused};
pub use self::sizes::PACKET_BYTES_MAX;

#[cfg(test)]
mod tests;

//! Packets between the processes of one host and user, in rings of shared memory; see
//! [`docs/design/same-host.md`](../../../docs/design/same-host.md).
//!
//! | module | purpose |
//! |---|---|
//! | `ring` | packets in memory that two processes share |
//! | `near` | peers on this host, reached through such rings |
#![forbid(unsafe_code)]

mod near;
mod ring;

pub use near::{Arrived, Near, Offer, Pushed};
pub use ring::{Broken, Class, Consumer, Entry, Kind, Memory, PACKET_BYTES_MAX, Producer, Refused};

//! The world of the tests: devices on links in memory, with virtual time.
//!
//! Tests, fuzz targets and benchmarks of several crates use it; no part of the product does.
//!
//! | module | has |
//! |---|---|
//! | [`world`] | any number of devices and what is under way between them; time goes from one event to the next |
//! | [`wire`](mod@wire) | packets under way, and what becomes of them |
//! | [`socket`] | sockets whose receive buffers end somewhere |
//! | [`register`] | accesses to registers of a device |
//! | [`message`], [`oracle`] | messages between two queue pairs, and what must have come of them |
//! | [`dice`], [`seeds`] | randomness from a seed, and runs that tell theirs when they fail |

#![forbid(unsafe_code)]

pub mod dice;
pub mod message;
pub mod oracle;
pub mod register;
pub mod seeds;
pub mod socket;
pub mod wire;
pub mod world;

pub use dice::Dice;
pub use socket::{Receiver, Socket, Stalls};
pub use wire::{Fate, Rules, Wire};
pub use world::{
    A, B, LATENCY_NS, Region, SEND, Side, World, attr, card, config, local, recv_wr, srq_limit,
};

//! Devices on the fabric's network, for tests.
//!
//! Tests, fuzz targets and benchmarks of several crates use this crate; no part of the product
//! does.
//!
//! | module | content |
//! |---|---|
//! | [`world`] | any number of devices at the ends of a network |
//! | [`side`] | one of them, its memory, and what comes out of it |
//! | [`flight`] | packets in flight |
//! | [`direct`] | two devices whose packets the caller moves, for measurements |
//! | [`socket`] | sockets with limited receive buffers |
//! | [`wire`] | how long packets take on the wire, by arithmetic |
//! | [`register`] | accesses to registers of a device |
//! | [`message`], [`oracle`] | messages between two queue pairs, and their expected results |
//! | [`Words`], [`has`], [`rows`] | commands as a line or as words, what their output must contain, tables of cases |
//! | [`said`](said()) | the output of a program, and how it ended |
//! | [`layout`] | layouts of structures, compared with those of C headers |
//! | [`Dice`], [`seeds`] | randomness from a seed, and runs that print their seed when they fail |
//! | [`publish`] | the table of a page that a test regenerates |
//! | [`skip`](skip()) | the report of a test that cannot run here |
//! | [`wait_until`] | a wait for what must happen |
//! | [`longest_wait`] | whether the machine had time for a test |

#![forbid(unsafe_code)]

mod command;
pub mod direct;
pub mod flight;
pub mod layout;
pub mod message;
pub mod oracle;
mod pages;
pub mod register;
mod said;
pub mod seeds;
pub mod side;
mod skips;
pub mod socket;
mod waits;
pub mod wire;
pub mod world;

pub use command::{Words, has, rows};
pub use ferroce_admission::{Bounds, Window};
pub use ferroce_base::random::Dice;
pub use ferroce_fabric::{Fate, Frame, Network, Parcel, Rules, Stations};
pub use layout::check_layout;
pub use pages::publish;
pub use said::said;
pub use side::{
    Region, SEND, Side, attr, card, config, device, local, recv_wr, sharing, srq_limit,
};
pub use skips::skip;
pub use socket::{Receiver, Socket, Stalls};
pub use waits::{Over, PATIENCE, longest_wait, wait_until};
pub use world::{A, B, LATENCY_NS, World, live};

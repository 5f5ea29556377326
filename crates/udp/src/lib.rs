//! The device on real UDP sockets.
//!
//! A [`Device`] is an [`ferroce_hca::Hca`] with an address. There is no daemon: whoever polls
//! drives it, and one helper thread serves the passive side and the timers while nobody does.
//!
//! | module | does |
//! |---|---|
//! | [`socket`] | one UDP socket with segmentation, coalescing, traffic class; the only system calls on the packet path |
//! | [`wait`] | sleeping, waking, the clock |
//! | `stage` | turns packets into bytes with ICRC and collects them into batches of one system call |
//! | `flow` | the ICRC state of each peer address |
//! | `fault` | what is wrong with the way out, told once |
//! | `engine` | moves packets between socket and device |
//! | [`device`](Device) | the engine behind a lock, the helper thread, waiting |
//! | [`tap`](Tap) | packet captures |
//!
//! `unsafe` is denied everywhere but in `socket` and `wait`, which make system calls.
#![deny(unsafe_code)]

mod connect;
mod device;
mod engine;
mod fault;
mod flow;
#[allow(unsafe_code, reason = "system calls")]
pub mod socket;
mod stage;
mod tap;
#[allow(unsafe_code, reason = "system calls")]
pub mod wait;

pub use connect::Endpoint;
pub use device::{Device, DeviceConfig, OpenError};
pub use tap::Tap;

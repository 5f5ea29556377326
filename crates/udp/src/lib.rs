//! The device on real UDP sockets: GSO and GRO, ECN, timers, progress.
//! placeholder

pub mod socket;
pub mod wait;

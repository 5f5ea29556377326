//! Benchmark programs of Ferroce, and the bare program the device is held against.

#![forbid(unsafe_code)]

pub mod bare;
pub mod pair;

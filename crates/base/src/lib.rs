//! What every crate of Ferroce may use, and what uses none of them.
//!
//! [`time`] is time as all of Ferroce represents it, [`random`] gives numbers from a seed, and [`hash`]
//! identifies bytes. With the feature `std`, which is on unless refused,
//! `units` reads and writes quantities as people write them, `names` says which name was meant by one
//! that does not exist, and `complaint` puts the errors of deserializers in the terms of a file.
//! With the feature `toml`, `toml_file` reads files strictly.

#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![forbid(unsafe_code)]

#[cfg(feature = "std")]
pub mod complaint;
pub mod hash;
#[cfg(feature = "std")]
pub mod names;
pub mod random;
pub mod time;
#[cfg(feature = "toml")]
pub mod toml_file;
#[cfg(feature = "std")]
pub mod units;

//! The engine held to the truth: arithmetic, shares, pauses, models, and others' runs.
//!
//! Where a band is asserted, the comment beside it or docs/validation.md says why it is that wide.

mod arithmetic;
mod chaos;
mod dcqcn;
mod hpcc;
mod lossless;
mod max_min;
mod net;
mod published;
mod reaction;
mod repeats;
mod sharing;

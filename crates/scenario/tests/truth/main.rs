//! Scenarios compared with a model of congestion control and with another simulator's runs.
//!
//! Where a band is asserted, the comment beside it or docs/validation.md explains its width.

mod dcqcn;
mod files;
mod hpcc;
mod long;

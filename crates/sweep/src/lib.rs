//! Sweeps: one scenario of the fabric, run many times with different values of some of its fields
//! and different seeds, on any number of processes and machines.
//!
//! A sweep file specifies the fields and their values. Its [`Plan`] is a list of points, each
//! identified by the hash of its scenario, its seed and the program's version. Workers do not
//! communicate: a worker takes the points of its [`Shard`], skips those that have results, and adds
//! [parts] to the sweep's directory; [`Collected`] is the union of them.
//!
//! | module | purpose |
//! |---|---|
//! | `random` | random numbers that never change between versions |
//! | `stats` | means and shares, with their confidence intervals |
//! | `field` | a field of a scenario by its path |
//! | `range` | ranges of numbers, times, sizes and rates |
//! | `file` | the sweep file |
//! | `design` | combinations of values |
//! | `plan` | the points, and the file that lists them |
//! | `outcome` | the result of a run, in numbers |
//! | `parts` | results on disk |
//! | `shard` | the assignment of points to workers |
//! | `run` | processes a shard |
//! | `collect` | all results |
//! | `curves` | the share of jobs that survive, and other metrics, curve by curve |
#![forbid(unsafe_code)]

pub mod collect;
pub mod curves;
mod design;
mod field;
mod file;
mod outcome;
pub mod parts;
mod plan;
mod random;
mod range;
mod run;
mod shard;
pub mod stats;

pub use collect::Collected;
pub use ferroce_base::toml_file::{Problem, Problems};
pub use file::{Design, Sweep};
pub use outcome::{METRICS, Metric, Outcome, Standing};
pub use plan::{Group, Id, Plan, PlanError, Point, Resolve, Run};
pub use range::number;
pub use run::{Finished, Halt, Keep, Options, Progress, Ran, RunError, run};
pub use shard::{Shard, ShardError};

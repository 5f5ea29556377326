//! Sweeps: one scenario of the fabric, run many times with other values of some of its fields and
//! other seeds, on as many processes and machines as there are.
//!
//! A sweep file says which fields, and which values. Its [`Plan`] is a list of points, each with a
//! name of its own: the hash of the scenario it runs, its seed and the program's version. From then on
//! nobody talks to anybody: a worker takes the points of its [`Shard`], skips those whose results are
//! there, and adds [parts] to the sweep's directory; [`Collected`] is the union of them.
//!
//! | module | does |
//! |---|---|
//! | `lines` | lines of a TOML file by the path of a key |
//! | `random` | random numbers, the same for ever |
//! | `stats` | means and shares, with their confidence intervals |
//! | `field` | a field of a scenario by its path |
//! | `range` | ranges of numbers, times, sizes and rates |
//! | `file` | the sweep file |
//! | `design` | which values are combined |
//! | `plan` | the points, and the file that lists them |
//! | `outcome` | what came of a run, in numbers |
//! | `parts` | results on disk |
//! | `shard` | whose points are whose |
//! | `run` | works through a shard |
//! | `collect` | everything that was found out |
//! | `survival` | the share of jobs that survive, curve by curve |
#![forbid(unsafe_code)]

pub mod collect;
mod design;
mod field;
mod file;
mod lines;
mod outcome;
pub mod parts;
mod plan;
mod random;
mod range;
mod run;
mod shard;
pub mod stats;
pub mod survival;

pub use collect::Collected;
pub use file::{Design, Sweep};
pub use lines::{Problem, Problems};
pub use outcome::{METRICS, Metric, Outcome, Standing};
pub use plan::{Group, Id, Plan, PlanError, Point, Resolve, Run};
pub use range::number;
pub use run::{Halt, Options, Progress, Ran, RunError, run};
pub use shard::{Shard, ShardError};

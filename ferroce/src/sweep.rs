//! `ferroce sweep`: runs one scenario many times, with different values and seeds, locally or on a
//! cluster.
//!
//! | module | purpose |
//! |---|---|
//! | `source` | the sweep file, and the results directory |
//! | `progress` | the progress line |
//! | `signals` | Ctrl-C and SIGTERM |
//! | `plan` | lists the points |
//! | `run` | processes a shard |
//! | `collect` | combines the results |
//! | `curves` | survival and other metrics, as a picture and a page |
//! | `launch` | starts shards; `batch` writes files for schedulers |

mod batch;
mod collect;
mod curves;
mod launch;
mod plan;
mod progress;
mod run;
mod signals;
mod source;

pub(crate) use self::source::files;

use clap::{Args, Subcommand};

use crate::output::{Failure, Output};

/// Sweep values of a simulated scenario, on this machine or a cluster
///
/// `plan` lists the points of a sweep, `run` works through them or through one shard, `collect` unites
/// the results, and `launch` has a scheduler run the shards. Workers share nothing but a directory: any
/// of them may be stopped, killed, or run twice.
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(subcommand)]
    verb: Verb,
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Plan(args) => args.run(to),
            Verb::Run(args) => args.run(to),
            Verb::Collect(args) => args.run(to),
            Verb::Launch(args) => args.run(to),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    Plan(plan::Plan),
    Run(run::Run),
    Collect(collect::Collect),
    Launch(launch::Launch),
}

//! `ferroce dev`, `link`, `stat`, `res`, `impair`, `fault`, `cc` and `status`: show and change devices while
//! programs run, like iproute2's `rdma`.
//!
//! | module | purpose |
//! |---|---|
//! | `format` | lines as `rdma` prints them, and how to print |
//! | `dev` | the devices themselves |
//! | `cards` | the cards that devices can be |
//! | `res` | programs' objects |
//! | `stat` | counters |
//! | `hist` | the timeout histogram |
//! | `status` | all of these on one screen |
//! | `ask` | queries programs for `res`, `cc` and `status` |
//! | `link` | the state of ports |
//! | `impair` | link impairments |
//! | `fault` | fault rules |
//! | `cc` | congestion control |
//! | `watch` | repeated output |

mod ask;
mod cards;
mod cc;
mod dev;
pub(crate) mod fault;
mod format;
mod hist;
pub(crate) mod impair;
pub(crate) mod link;
mod res;
mod stat;
mod status;
mod watch;

use cc::Cc;
use clap::Subcommand;
use dev::Dev;
use fault::Fault;
use impair::Impair;
pub(crate) use impair::{in_force, loses_most};
use link::Link;
use res::Res;
use stat::Stat;

use crate::output::{Failure, Output};

/// Devices and what is in them.
#[derive(Debug, Subcommand)]
pub(crate) enum Object {
    Dev(Dev),
    Link(Link),
    Res(Res),
    Stat(Stat),
    Impair(Impair),
    Fault(Fault),
    Cc(Cc),
    Status(status::Command),
}

impl Object {
    /// `details` is whether -d stood in front of the noun.
    pub(crate) fn run(self, details: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        match self {
            Self::Dev(command) => command.run(details, to),
            Self::Link(command) => command.run(to),
            Self::Res(command) => command.run(details, to),
            Self::Stat(command) => command.run(details, to),
            Self::Impair(command) => command.run(to),
            Self::Fault(command) => command.run(to),
            Self::Cc(command) => command.run(to),
            Self::Status(command) => command.run(details, to),
        }
    }
}

//! `ferroce drill`: released communication libraries lose a port, a peer or packets, and a table says
//! what happened.
//!
//! | module | content |
//! |---|---|
//! | `adapter` | what a drill has to know of a library |
//! | `release` | releases, which are downloaded |
//! | `settings` | a library's variables in all combinations |
//! | `campaign` | the runs, and the options that all libraries have |
//! | `trouble` | the arguments that say what happens |
//! | `plan` | what happens, and when |
//! | `site` | the devices of a drill |
//! | `crew` | its processes |
//! | `job` | those that `mpirun` starts |
//! | `pipes` | the pipes to them |
//! | `protocol` | what the processes and the command tell each other |
//! | `worker` | the processes' side of it |
//! | `rehearse` | one run |
//! | `record` | what is noted during a run |
//! | `message` | messages of libraries |
//! | `verdict` | what a run has shown |
//! | `forecast` | what is expected of it |
//! | `report` | the table |
//! | `document` | the same as JSON |
//! | `page` | the same as a page with pictures |
//! | `progress` | the line on a terminal |
//! | `python` | libraries that a Python program uses |
//! | `nccl`, `ucx`, `mooncake`, `nixl`, `openmpi` | each library |
//!
//! A library has a module of its own, with an [`adapter::Adapter`] and what its processes do; everything
//! else is the same for all libraries.

mod adapter;
mod campaign;
mod crew;
mod document;
mod forecast;
mod job;
mod message;
mod mooncake;
mod nccl;
mod nixl;
mod openmpi;
mod page;
mod pipes;
mod plan;
mod progress;
mod protocol;
mod python;
mod record;
mod rehearse;
mod release;
mod report;
mod settings;
mod site;
mod trouble;
mod ucx;
mod verdict;
mod worker;

use clap::{Args, Subcommand};

use crate::output::{Failure, Output};

/// Rehearse failures with released communication libraries: what happens when a port, a peer or packets
/// are lost
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(subcommand)]
    library: Library,
}

#[derive(Debug, Subcommand)]
enum Library {
    Nccl(Box<nccl::Drill>),
    #[command(hide = true)]
    NcclHost(nccl::Host),
    Mooncake(Box<mooncake::Drill>),
    Nixl(Box<nixl::Drill>),
    Openmpi(Box<openmpi::Drill>),
    Ucx(Box<ucx::Drill>),
    #[command(hide = true)]
    UcxHost(ucx::Host),
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.library {
            Library::Nccl(drill) => drill.run(to),
            Library::NcclHost(host) => host.run(to),
            Library::Mooncake(drill) => drill.run(to),
            Library::Nixl(drill) => drill.run(to),
            Library::Openmpi(drill) => drill.run(to),
            Library::Ucx(drill) => drill.run(to),
            Library::UcxHost(host) => host.run(to),
        }
    }
}

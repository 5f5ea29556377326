//! The tree of commands.

use clap::{Parser, Subcommand};

use crate::output::{Failure, Output};
use crate::{
    adp, demo, device, explain, identify, install, json, mlxreg, pcap, reg, run, serve, sim, sweep,
};

pub(crate) const EXIT_CODES: &str = "Exit codes:
  0  success, including a closed pipe
  1  operation failed or output could not be written
  2  bad input: flags, files or values; standard error says what and what to write instead";

/// A software RoCEv2 NIC you program like a real one.
#[derive(Debug, Parser)]
#[command(
    name = "ferroce",
    version,
    infer_subcommands = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES,
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    before: device::Before,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.command {
            Command::Object(object) => object.run(self.before, to),
            Command::Work(work) => self.before.refuse().and_then(|()| work.run(to)),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Work(Work),
    #[command(flatten)]
    Object(device::Object),
}

/// One variant and one module for each object; the module owns its arguments.
#[derive(Debug, Subcommand)]
enum Work {
    Run(run::Command),
    Env(run::Env),
    Install(install::Install),
    Completions(install::Completions),
    Sysfs(run::Sysfs),
    Serve(serve::Command),
    Demo(demo::Command),
    /// Adaptive retransmission: check, import, replay, draw and apply profiles
    Adp(adp::Command),
    Reg(reg::Reg),
    Mlxreg(mlxreg::Mlxreg),
    Sim(sim::Command),
    Sweep(sweep::Command),
    /// Explain device behaviour
    Explain(explain::Command),
    Identify(identify::Identify),
    Pcap(pcap::Command),
    Schema(json::Schema),
    Version(json::Version),
}

impl Work {
    fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self {
            Self::Run(command) => command.run(to),
            Self::Env(command) => command.run(to),
            Self::Install(command) => command.run(to),
            Self::Completions(command) => command.run(to),
            Self::Sysfs(command) => command.run(to),
            Self::Serve(command) => command.run(to),
            Self::Demo(command) => command.run(to),
            Self::Adp(command) => command.run(to),
            Self::Reg(command) => command.run(to),
            Self::Mlxreg(command) => command.run(to),
            Self::Sim(command) => command.run(to),
            Self::Sweep(command) => command.run(to),
            Self::Explain(command) => command.run(to),
            Self::Identify(command) => command.run(to),
            Self::Pcap(command) => command.run(to),
            Self::Schema(command) => command.run(to),
            Self::Version(command) => command.run(to),
        }
    }
}

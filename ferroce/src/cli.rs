//! The tree of commands.

use clap::{Parser, Subcommand};

use crate::output::{Failure, Output};
use crate::{adp, demo, device, explain, run};

pub(crate) const EXIT_CODES: &str = "Exit codes:
  0  success; also when the reader of a pipe went away
  1  the work could not be done, or its output not written
  2  bad input: flags, files or values; standard error says what and what to write instead";

/// A RoCEv2 network card in software that can be programmed like the real one.
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
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.command {
            Command::Adp(command) => command.run(to),
            Command::Demo(command) => command.run(to),
            Command::Dev(command) => command.run(to),
            Command::Env(command) => command.run(to),
            Command::Explain(command) => command.run(to),
            Command::Impair(command) => command.run(to),
            Command::Install(command) => command.run(to),
            Command::Run(command) => command.run(to),
            Command::Stat(command) => command.run(to),
            Command::Sysfs(command) => command.run(to),
        }
    }
}

/// One variant and one module for each object; the module owns its arguments.
#[derive(Debug, Subcommand)]
enum Command {
    /// Adaptive retransmission: check, replay, encode and draw profiles
    Adp(adp::Command),
    Demo(demo::Command),
    Dev(device::Dev),
    Env(run::Env),
    /// Why it behaves as it does
    Explain(explain::Command),
    Impair(device::Impair),
    Install(run::Install),
    Run(run::Command),
    Stat(device::Stat),
    Sysfs(run::Sysfs),
}

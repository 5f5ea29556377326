//! `ferroce torture`: random programs on devices, until something does not hold.
//!
//! | module | does |
//! |---|---|
//! | `fabric` | plays scripts in virtual time |
//! | `sockets` | plays rounds on this host, in real time |
//! | `round` | one of them: programs, and what happens to them |
//! | `crew`, `protocol` | its processes, and what they and the round tell each other |
//! | `program`, `flow` | such a process, and one end of a connection with its checks |

mod crew;
mod fabric;
mod flow;
mod program;
mod protocol;
mod round;
mod sockets;

use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::output::exit_codes;
use crate::output::{Failure, Output};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce torture                                a thousand seeds
  ferroce torture --minutes 60 --findings found  an hour; findings go to found/
  ferroce torture --replay found/17.txt          play a script again
  ferroce torture --world sockets                programs of this host"
);

/// Torture devices with random programs, and check everything they do
///
/// Each seed becomes a script: hosts, memory, connections, requests legal and not, and faults of every kind. It is
/// played on real devices and compared with a model. A script that breaks a rule is shortened and printed. A seed
/// always does the same. A device that does not return from a call within 30 s ends the command, with its script.
///
/// With --world sockets, each seed is a round of about ten seconds: programs of this host share devices, send each other
/// messages, and are stopped, debugged and killed. Each program checks what it receives. A seed determines what happens,
/// but not when the system runs which process.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Command {
    /// Number of seeds [default: 1000, 10 with --world sockets, without end with --minutes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    from: u64,
    /// Stop after M minutes
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: Option<u64>,
    /// Where devices run
    #[arg(long, value_name = "WORLD", value_enum, default_value_t = World::Fabric)]
    world: World,
    /// Seeds at the same time [default: as many as processors, 1 with --world sockets]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Write the shortened script of each finding, or what happened in its round, to DIR/SEED.txt
    #[arg(long, value_name = "DIR")]
    findings: Option<PathBuf>,
    /// Play this script instead of seeds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "from", "minutes", "threads", "findings"])]
    replay: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
    /// Be a program of a round, which finds its device in this directory
    #[arg(long, hide = true, num_args = 2, value_names = ["DIR", "NAME"])]
    program: Vec<PathBuf>,
    /// Have its device served by a process of its own
    #[arg(long, hide = true)]
    card_process: bool,
}

/// Where devices run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum World {
    /// In a simulated network, in virtual time
    Fabric,
    /// In processes of this host, on addresses of its loopback network
    Sockets,
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        if let [directory, device] = self.program.as_slice() {
            let device = device.to_string_lossy();
            return program::run(directory, &device, self.card_process);
        }
        match (self.world, &self.replay) {
            (World::Fabric, Some(file)) => self.replay(file, to),
            (World::Fabric, None) => self.play_seeds(to),
            (World::Sockets, None) => self.play_rounds(to),
            (World::Sockets, Some(_)) => Err(Failure::input(
                "--replay is for --world fabric; a round of --world sockets has no script, so write its seed: \
                 --seeds 1 --from SEED",
            )),
        }
    }

    /// Makes the directory for findings, if there is to be one.
    fn make_directory(&self) -> Result<(), Failure> {
        let Some(directory) = &self.findings else {
            return Ok(());
        };
        fs::create_dir_all(directory).map_err(|error| {
            Failure::input(format_args!("cannot make {}: {error}", directory.display()))
        })
    }
}

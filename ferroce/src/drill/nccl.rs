//! `ferroce drill nccl`.

mod host;
mod settings;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use ferroce_dynlib::Version;
use ferroce_nccl::{Interface, KNOWN};

pub(super) use self::host::Host;
use self::settings::Failover;
use super::adapter::{Adapter, Outlook, too_old};
use super::campaign::Campaign;
use super::release::{Package, Python, Release, own_command};
use super::settings::Settings;
use crate::output::{Failure, Output, exit_codes};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce drill nccl --nccl 2.27.7,2.32.3 --outage 300ms,3s
  ferroce drill nccl --library ./libnccl.so.2 --rails 1 --profile link-flap
  ferroce drill nccl --nccl 2.32.3 --failover on,recovery --outage forever
  ferroce drill nccl --nccl 2.32.3 --env NCCL_IB_TIMEOUT=14 -o drill.html
  ferroce drill nccl --nccl 2.32.3 --events plan.txt   1s h0r0 down for 300ms"
);

const PACKAGE: Package = Package {
    title: "NCCL",
    name: "nccl",
    requirement: |version| Interface::of(version).map(|_| format!("nvidia-nccl-cu12=={version}")),
    needs: &[],
    library: ("nvidia/nccl/lib", "libnccl.so.2"),
    python: Python::Any,
    examples: "2.27.7,2.32.3",
    known: KNOWN,
    download: "200 to 350 MB",
    room_bytes: 900_000_000,
};

/// Rehearse failures with NCCL: its InfiniBand code, as released, sends around a ring of processes on this
/// host while a port goes down
///
/// No GPU is needed: buffers are in host memory. Each host of the ring is a process with devices of its
/// own on loopback addresses, which exist only for the drill. Every byte that arrives is checked. The table
/// says for how long traffic stood still, when it moved to other rails and back, how it ended, and what
/// `ferroce explain timeout` predicts; a run that went otherwise is marked with !.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Drill {
    /// Releases of NCCL, comma-separated; those that are not in the cache are downloaded with pip
    #[arg(long = "nccl", value_name = "VERSION", value_delimiter = ',')]
    versions: Vec<String>,
    /// A library of your own, libnccl.so.2
    #[arg(long, value_name = "FILE")]
    library: Vec<PathBuf>,
    /// Use each rail for channels of its own, instead of all rails for each channel: without it rails are
    /// merged, which failover requires
    #[arg(long)]
    separate: bool,
    /// NCCL's failover: off, on, recovery (on, and back), comma-separated: a run for each
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_enum)]
    failover: Vec<Failover>,
    #[command(flatten)]
    campaign: Campaign,
}

impl Drill {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        self.campaign.run(&self, to)
    }
}

impl Adapter for Drill {
    type Mode = Failover;

    const PACKAGE: &'static Package = &PACKAGE;
    const OPTION: &'static str = "failover";
    const PREFIXES: &'static [&'static str] = &["NCCL_", "IB_"];
    const VARIABLE: &'static str = "NCCL_IB_TIMEOUT=22";

    fn releases(&self, to: &mut Output<'_>) -> Result<Vec<Release>, Failure> {
        PACKAGE.releases(&self.versions, &self.library, command, to)
    }

    fn modes(&self) -> &[Failover] {
        &self.failover
    }

    fn lacking(&self, version: Version, mode: &Failover) -> Option<String> {
        let since = mode.since().filter(|since| version < *since)?;
        Some(too_old(Self::TITLE, version, since))
    }

    fn variables(&self, version: Version, settings: &Settings<Failover>) -> Vec<(String, String)> {
        settings::variables(settings, version)
    }

    fn outlook(&self, version: Version, settings: &Settings<Failover>) -> Outlook {
        Outlook {
            timeout: Some(settings::timeout(version)),
            is_merged: !self.separate && Interface::of(version) > Some(Interface::V8),
            fails_over: settings::fails_over(settings),
            recovers: settings::recovers(settings),
            ..Outlook::of("nccl")
        }
    }

    fn host(
        &self,
        release: &Release,
        _: &Settings<Failover>,
        _: &[String],
    ) -> Result<Command, Failure> {
        let mut command = command(&release.file)?;
        if self.separate {
            command.arg("--separate");
        }
        Ok(command)
    }
}

fn command(library: &Path) -> Result<Command, Failure> {
    own_command("nccl-host", library)
}

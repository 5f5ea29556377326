//! `ferroce drill nixl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use ferroce_dynlib::Version;

use super::adapter::{Adapter, Outlook};
use super::campaign::Campaign;
use super::python;
use super::release::{Package, Python, Release};
use super::settings::{Settings, name_of};
use super::ucx::{self, Errors};
use crate::output::{Failure, Output, exit_codes};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce drill nixl --nixl 0.10.1,1.5.1 --outage 300ms,3s
  ferroce drill nixl --nixl 1.5.1 --errors none,peer --outage forever
  ferroce drill nixl --nixl 1.5.1 --env UCX_RC_TIMEOUT=50ms -o drill.html"
);

const PACKAGE: Package = Package {
    title: "NIXL",
    name: "nixl",
    requirement: |version| {
        let is_known = matches!((version.major, version.minor), (0, 10..) | (1, ..=5));
        is_known.then(|| format!("nixl-cu12=={version}.*"))
    },
    needs: &["numpy"],
    library: ("nixl_cu12", "_bindings."),
    python: Python::Own,
    examples: "0.10.1,1.5.1",
    known: "0.10 to 1.5",
    download: "40 to 100 MB",
    room_bytes: 450_000_000,
};

/// Rehearse failures with NIXL: its backend UCX, as released, writes around a ring of processes on this
/// host while a port goes down
///
/// No GPU is needed: buffers are in host memory. Each host of the ring is a Python process with devices of
/// its own on loopback addresses, which exist only for the drill; UCX spreads each write over all rails.
/// Every byte that arrives is checked. The table says for how long traffic stood still, when it moved to
/// other rails and back, how it ended, and what `ferroce explain timeout` predicts; a run that went
/// otherwise is marked with !.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Drill {
    /// Releases of NIXL, comma-separated; those that are not in the cache are downloaded with pip
    #[arg(long = "nixl", value_name = "VERSION", value_delimiter = ',')]
    versions: Vec<String>,
    /// A library of your own, nixl_cu12/_bindings.cpython-….so of an installed package
    #[arg(long, value_name = "FILE")]
    library: Vec<PathBuf>,
    /// The error mode of UCX's endpoints, comma-separated: a run for each
    #[arg(
        long,
        value_name = "MODE",
        value_delimiter = ',',
        value_enum,
        default_value = "peer"
    )]
    errors: Vec<Errors>,
    #[command(flatten)]
    campaign: Campaign,
}

impl Drill {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        self.campaign.run(&self, to)
    }
}

impl Adapter for Drill {
    type Mode = Errors;

    const PACKAGE: &'static Package = &PACKAGE;
    const OPTION: &'static str = "errors";
    const PREFIXES: &'static [&'static str] = &["UCX_"];
    const VARIABLE: &'static str = "UCX_RC_TIMEOUT=2s";

    fn releases(&self, to: &mut Output<'_>) -> Result<Vec<Release>, Failure> {
        PACKAGE.releases(&self.versions, &self.library, command, to)
    }

    fn modes(&self) -> &[Errors] {
        &self.errors
    }

    fn lacking(&self, version: Version, mode: &Errors) -> Option<String> {
        (*mode == Errors::Failover)
            .then(|| format!("the backend UCX of NIXL {version} has the modes none and peer only"))
    }

    fn variables(&self, _: Version, settings: &Settings<Errors>) -> Vec<(String, String)> {
        settings.variables(&ucx::DEFAULTS, &[])
    }

    fn outlook(&self, _: Version, _: &Settings<Errors>) -> Outlook {
        Outlook::of("nixl")
    }

    fn host(
        &self,
        release: &Release,
        settings: &Settings<Errors>,
        rails: &[String],
    ) -> Result<Command, Failure> {
        let mut command = command(&release.file)?;
        let errors = settings.mode.unwrap_or(Errors::Peer);
        command.arg("--errors").arg(name_of(&errors));
        command.env("UCX_NET_DEVICES", rails.join(","));
        Ok(command)
    }
}

fn command(library: &Path) -> Result<Command, Failure> {
    python::command(python::program!("nixl.py"), "PyInit__bindings", library)
}

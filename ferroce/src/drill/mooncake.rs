//! `ferroce drill mooncake`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use ferroce_dynlib::Version;

use super::adapter::{Adapter, NoMode, Outlook};
use super::campaign::Campaign;
use super::python;
use super::release::{Package, Python, Release};
use super::settings::Settings;
use crate::output::{Failure, Output, exit_codes};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce drill mooncake --mooncake 0.3.13 --outage 300ms,3s
  ferroce drill mooncake --mooncake 0.3.13 --outage 7s,forever --after 30s
  ferroce drill mooncake --mooncake 0.3.13 --rails 2 --profile link-flap"
);

const PACKAGE: Package = Package {
    title: "Mooncake",
    name: "mooncake",
    requirement: |version| {
        let is_known = (version.major, version.minor) == (0, 3);
        is_known.then(|| format!("mooncake-transfer-engine-non-cuda=={version}.*"))
    },
    needs: &[],
    library: ("mooncake", "engine."),
    python: Python::Own,
    examples: "0.3.13",
    known: "releases of 0.3",
    download: "46 MB",
    room_bytes: 210_000_000,
};

/// Rehearse failures with Mooncake: its transfer engine, as released, writes around a ring of processes on
/// this host while a port goes down
///
/// Each host of the ring is a Python process with devices of its own on loopback addresses, which exist
/// only for the drill; the engine spreads each write over all rails. Every byte that arrives is checked.
/// The table says for how long traffic stood still, when it moved to other rails and back, how it ended,
/// and what `ferroce explain timeout` predicts; a run that went otherwise is marked with !.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, mut_arg("rails", |arg| arg.default_value("4")))]
pub(crate) struct Drill {
    /// Releases of Mooncake, comma-separated; those that are not in the cache are downloaded with pip
    #[arg(long = "mooncake", value_name = "VERSION", value_delimiter = ',')]
    versions: Vec<String>,
    /// A library of your own, mooncake/engine.so of an installed package
    #[arg(long, value_name = "FILE")]
    library: Vec<PathBuf>,
    #[command(flatten)]
    campaign: Campaign,
}

/// How often a part of a write is tried: `MC_RETRY_CNT` by default.
const ATTEMPTS: u64 = 9;

impl Drill {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        self.campaign.run(&self, to)
    }
}

impl Adapter for Drill {
    type Mode = NoMode;

    const PACKAGE: &'static Package = &PACKAGE;
    const PREFIXES: &'static [&'static str] = &["MC_"];
    const VARIABLE: &'static str = "MC_RETRY_CNT=3";

    fn releases(&self, to: &mut Output<'_>) -> Result<Vec<Release>, Failure> {
        PACKAGE.releases(&self.versions, &self.library, command, to)
    }

    fn variables(&self, _: Version, settings: &Settings<NoMode>) -> Vec<(String, String)> {
        settings.variables(&[], &[])
    }

    fn outlook(&self, _: Version, _: &Settings<NoMode>) -> Outlook {
        Outlook {
            heeds_ports: true,
            attempts: ATTEMPTS,
            fails_over: true,
            ..Outlook::of("mooncake")
        }
    }

    fn host(
        &self,
        release: &Release,
        _: &Settings<NoMode>,
        rails: &[String],
    ) -> Result<Command, Failure> {
        let mut command = command(&release.file)?;
        let devices = rails.iter().map(|rail| match rail.strip_suffix(":1") {
            Some(device) => Ok(device),
            None => Err(Failure::input(
                "Mooncake uses the first port of a card only; leave --two-ports out",
            )),
        });
        let devices = devices.collect::<Result<Vec<_>, _>>()?;
        command.arg("--rails").arg(devices.join(","));
        Ok(command)
    }
}

fn command(library: &Path) -> Result<Command, Failure> {
    python::command(python::program!("mooncake.py"), "PyInit_engine", library)
}

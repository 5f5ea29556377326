//! `ferroce drill ucx`.

mod host;
mod put;
mod tag;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use ferroce_dynlib::Version;
use ferroce_ucx::ErrorMode;

pub(super) use self::host::Host;
use super::adapter::{Adapter, Outlook, too_old};
use super::campaign::Campaign;
use super::release::{Package, Python, Release, own_command};
use super::settings::{Settings, name_of};
use crate::output::{Failure, Output, exit_codes};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce drill ucx --ucx 1.20.0,1.23.0 --outage 300ms,3s
  ferroce drill ucx --ucx 1.22.0 --operation put --errors peer,failover
  ferroce drill ucx --ucx 1.22.0 --env UCX_RC_TIMEOUT=50ms
  ferroce drill ucx --library ./libucp.so.0 --rails 1 --profile link-flap"
);

const PACKAGE: Package = Package {
    title: "UCX",
    name: "ucx",
    requirement,
    needs: &[],
    library: ("nixl_cu12.libs", "libucp-"),
    python: Python::Fixed("3.12"),
    examples: "1.20.0,1.23.0",
    known: "1.19.0, 1.20.0, 1.21.0, 1.22.0 and 1.23.0",
    download: "24 to 82 MB",
    room_bytes: 350_000_000,
};

/// Releases of NIXL, each with the UCX in it. UCX's own packages leave out its transports over verbs.
const NIXL: [(&str, &str); 5] = [
    ("1.19.0", "0.7.1"),
    ("1.20.0", "0.10.1"),
    ("1.21.0", "1.3.2"),
    ("1.22.0", "1.4.1"),
    ("1.23.0", "1.5.1"),
];

fn requirement(version: Version) -> Option<String> {
    let mut all = NIXL.iter();
    let (_, nixl) = all.find(|(ucx, _)| Version::parse(ucx) == Some(version))?;
    Some(format!("nixl-cu12=={nixl}"))
}

/// Rehearse failures with UCX: a released UCX sends around a ring of processes on this host while a port
/// goes down
///
/// Each host of the ring is a process with devices of its own on loopback addresses, which exist only for
/// the drill, and an endpoint to the next host for each channel. UCX spreads each message over all rails.
/// Every byte that arrives is checked. The table says for how long traffic stood still, when it moved to
/// other rails and back, how it ended, and what `ferroce explain timeout` predicts; a run that went
/// otherwise is marked with !.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Drill {
    /// Releases of UCX, comma-separated; those that are not in the cache are downloaded with pip
    #[arg(long = "ucx", value_name = "VERSION", value_delimiter = ',')]
    versions: Vec<String>,
    /// A library of your own, libucp.so.0, with the others of UCX beside it
    #[arg(long, value_name = "FILE")]
    library: Vec<PathBuf>,
    /// What channels use
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Operation::Tag)]
    operation: Operation,
    /// The error mode of endpoints, comma-separated: a run for each
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

/// What channels use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(in crate::drill) enum Operation {
    /// Tagged messages
    Tag,
    /// One-sided writes, and a flag after each
    Put,
}

/// The error mode of endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(in crate::drill) enum Errors {
    /// Errors are not handled
    None,
    /// An endpoint fails if a rail of it does
    Peer,
    /// An endpoint goes on with the rails that are left
    Failover,
}

impl Errors {
    fn mode(self) -> ErrorMode {
        match self {
            Self::None => ErrorMode::None,
            Self::Peer => ErrorMode::Peer,
            Self::Failover => ErrorMode::Failover,
        }
    }
}

/// The first release that has failover.
const FAILOVER: Version = Version {
    major: 1,
    minor: 22,
    patch: 0,
};

/// The most rails that UCX uses for a message by default are fewer.
const RAILS: &str = "4";
/// What the hosts of a drill need unless the user has set it: the reliable transport over verbs, and all
/// rails for each message.
pub(super) const DEFAULTS: [(&str, &str); 5] = [
    ("UCX_TLS", "rc_v,self"),
    ("UCX_MAX_RNDV_RAILS", RAILS),
    ("UCX_MAX_RMA_RAILS", RAILS),
    ("UCX_LOG_FILE", "/dev/stderr"),
    ("UCX_LOG_LEVEL", "info"),
];

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
        match (mode, self.operation) {
            (Errors::Failover, _) if version < FAILOVER => {
                Some(too_old(Self::TITLE, version, FAILOVER))
            }
            (Errors::Failover, Operation::Tag) => Some(format!(
                "UCX {version} has no protocol for tagged messages with it; add --operation put"
            )),
            _ => None,
        }
    }

    fn variables(&self, _: Version, settings: &Settings<Errors>) -> Vec<(String, String)> {
        settings.variables(&DEFAULTS, &[])
    }

    fn outlook(&self, _: Version, settings: &Settings<Errors>) -> Outlook {
        Outlook {
            fails_over: settings.mode == Some(Errors::Failover),
            ..Outlook::of("ucx")
        }
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
        command.arg("--operation").arg(name_of(&self.operation));
        command.env("UCX_NET_DEVICES", rails.join(","));
        Ok(command)
    }
}

fn command(library: &Path) -> Result<Command, Failure> {
    own_command("ucx-host", library)
}

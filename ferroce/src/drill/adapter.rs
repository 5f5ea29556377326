//! What a drill has to know of a library.

use std::process::Command;

use clap::ValueEnum;
use ferroce_dynlib::Version;

use super::plan::What;
use super::release::{Package, Release};
use super::settings::Settings;
use crate::output::{Failure, Output};

/// A library, as it was asked for.
pub(super) trait Adapter {
    /// What an option of the library chooses: failover for one, error modes for another. A run for each.
    type Mode: ValueEnum + Clone;

    /// Where it comes from.
    const PACKAGE: &'static Package;
    /// Its name in text.
    const TITLE: &'static str = Self::PACKAGE.title;
    /// What an option for the mode is called.
    const OPTION: &'static str = "";
    /// Prefixes of variables that go without saying.
    const PREFIXES: &'static [&'static str];
    /// A variable with a value, for messages.
    const VARIABLE: &'static str;

    /// The releases that are asked for. What is not there is downloaded.
    fn releases(&self, to: &mut Output<'_>) -> Result<Vec<Release>, Failure>;
    /// The modes that are asked for; none if the library decides.
    fn modes(&self) -> &[Self::Mode] {
        &[]
    }
    /// Why a release cannot run with a mode; `None` if it can.
    fn lacking(&self, _: Version, _: &Self::Mode) -> Option<String> {
        None
    }
    /// All variables of a host's process but those that only one host has.
    fn variables(&self, version: Version, settings: &Settings<Self::Mode>)
    -> Vec<(String, String)>;
    /// What it can be expected to do.
    fn outlook(&self, version: Version, settings: &Settings<Self::Mode>) -> Outlook;
    /// Why something cannot happen to hosts of this library; `None` if it can.
    fn refusal(&self, _: &What) -> Option<&'static str> {
        None
    }
    /// The `mpirun` that starts all hosts; `None` if the drill does. It may end them all if it sees fit.
    fn launcher(&self, _: &Release) -> Result<Option<Command>, Failure> {
        Ok(None)
    }
    /// Starts a host, which is told its position by what is added to the command. Rails are named by
    /// device and port, `h0r0:1`.
    fn host(
        &self,
        release: &Release,
        settings: &Settings<Self::Mode>,
        rails: &[String],
    ) -> Result<Command, Failure>;
}

/// The mode of a library that has none.
#[derive(Clone, Debug, ValueEnum)]
pub(super) enum NoMode {}

/// What a library can be expected to do when queue pairs fail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// The name for which `ferroce explain timeout` knows timeouts and retry counts.
    pub(super) app: &'static str,
    /// The timeout that this release has by default, where that differs.
    pub(super) timeout: Option<u64>,
    /// Whether all rails carry each connection.
    pub(super) is_merged: bool,
    /// Whether it gives up the connections of a port that goes down, for however short a time, and looks
    /// for another rail only then.
    pub(super) heeds_ports: bool,
    /// How often it tries when queue pairs give up, one attempt after the other.
    pub(super) attempts: u64,
    /// Whether its hosts are one job: a process that cannot go on ends, and all others with it.
    pub(super) is_a_job: bool,
    /// Whether traffic moves to other rails.
    pub(super) fails_over: bool,
    /// Whether it moves back.
    pub(super) recovers: bool,
}

impl Outlook {
    /// Of a library with all rails in each connection, which returns an error when queue pairs give up.
    pub(super) fn of(app: &'static str) -> Self {
        Self {
            app,
            timeout: None,
            is_merged: true,
            heeds_ports: false,
            attempts: 1,
            is_a_job: false,
            fails_over: false,
            recovers: false,
        }
    }
}

/// Why a release that is older than this one cannot do something.
pub(super) fn too_old(title: &str, version: Version, since: Version) -> String {
    let Version { major, minor, .. } = since;
    format!("{title} {version} does not have it, releases from {major}.{minor} on do")
}

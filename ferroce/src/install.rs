//! `ferroce install` and `completions`: put the program where other programs and shells find it.
//!
//! | module | purpose |
//! |---|---|
//! | `put` | files and links that replace older ones |
//! | `share` | profiles, dashboards, completions, manual pages |

pub(crate) mod put;
mod share;

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::output::{Failure, Output};
use crate::run::Libraries;

/// Copy this program and what belongs to it into a directory, for a user or an image
///
/// DIR/bin/ferroce then works without its build directory. DIR/lib/ferroce has the libraries under
/// the names of those they replace; only `ferroce run` loads them from there. DIR/share has manual
/// pages, completions for bash, zsh and fish, a systemd unit for the exporter, and in
/// DIR/share/ferroce the built-in profiles, a dashboard for Grafana, rules for Prometheus, and JSON
/// schemas.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(crate) struct Install {
    /// Where bin, lib/ferroce and share are or will be, for example /usr/local
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Install {
    pub(crate) fn run(self, _: &mut Output<'_>) -> Result<(), Failure> {
        Libraries::find()?.install(&self.directory)?;
        share::install(&self.directory)
    }
}

/// Print completions for a shell
///
/// For example `source <(ferroce completions bash)`. `ferroce install` puts them where bash, zsh
/// and fish look.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(crate) struct Completions {
    /// The shell to complete for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        Ok(to.out.write_all(&share::completions(self.shell))?)
    }
}

//! `ferroce install`, `uninstall` and `completions`: put the program where other programs and shells find
//! it.
//!
//! | module | purpose |
//! |---|---|
//! | `share` | profiles, scenarios, dashboards, completions, the manual |

mod share;

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;

pub(crate) use self::share::COMPLETION_VARIABLE;
use crate::output::{Failure, Output};
use crate::put::record::Record;
use crate::run::Libraries;

/// Copy this program and what belongs to it into a directory, for a user or an image
///
/// DIR/bin/ferroce then works without its build directory. DIR/lib/ferroce has the libraries under
/// the names of those they replace; only `ferroce run` loads them from there. DIR/share has manual
/// pages, completions for bash, zsh and fish, a systemd unit for the exporter, in DIR/share/ferroce
/// the built-in profiles, scenarios and sweeps, a dashboard for Grafana, rules for Prometheus and JSON
/// schemas, and in DIR/share/doc/ferroce the manual. `ferroce uninstall DIR` removes all of it.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Install {
    /// Where bin, lib/ferroce and share are or will be, for example /usr/local
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Install {
    /// `command` is the whole program's, which the manual describes.
    pub(crate) fn run(self, command: clap::Command, to: &mut Output<'_>) -> Result<(), Failure> {
        let prefix = &self.directory;
        let mut record = Record::begin(prefix);
        let installed = Libraries::find()?
            .install(prefix, &mut record)
            .and_then(|()| share::install(prefix, command, &mut record));
        // What was put before an error can be removed as well.
        record.finish(installed)?;
        to.text(&next(prefix))
    }
}

/// What to do after an installation.
fn next(prefix: &Path) -> String {
    let (shown, bin) = (prefix.display(), prefix.join("bin"));
    let mut text = format!(
        "installed ferroce {} in {shown}\n\nnext:\n",
        env!("CARGO_PKG_VERSION")
    );
    let path = env::var_os("PATH").unwrap_or_default();
    if !env::split_paths(&path).any(|it| it == bin) {
        let _ = writeln!(text, "  export PATH=\"{}:$PATH\"", bin.display());
    }
    text + &format!(
        "  ferroce run -- ibv_devinfo    run a program on a device\n  \
           ferroce demo                  see what retransmission timeouts do\n  \
           man ferroce                   read the manual; more is in {shown}/share/doc/ferroce\n  \
           ferroce uninstall {shown}\n"
    )
}

/// Remove what `ferroce install` put into a directory
///
/// Files that were changed since then stay, and so does everything else in the directory.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Uninstall {
    /// The directory that was given to `ferroce install`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Uninstall {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let removed = Record::remove(&self.directory)?;
        let shown = self.directory.display();
        to.text(&format!("removed {} files from {shown}\n", removed.count))?;
        for path in removed.kept {
            to.remark(format_args!("kept {}, which was changed", path.display()))?;
        }
        Ok(())
    }
}

/// Print completions for a shell
///
/// For example `source <(ferroce completions bash)`. `ferroce install` puts them where bash, zsh
/// and fish look. Devices, profiles, scenarios, registers and other names are completed as well: the shell
/// asks the ferroce in PATH for them.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Completions {
    /// The shell to complete for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        Ok(to
            .out
            .write_all(&share::completions(&self.shell.to_string())?)?)
    }
}

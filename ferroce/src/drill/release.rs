//! Releases of libraries, which pip downloads into a cache.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_dynlib::Version;
use nix::sys::statvfs::statvfs;

use super::protocol::Report;
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
    /// The package.
    pub(super) name: &'static str,
    /// The directory of its releases in the cache.
    pub(super) cache: &'static str,
    /// The library in it.
    pub(super) library: &'static str,
    /// A version that there is, for messages.
    pub(super) example: &'static str,
    /// The versions that are known, for messages.
    pub(super) known: &'static str,
    pub(super) is_known: fn(Version) -> bool,
    /// What is downloaded, for messages.
    pub(super) download: &'static str,
    /// What a release takes on disk while it is downloaded and unpacked: 1.1 times the largest that was
    /// seen.
    pub(super) room_bytes: u64,
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
                self.title, self.cache, self.example
            )));
        }
        let versions = versions.iter().map(|text| self.version(text));
        let versions = versions.collect::<Result<Vec<_>, _>>()?;
        let mut files = files.to_owned();
        for version in versions {
            files.push(self.library(version, to)?);
        }
        let release = |file: PathBuf| {
            let version = probe(&file, command(&file)?)?;
            Ok(Release { version, file })
        };
        files.into_iter().map(release).collect()
    }

    /// A version of a text that is known.
    fn version(&self, text: &str) -> Result<Version, Failure> {
        let version = Version::parse(text).ok_or_else(|| {
            Failure::input(format_args!(
                "invalid version {text:?}: must be three numbers, as in {}",
                self.example
            ))
        })?;
        match (self.is_known)(version) {
            true => Ok(version),
            false => Err(Failure::input(format_args!(
                "unknown version {version} of {}; {} are known",
                self.title, self.known
            ))),
        }
    }

    /// The library of a release, which is downloaded if it is not there.
    fn library(&self, version: Version, to: &mut Output<'_>) -> Result<PathBuf, Failure> {
        let cache = cache()?.join(self.cache);
        let place = cache.join(version.to_string());
        let library = place.join(self.library);
        if library.exists() {
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
            "downloading {} {version}, {}, into {} (pip, {})",
            self.title,
            self.download,
            place.display(),
            self.requirement(version)
        ))?;
        // Below the cache, so that it is on the same disk, and goes if this is interrupted.
        let new = tempfile::Builder::new().prefix("new-").tempdir_in(&cache);
        let new = new.map_err(|error| failed(&error))?;
        self.pip(version, new.path())?;
        let unpacked = new.path().join("unpacked");
        if !unpacked.join(self.library).exists() {
            return Err(Failure::broken(format_args!(
                "{} has no {}; give the library with --library FILE",
                self.requirement(version),
                self.library
            )));
        }
        fs::rename(unpacked, &place).map_err(|error| failed(&error))?;
        Ok(library)
    }

    /// The version for pip, and packages of the same library that were built again.
    fn requirement(&self, version: Version) -> String {
        format!("{}=={version}.*", self.name)
    }

    /// Lets pip download and unpack a release, from the index that the user has set.
    fn pip(&self, version: Version, place: &Path) -> Result<(), Failure> {
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
        command.arg("--target").arg(place.join("unpacked"));
        command.arg(self.requirement(version));
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
    let output = command.arg("--probe").output();
    let output = output.map_err(|error| Failure::broken(format_args!("cannot run it: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let reports = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    for report in reports {
        match report {
            Report::Loaded { version } => {
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

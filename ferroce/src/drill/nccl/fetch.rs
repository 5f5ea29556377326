//! Releases of NCCL, which pip downloads into a cache.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_nccl::Version;
use nix::sys::statvfs::statvfs;

use crate::output::{Failure, Output};

/// The package with the library.
const PACKAGE: &str = "nvidia-nccl-cu12";
/// The library in it.
const LIBRARY: &str = "nvidia/nccl/lib/libnccl.so.2";
/// What a release takes on disk while it is downloaded and unpacked: 1.1 times the largest that was seen.
const ROOM_BYTES: u64 = 900_000_000;

/// A version of a text, of which the interface is known.
pub(super) fn version(text: &str) -> Result<Version, Failure> {
    let version = Version::parse(text).ok_or_else(|| {
        Failure::input(format_args!(
            "invalid version {text:?}: must be three numbers, as in 2.27.7"
        ))
    })?;
    match version.interface() {
        Some(_) => Ok(version),
        None => Err(Failure::input(format_args!(
            "unknown version {version} of NCCL; {} are known",
            Version::KNOWN
        ))),
    }
}

/// The library of a release, which is downloaded if it is not there.
pub(super) fn library(version: Version, to: &mut Output<'_>) -> Result<PathBuf, Failure> {
    let cache = cache()?.join("nccl");
    let place = cache.join(version.to_string());
    let library = place.join(LIBRARY);
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
    check_room(&cache)?;
    to.remark(format_args!(
        "downloading NCCL {version}, 200 to 350 MB, into {} (pip, {PACKAGE}=={version})",
        place.display()
    ))?;
    // Below the cache, so that it is on the same disk, and goes if this is interrupted.
    let new = tempfile::Builder::new().prefix("new-").tempdir_in(&cache);
    let new = new.map_err(|error| failed(&error))?;
    pip(version, new.path())?;
    let unpacked = new.path().join("unpacked");
    if !unpacked.join(LIBRARY).exists() {
        return Err(Failure::broken(format_args!(
            "{PACKAGE}=={version} has no {LIBRARY}; give the library with --library FILE"
        )));
    }
    fs::rename(unpacked, &place).map_err(|error| failed(&error))?;
    Ok(library)
}

/// Lets pip download and unpack a release, from the index that the user has set.
fn pip(version: Version, place: &Path) -> Result<(), Failure> {
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
    command.arg(format!("{PACKAGE}=={version}"));
    // What it downloads goes onto the same disk.
    command.env("TMPDIR", place).stdin(Stdio::null());
    let output = command.output().map_err(|error| {
        Failure::broken(format_args!(
            "cannot download NCCL {version}: python3: {error}; install Python with pip, or give \
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
        "cannot download NCCL {version}: pip: {}; give --library FILE if you have it",
        reason.trim_start_matches("ERROR: ")
    )))
}

fn check_room(cache: &Path) -> Result<(), Failure> {
    let Ok(disk) = statvfs(cache) else {
        return Ok(());
    };
    let free = disk.blocks_available() * disk.fragment_size();
    if free >= ROOM_BYTES {
        return Ok(());
    }
    Err(Failure::input(format_args!(
        "no room in {}: {} MB are free, a release of NCCL takes {} MB; set XDG_CACHE_HOME to a \
         directory with more",
        cache.display(),
        free / 1_000_000,
        ROOM_BYTES / 1_000_000
    )))
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

//! Settings that a run has left on its devices because it was killed.
//!
//! A run notes what it sets in a file beside the devices and keeps that locked. The kernel unlocks
//! the file when the run ends, however that happens; a command that finds one unlocked puts back
//! what was set before, unless somebody has set something since.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ferroce_hca::Settings;
use ferroce_udp::{DeviceSpec, Registry, settings_from_bytes, settings_to_bytes};
use nix::fcntl::{Flock, FlockArg, OFlag};
use tempfile::NamedTempFile;

const PREFIX: &str = "run-";
const SUFFIX: &str = ".settings";

/// A note of what this process has set on a device. Dropping it means that it was put back.
#[derive(Debug)]
pub(crate) struct Note {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Note {
    /// Notes that `ours` has taken the place of `before`.
    pub(crate) fn write(
        registry: &Registry,
        spec: &DeviceSpec,
        before: &Settings,
        ours: &Settings,
    ) -> io::Result<Self> {
        let name = format!("{PREFIX}{}-{}{SUFFIX}", std::process::id(), label(spec));
        let path = registry.directory().join(name);
        // Locked and complete before others look for it.
        let (file, new) = NamedTempFile::new_in(registry.directory())?.into_parts();
        let mut lock = try_lock(file)?.ok_or(io::ErrorKind::WouldBlock)?;
        lock.write_all(&settings_to_bytes(before))?;
        lock.write_all(&settings_to_bytes(ours))?;
        new.persist(&path)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // What stays is found by the next command, and is out of date.
        let _ = fs::remove_file(&self.path);
    }
}

/// Puts back what runs that were killed have left on the devices, and says so.
pub(crate) fn put_back(registry: &Registry) -> Vec<String> {
    let devices = registry.devices().unwrap_or_default();
    let entries = fs::read_dir(registry.directory()).into_iter().flatten();
    let mut remarks = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some((pid, label_of)) = parse(&path) else {
            continue;
        };
        // A device that this command does not see is left for one that does.
        let Some(spec) = devices.iter().find(|spec| label(spec) == label_of) else {
            continue;
        };
        if let Ok(true) = put_back_from(&path, registry, spec) {
            remarks.push(format!(
                "note: run {pid} was killed and had left its settings on {}; they are put back",
                spec.name
            ));
        }
    }
    remarks
}

/// Whether the note's writer is dead and its settings were still there.
fn put_back_from(path: &Path, registry: &Registry, spec: &DeviceSpec) -> io::Result<bool> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    let Some(mut lock) = try_lock(file)? else {
        return Ok(false);
    };
    if lock.metadata()?.nlink() == 0 {
        return Ok(false); // somebody else has just done it
    }
    let mut bytes = Vec::new();
    lock.read_to_end(&mut bytes)?;
    let (before, ours) = bytes.split_at(bytes.len() / 2);
    let settings = settings_from_bytes(before).zip(settings_from_bytes(ours));
    let observer = registry.observe(&spec.name).map_err(io::Error::other)?;
    let is_back = match settings {
        Some((before, ours)) => observer.state().put_back(&before, &ours),
        None => Ok(false), // another release's
    };
    fs::remove_file(path)?;
    is_back.map_err(io::Error::other)
}

/// The device, whatever `FERROCE_DEVICES` makes of its name.
fn label(spec: &DeviceSpec) -> String {
    format!("{}@{}-{}", spec.name, spec.address, spec.port)
}

/// The process and the device of a note's path.
fn parse(path: &Path) -> Option<(&str, &str)> {
    let name = path.file_name()?.to_str()?;
    let middle = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    middle.split_once('-')
}

/// The lock on a file; `None` if another process has it.
fn try_lock(file: File) -> io::Result<Option<Flock<File>>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::Error::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

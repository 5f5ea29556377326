//! Settings that a killed run has left on its devices.
//!
//! A run records its settings in a file beside the devices and keeps that file locked. The kernel
//! unlocks the file when the run ends, for any reason. A command that finds an unlocked file
//! restores the previous settings, unless they have been changed since.
//!
//! Runs overlap. The records of a device's runs form a chain: each one has the settings that the
//! previous one made. When a run ends, it leaves the chain, and the next one takes over the
//! settings that it would have restored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ferroce_device::{DeviceState, Settings};
use ferroce_registry::{DeviceSpec, Registry, settings_from_bytes, settings_to_bytes};
use nix::fcntl::{Flock, FlockArg, OFlag};
use tempfile::NamedTempFile;

const PREFIX: &str = "run-";
const SUFFIX: &str = ".settings";

/// What keeps other runs from beginning and ending meanwhile.
#[derive(Debug)]
pub(crate) struct Turn {
    _lock: Flock<File>,
}

impl Turn {
    pub(crate) fn take(registry: &Registry) -> io::Result<Self> {
        let directory = File::open(registry.directory())?;
        match Flock::lock(directory, FlockArg::LockExclusive) {
            Ok(lock) => Ok(Self { _lock: lock }),
            Err((_, error)) => Err(error.into()),
        }
    }
}

/// A note of what this process has set on a device. Dropping it means that it was put back.
#[derive(Debug)]
pub(crate) struct Note {
    path: PathBuf,
    lock: Flock<File>,
}

impl Note {
    /// Notes that `ours` has taken the place of `before`.
    pub(crate) fn write(
        _turn: &Turn,
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
        Ok(Self { path, lock })
    }

    /// Ends the run: puts back what it has found, or has the run after it do so later. Answers whether
    /// the settings were the run's, or another's that has found them.
    pub(crate) fn end(self, _turn: &Turn, state: &DeviceState) -> io::Result<bool> {
        match Content::of(&self.lock)? {
            Some(content) => content.leave(&self.path, state),
            None => Ok(false),
        }
    }
}

/// What a note says.
struct Content {
    before: Settings,
    ours: Settings,
}

impl Content {
    /// `None` if it is of another release.
    fn of(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        let (before, ours) = bytes.split_at(bytes.len() / 2);
        let settings = settings_from_bytes(before).zip(settings_from_bytes(ours));
        Ok(settings.map(|(before, ours)| Self { before, ours }))
    }

    /// Leaves the chain of the runs of a device, of which the note at `path` is one.
    fn leave(&self, path: &Path, state: &DeviceState) -> io::Result<bool> {
        let Some((_, label)) = parse(path) else {
            return Ok(false);
        };
        for (next, its_label) in notes(path.parent()) {
            if its_label != label || next == path {
                continue;
            }
            let file = open(&next)?;
            let content = Self::of(&file)?;
            if content.is_some_and(|content| content.before == self.ours) {
                // Both halves have one length.
                file.write_all_at(&settings_to_bytes(&self.before), 0)?;
                return Ok(true);
            }
        }
        let is_back = state.put_back(&self.before, &self.ours);
        is_back.map_err(io::Error::other)
    }
}

/// The notes in a directory, each with the label of its device.
fn notes(directory: Option<&Path>) -> Vec<(PathBuf, String)> {
    let entries = directory.and_then(|directory| fs::read_dir(directory).ok());
    let paths = entries.into_iter().flatten().flatten();
    let labelled = paths.filter_map(|entry| {
        let path = entry.path();
        let label = parse(&path)?.1.to_owned();
        Some((path, label))
    });
    labelled.collect()
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
}

impl Drop for Note {
    fn drop(&mut self) {
        // What stays is found by the next command, and is out of date.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a run that goes on has set something on the device.
pub(crate) fn has_run(registry: &Registry, spec: &DeviceSpec) -> bool {
    let label = label(spec);
    let mut of_device = notes(Some(registry.directory()))
        .into_iter()
        .filter(|(_, label_of)| *label_of == label);
    of_device.any(|(path, _)| {
        let lock = open(&path).and_then(try_lock);
        lock.is_ok_and(|lock| lock.is_none())
    })
}

/// Puts back what runs that were killed have left on the devices, and says so.
pub(crate) fn put_back(registry: &Registry) -> Vec<String> {
    let devices = registry.links().unwrap_or_default();
    let left = notes(Some(registry.directory()));
    if left.is_empty() {
        return Vec::new();
    }
    let Ok(_turn) = Turn::take(registry) else {
        return Vec::new();
    };
    let mut remarks = Vec::new();
    for (path, label_of) in left {
        // A device that this command does not see is left for one that does.
        let Some(spec) = devices.iter().find(|spec| label(spec) == label_of) else {
            continue;
        };
        if let (Ok(true), Some((pid, _))) = (put_back_from(&path, registry, spec), parse(&path)) {
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
    let Some(lock) = try_lock(open(path)?)? else {
        return Ok(false);
    };
    if lock.metadata()?.nlink() == 0 {
        return Ok(false); // somebody else has just done it
    }
    let observer = registry.observe(&spec.name).map_err(io::Error::other)?;
    let is_back = match Content::of(&lock)? {
        Some(content) => content.leave(path, observer.state()),
        None => Ok(false),
    };
    fs::remove_file(path)?;
    is_back
}

/// The device, whatever `FERROCE_DEVICES` makes of its name; a link by its address.
fn label(spec: &DeviceSpec) -> String {
    format!("{}@{}-{}", spec.device_name(), spec.address, spec.port)
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

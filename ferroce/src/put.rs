//! Files and links that replace older ones atomically.

pub(crate) mod record;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::output::Failure;

/// The absolute path of a file that is still to be written, if there can be one.
pub(crate) fn place(path: &Path) -> Result<PathBuf, Failure> {
    let bad = |reason: &str| {
        Failure::input(format_args!(
            "cannot write {}: {reason}; name a file in a directory that exists",
            path.display()
        ))
    };
    let absolute = std::path::absolute(path).map_err(|error| bad(&error.to_string()))?;
    match absolute.parent() {
        Some(parent) if parent.is_dir() && !absolute.is_dir() => Ok(absolute),
        _ => Err(bad("its directory does not exist, or it is one itself")),
    }
}

/// Makes a directory and those above it.
pub(crate) fn directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| cannot_write(path, &error))
}

/// A file with this content, readable by everyone.
pub(crate) fn file(path: &Path, content: &[u8]) -> Result<(), Failure> {
    replace(path, |new| fs::write(new, content))
}

/// A copy of a file, with its permissions.
pub(crate) fn copy(path: &Path, source: &Path) -> Result<(), Failure> {
    replace(path, |new| fs::copy(source, new).map(drop))
}

/// A link to a target; one that is there already stays.
pub(crate) fn link(path: &Path, target: &Path) -> Result<(), Failure> {
    if fs::read_link(path).is_ok_and(|old| old == target) {
        return Ok(());
    }
    replace(path, |new| symlink(target, new))
}

/// Makes the new file under another name and moves it over the old one, which programs that have
/// it open keep.
fn replace(path: &Path, make: impl FnMut(&Path) -> io::Result<()>) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    let made = tempfile::Builder::new().make_in(directory, make);
    let moved = made.and_then(|new| Ok(new.persist(path)?));
    moved.map_err(|error| cannot_write(path, &error))
}

/// Why something was not installed.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull => Failure::broken(format_args!("cannot write {path}: {error}")),
        _ => Failure::input(format_args!(
            "cannot write {path}: {error}; name a directory you own"
        )),
    }
}

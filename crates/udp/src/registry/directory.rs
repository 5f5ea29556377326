//! Directories that are the user's own.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::RegistryError;
use crate::sys;

/// The directory for this user and network namespace.
pub(super) fn find() -> Result<PathBuf, RegistryError> {
    let base = private(&base())?;
    private(&base.join(namespace()))
}

fn base() -> PathBuf {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directory) = variable("FERROCE_DIR") {
        return directory.into();
    }
    let own = format!("ferroce-{}", sys::effective_uid());
    // The same for all programs of a user, whichever way each was started, comes first.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return memory.join(own);
    }
    match variable("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(directory) if directory.is_dir() => directory.join("ferroce"),
        _ => Path::new("/tmp").join(own),
    }
}

/// Network namespaces have addresses of their own, and so devices of their own.
fn namespace() -> String {
    match fs::metadata("/proc/self/ns/net") {
        Ok(namespace) => format!("net-{}", namespace.ino()),
        // Without /proc there is no telling namespaces apart.
        Err(_) => "net".to_owned(),
    }
}

/// Makes a directory that only the user may enter, or checks that the one there is such.
pub(super) fn private(path: &Path) -> Result<PathBuf, RegistryError> {
    let failed = |source| RegistryError::Directory {
        path: path.to_owned(),
        source,
    };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let there = fs::symlink_metadata(path).map_err(failed)?;
    let wrong = |reason: &str| {
        Err(failed(io::Error::new(
            io::ErrorKind::PermissionDenied,
            reason,
        )))
    };
    if !there.is_dir() {
        return wrong("it is not a directory");
    }
    if there.uid() != sys::effective_uid() {
        return wrong("it belongs to another user");
    }
    if there.mode() & 0o077 != 0 {
        return wrong("other users may enter it (`chmod 700` it)");
    }
    Ok(path.to_owned())
}

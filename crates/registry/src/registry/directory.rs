//! Directories that belong to the user alone.

use std::env;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ferroce_os::{self as os, NetworkNamespace};

use super::RegistryError;

/// The directory for this user and network namespace.
pub(super) fn find() -> Result<PathBuf, RegistryError> {
    let (base, is_local) = base();
    within(&base, is_local)
}

/// That of this network namespace in a directory of the user's, which perhaps only this machine has.
pub(super) fn within(base: &Path, is_local: bool) -> Result<PathBuf, RegistryError> {
    let base = private(base)?;
    let name = Name::own();
    let path = base.join(name.to_string());
    let is_new = !path.exists();
    let path = private(&path)?;
    if is_new {
        sweep(&base, &name, is_local);
    }
    Ok(path)
}

/// The directory of this user, and whether only this machine can have it.
fn base() -> (PathBuf, bool) {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directory) = variable("FERROCE_DIR") {
        return (directory.into(), false);
    }
    // In a user namespace the user has another number; a user who is root there does not have that of the
    // root who may have a directory already.
    let own = format!("ferroce-{}", os::outer_uid());
    // The same for all programs of a user, whichever way each was started, comes first.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return (memory.join(own), true);
    }
    match variable("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(directory) if directory.is_dir() => (directory.join("ferroce"), true),
        _ => (Path::new("/tmp").join(own), true),
    }
}

/// The name of a network namespace's directory. Network namespaces have addresses of their own, and
/// so devices of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Name {
    /// That of the machine itself, which is there again when it is started anew.
    First,
    Other {
        inode: u64,
        /// What tells it from others that had or will have the same inode.
        cookie: u64,
        /// The machine's start, from which on cookies count anew.
        boot: String,
    },
    /// Without `/proc` there is no telling namespaces apart.
    Unknown,
}

impl Name {
    fn own() -> Self {
        let Some(namespace) = NetworkNamespace::own() else {
            return Self::Unknown;
        };
        if namespace.is_first() {
            return Self::First;
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self::Other {
            inode: namespace.inode,
            cookie: namespace.cookie.unwrap_or_default(),
            boot: boot.chars().filter(char::is_ascii_hexdigit).collect(),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("net-")?.split('-');
        let name = Self::Other {
            inode: parts.next()?.parse().ok()?,
            cookie: u64::from_str_radix(parts.next()?, 16).ok()?,
            boot: parts.next()?.to_owned(),
        };
        parts.next().is_none().then_some(name)
    }

    /// Whether this is the name of a namespace that is no more, seen from `own`; of other machines
    /// there is no telling.
    fn is_dead(&self, own: &Self, is_local: bool) -> bool {
        match (self, own) {
            (
                Self::Other { inode, boot, .. },
                Self::Other {
                    inode: ours,
                    boot: present,
                    ..
                },
            ) => self != own && (boot == present && inode == ours || boot != present && is_local),
            _ => false,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("net-host"),
            Self::Other {
                inode,
                cookie,
                boot,
            } => write!(f, "net-{inode}-{cookie:x}-{boot}"),
            Self::Unknown => f.write_str("net"),
        }
    }
}

/// Removes directories of network namespaces that are no more. The kernel gives their inodes out
/// again, the lowest first, so no more stay than there were namespaces at a time.
fn sweep(base: &Path, own: &Name, is_local: bool) {
    let Ok(entries) = fs::read_dir(base) else {
        return; // whoever comes next may do it
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(Name::parse);
        if name.is_some_and(|name| name.is_dead(own, is_local)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a directory that only the user may enter, or checks that the one there is such.
pub(super) fn private(path: &Path) -> Result<PathBuf, RegistryError> {
    let failed = |source| RegistryError::Directory {
        path: path.to_owned(),
        source,
    };
    if path.is_relative() {
        let reason = "a relative path is another directory for each program";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
    }
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
    if there.uid() != os::effective_uid() {
        return wrong("it belongs to another user");
    }
    if there.mode() & 0o077 != 0 {
        return wrong("other users may enter it");
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(inode: u64, cookie: u64, boot: &str) -> Name {
        let boot = boot.to_owned();
        Name::Other {
            inode,
            cookie,
            boot,
        }
    }

    #[test]
    fn names_are_read_back() {
        for name in [name(4_026_532_177, 0x11, "8f0e"), name(7, u64::MAX, "")] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        for other in [
            "net",
            "net-host",
            "net-7",
            "net-7-1",
            "net-7-1-2-3",
            "view-1",
            "net-x-1-2",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_next_owner_of_an_inode_sweeps_what_the_last_one_left() {
        let base = tempfile::tempdir().unwrap();
        let own = name(7, 12, "b");
        let dead = [name(7, 11, "b"), name(7, 13, "b")];
        let earlier = [name(7, 12, "a"), name(8, 3, "a")];
        let alive = [own.clone(), name(8, 11, "b"), Name::First, Name::Unknown];
        let all = || dead.iter().chain(&earlier).chain(&alive);
        let path = |name: &Name| base.path().join(name.to_string());
        for name in all() {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("fr0.toml"), "").unwrap();
        }
        sweep(base.path(), &own, false);
        let is_there = |name: &&Name| path(name).exists();
        assert_eq!(dead.iter().filter(is_there).count(), 0);
        assert!(all().filter(is_there).eq(earlier.iter().chain(&alive)));
        sweep(base.path(), &own, true);
        assert!(all().filter(is_there).eq(&alive));
    }
}

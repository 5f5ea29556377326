//! A mount namespace in which all programs see the devices.
//!
//! `/sys/class` and `/dev` belong to the kernel, which does not allow new directories there. Each
//! is therefore covered by a new file system that contains bind mounts of the original entries and
//! the devices.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use ferroce_sysfs::PCI_ROOT;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getegid, geteuid};

use crate::output::Failure;

/// Moves this process, which must have one thread, into a mount namespace of its own in which the
/// tree below `tree` (`sys`, `dev`) is part of `/sys` and `/dev`. `stage` is an empty directory.
pub(super) fn enter(tree: &Path, stage: &Path) -> Result<(), Failure> {
    separate().map_err(|error| {
        Failure::broken(format_args!(
            "cannot make a namespace: {error}; this system, or the container's seccomp or AppArmor \
             profile, does not let users make them: run without --ns"
        ))
    })?;
    let classes = ["infiniband", "infiniband_verbs"];
    for (directory, names) in [
        (Path::new("/sys/devices"), &[PCI_ROOT][..]),
        (Path::new("/sys/devices/virtual"), &classes),
        (Path::new("/sys/class"), &classes),
        (Path::new("/dev"), &["infiniband"]),
    ] {
        // `/sys/class` is `sys/class` in the tree.
        let source = tree.join(directory.strip_prefix("/").unwrap_or(directory));
        if !source.exists() {
            continue; // no virtual devices
        }
        add(directory, names, &source, stage).map_err(|error| {
            Failure::broken(format_args!(
                "cannot show the devices in {}: {error}; run without --ns",
                directory.display()
            ))
        })?;
    }
    Ok(())
}

/// Makes these files read-only: writes to them would have no effect.
fn seal(directory: &Path) -> io::Result<()> {
    // An unprivileged user may not drop the mount flags of the file system below.
    let kept = statvfs(directory)?.flags();
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    for (flag, mounted) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        flags.set(mounted, kept.contains(flag));
    }
    let none = None::<&str>;
    Ok(mount(none, directory, none, flags, none)?)
}

/// Root needs only a mount namespace; another user gains the right to mount from a user namespace,
/// in which user and group keep their IDs.
fn separate() -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    let alone = user.is_root() && unshare(CloneFlags::CLONE_NEWNS).is_ok();
    if !alone {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    // Otherwise mounts made here would be visible outside.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(
        None::<&str>,
        "/",
        None::<&str>,
        private,
        None::<&str>,
    )?)
}

/// Shows the directories `names` of `source` in `directory`.
fn add(directory: &Path, names: &[&str], source: &Path, stage: &Path) -> io::Result<()> {
    if names.iter().any(|name| !directory.join(name).is_dir()) {
        rebuild(directory, names, stage)?;
    }
    for name in names {
        bind(&source.join(name), &directory.join(name))?;
        if directory.starts_with("/sys") {
            seal(&directory.join(name))?;
        }
    }
    Ok(())
}

/// Puts a file system over `directory` that has what was there, and the directories `names`.
fn rebuild(directory: &Path, names: &[&str], stage: &Path) -> io::Result<()> {
    let tmpfs = Some("tmpfs");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(tmpfs, stage, tmpfs, flags, Some("mode=755"))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (old, new) = (entry.path(), stage.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&old)?, &new)?;
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&new)?;
        } else {
            File::create(&new)?;
        }
        bind(&old, &new)?;
    }
    for name in names {
        fs::create_dir_all(stage.join(name))?;
    }
    let none = None::<&str>;
    Ok(mount(Some(stage), directory, none, MsFlags::MS_MOVE, none)?)
}

fn bind(source: &Path, target: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(
        Some(source),
        target,
        None::<&str>,
        flags,
        None::<&str>,
    )?)
}

//! Creating, opening, replacing and removing the file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use ferroce_device::Function;
use ferroce_os::{self as os, NotInherited};

use super::layout::Layout;
use super::locks::{PATIENCE, SLOT_MAX, byte};
use super::map::Mappings;
use super::settings::SettingsFile;
use super::{SharedFile, mailbox};
use crate::spec::DeviceSpec;

/// How often the file may be replaced while it is being opened.
const TRIES: usize = 16;

/// `card` is, for a VF, the file of its PF.
pub(super) fn open(
    path: &Path,
    spec: &DeviceSpec,
    card: Option<&Arc<SharedFile>>,
) -> io::Result<SharedFile> {
    for _ in 0..TRIES {
        let file = NotInherited::new(open_file(path)?);
        os::lock_when_free(&file, byte::MEMBERS, PATIENCE)?;
        if !is_still_at(&file, path) {
            continue; // replaced while we waited
        }
        let layout = match fill(&file, path)? {
            Filled::Yes(layout) => layout,
            Filled::ByAnotherRelease => {
                replace(&file, path)?;
                continue;
            }
        };
        let file = Arc::new(file);
        let shared = SharedFile {
            layout,
            settings: Arc::new(SettingsFile::new(Arc::clone(&file), layout.settings())),
            file,
            path: path.to_owned(),
            identity: spec.identity(),
            function: spec.function(),
            card: card.cloned(),
        };
        if !shared.layout.is_ready() {
            if card.is_none() {
                // A process that holds a lock on settings of an unfinished file is dead.
                let reset = shared.state(0).reset(spec.after_power_on());
                reset.map_err(|error| io::Error::from_raw_os_error(error.errno))?;
            }
            shared.layout.set_ready();
        }
        os::unlock(&shared.file, byte::MEMBERS)?;
        return Ok(shared);
    }
    Err(io::Error::other("the file is replaced again and again"))
}

/// Whether a process has the device, or a VF of it, open.
pub(super) fn is_used(path: &Path) -> io::Result<bool> {
    match open_existing(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        file => has_users(&file?),
    }
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    let file = match open_existing(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    os::lock_when_free(&file, byte::MEMBERS, PATIENCE)?;
    if is_still_at(&file, path) {
        replace(&file, path)?;
    }
    Ok(())
}

/// Opens a file that belongs to the user alone.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let mut options = options();
    own(options.create(true).open(path)?)
}

/// The content of a file that is there, if it is whole and of this release.
pub(super) fn existing(path: &Path) -> io::Result<&'static Layout> {
    let file = NotInherited::new(open_existing(path)?);
    if file.metadata()?.len() == Layout::SIZE && Layout::is_marked(&file)? {
        let layout = mapped(&file, path)?;
        if layout.is_ready() {
            return Ok(layout);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

pub(super) fn open_existing(path: &Path) -> io::Result<File> {
    own(options().open(path)?)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options
}

fn own(file: File) -> io::Result<File> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != os::effective_uid() || metadata.mode() & 0o077 != 0
    {
        let reason = "it is not a regular file of this user with mode 0600; remove it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(file)
}

pub(super) fn is_still_at(file: &File, path: &Path) -> bool {
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(opened), Ok(there)) => id(opened) == id(there),
        _ => false,
    }
}

enum Filled {
    Yes(&'static Layout),
    ByAnotherRelease,
}

/// Gives a new file its size, and maps it.
fn fill(file: &File, path: &Path) -> io::Result<Filled> {
    let len = file.metadata()?.len();
    if len != 0 && len != Layout::SIZE {
        return Ok(Filled::ByAnotherRelease);
    }
    // Also the second time: a process may have died during the first. What is mapped without having
    // been allocated is not to be touched.
    if !Layout::is_marked(file)? {
        os::allocate(file, Layout::SIZE)?;
    }
    let layout = mapped(file, path)?;
    if layout.is_ready() || layout.is_blank() {
        Ok(Filled::Yes(layout))
    } else {
        Ok(Filled::ByAnotherRelease)
    }
}

/// Takes the file away so that the next one can be made, unless a process uses it.
fn replace(file: &File, path: &Path) -> io::Result<()> {
    if has_users(file)? {
        let reason = "a running process, possibly of another release, has the device open; \
                      end it first";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
    }
    mailbox::remove_all(path);
    fs::remove_file(path)
}

fn has_users(file: &File) -> io::Result<bool> {
    let [slots, vfs] = [SLOT_MAX, Function::VFS_MAX].map(i64::from);
    Ok(
        os::is_any_locked(file, byte::SLOTS + 1, slots)?
            || os::is_any_locked(file, byte::VFS, vfs)?,
    )
}

/// Maps a file.
fn mapped(file: &File, path: &Path) -> io::Result<&'static Layout> {
    static MAPPINGS: Mappings<Layout> = Mappings::new();
    MAPPINGS.of(file, || open_existing(path))
}

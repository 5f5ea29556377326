//! The capture of a process's packets (`FERROCE_PCAP`).

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferroce_os::{Tap, TapDirection};

use crate::error::{Error, tell};

/// The capture, once a device was opened. All devices of the process share it.
static CAPTURE: Mutex<Option<Tap>> = Mutex::new(None);

pub(crate) fn capture() -> MutexGuard<'static, Option<Tap>> {
    CAPTURE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The capture that the environment asks for. What keeps it from being written is told, and keeps
/// no program from running.
pub(crate) fn tap() -> Option<Tap> {
    let mut capture = capture();
    if capture.is_none() {
        let path = std::env::var_os("FERROCE_PCAP").filter(|path| !path.is_empty())?;
        match create(Path::new(&path)) {
            Ok(tap) => *capture = Some(tap),
            Err(error) => {
                tell("FERROCE_PCAP", &Error::Os(error));
            }
        }
    }
    capture.clone()
}

/// The first process gets the file itself, later ones one with their number in its name.
fn create(path: &Path) -> io::Result<Tap> {
    let own = OpenOptions::new().write(true).create_new(true).open(path);
    match own {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Tap::create(&numbered(path, std::process::id()), TapDirection::Both)
        }
        Err(error) => Err(error),
        Ok(_) => Tap::create(path, TapDirection::Both),
    }
}

/// `capture.pcapng` of process 7 is `capture-7.pcapng`.
fn numbered(path: &Path, process: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{process}"));
    let mut numbered = path.with_file_name(name);
    if let Some(extension) = path.extension() {
        // Added, not set: the name may have dots of its own.
        let text = numbered.as_mut_os_string();
        text.push(".");
        text.push(extension);
    }
    numbered
}

/// Writes out what is buffered.
pub(crate) fn flush() {
    if let Some(tap) = capture().as_ref()
        && let Err(error) = tap.finish()
    {
        tell("FERROCE_PCAP", &Error::Os(error));
    }
}

/// In the child of a fork: what is buffered is the parent's, and so is the file.
pub(crate) fn forget() {
    std::mem::forget(capture().take());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_goes_before_the_extension() {
        let name = |path| numbered(Path::new(path), 7);
        assert_eq!(name("/tmp/a.b.pcapng"), Path::new("/tmp/a.b-7.pcapng"));
        assert_eq!(name("/tmp/capture"), Path::new("/tmp/capture-7"));
    }
}

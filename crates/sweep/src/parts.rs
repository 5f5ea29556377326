//! Results on disk: files of rows that are either complete or absent.
//!
//! A part is written under another name, flushed to disk, and renamed, so if a worker is killed or
//! the disk is full, no incomplete part remains. Its last line has the number of rows and their
//! hash, in case a file system loses some of it later.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use ferroce_base::complaint::plain;
use ferroce_base::hash::Fnv;
use ferroce_base::random::mix;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::outcome::Outcome;
use crate::plan::Id;

/// One result.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Row {
    /// Of which point.
    pub id: Id,
    /// The result.
    pub outcome: Outcome,
    /// How long it took, which differs every time.
    pub took_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct End {
    rows: usize,
    hash: String,
}

/// The error for a file that could not be written or read.
#[derive(Error, Debug)]
#[error("{}: {error}", path.display())]
pub struct StoreError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

impl StoreError {
    pub(crate) fn new(path: &Path, error: io::Error) -> Self {
        Self {
            path: path.to_owned(),
            error,
        }
    }
}

/// The results in a sweep's directory.
#[derive(Default, Debug)]
pub struct Parts {
    /// All rows, in the order of the files' names.
    pub rows: Vec<Row>,
    /// Truncated or damaged files, and what is wrong with them.
    pub damaged: Vec<(PathBuf, String)>,
}

const FIRST: &str = "part-";
const LAST: &str = ".jsonl";

impl Parts {
    /// Reads all parts.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn read(directory: &Path) -> Result<Self, StoreError> {
        let mut parts = Self::default();
        for path in files(directory)? {
            let text = fs::read(&path).map_err(|error| StoreError::new(&path, error))?;
            match rows(&text) {
                Ok(rows) => parts.rows.extend(rows),
                Err(what) => parts.damaged.push((path, what)),
            }
        }
        Ok(parts)
    }

    /// Returns the points that have a result.
    #[must_use]
    pub fn ids(&self) -> BTreeSet<Id> {
        self.rows.iter().map(|row| row.id).collect()
    }
}

/// Parts, in the order of their names.
fn files(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let of_directory = |error| StoreError::new(directory, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(of_directory)? {
        let path = entry.map_err(of_directory)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(FIRST) && name.ends_with(LAST)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn rows(text: &[u8]) -> Result<Vec<Row>, String> {
    let cut_short = || "is cut short".to_owned();
    let body = text.strip_suffix(b"\n").ok_or_else(cut_short)?;
    let end = body.iter().rposition(|byte| *byte == b'\n');
    let (body, end) = body.split_at(end.ok_or_else(cut_short)? + 1);
    let end: End = serde_json::from_slice(end).map_err(|_| cut_short())?;
    if format!("{:016x}", Fnv::of(body).value()) != end.hash {
        return Err("is damaged: its hash is another one".into());
    }
    let lines = body.split_inclusive(|byte| *byte == b'\n');
    let rows: Result<Vec<Row>, _> = lines.map(serde_json::from_slice).collect();
    let rows = rows.map_err(|error| {
        let what = plain(&error.to_string());
        format!("has a row that is not a result: {what}")
    })?;
    match rows.len() == end.rows {
        true => Ok(rows),
        false => Err(cut_short()),
    }
}

/// Adds a part.
///
/// # Errors
/// Returns an error if it cannot be written; no part is left in that case.
pub fn add(directory: &Path, rows: &[Row]) -> Result<(), StoreError> {
    let mut text = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut text, row)
            .map_err(|error| StoreError::new(directory, error.into()))?;
        text.push(b'\n');
    }
    let end = End {
        rows: rows.len(),
        hash: format!("{:016x}", Fnv::of(&text).value()),
    };
    // Two runs of one point are two parts, which are compared one day.
    let nonce = SystemTime::now().duration_since(UNIX_EPOCH);
    let nonce = nonce.map_or(0, |since| since.as_nanos() as u64);
    let name = mix(mix(Fnv::of(&text).value(), nonce), process::id().into());
    serde_json::to_writer(&mut text, &end)
        .map_err(|error| StoreError::new(directory, error.into()))?;
    text.push(b'\n');
    write(directory, &format!("{FIRST}{name:016x}{LAST}"), &text)
}

/// Writes or replaces a file, so that it is either complete or absent.
///
/// # Errors
/// Returns an error if it cannot be written.
pub fn write(directory: &Path, name: &str, text: &[u8]) -> Result<(), StoreError> {
    let path = directory.join(name);
    let write = || {
        let mut file = tempfile::Builder::new()
            .prefix(".unfinished-")
            .tempfile_in(directory)?;
        file.write_all(text)?;
        // The kernel may find out only now that there is no room.
        file.as_file().sync_all()?;
        allow_others(file.as_file())?;
        file.persist(&path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|error| StoreError::new(&path, error))
}

/// Temporary files are private; results are as private as their directory.
#[cfg(unix)]
fn allow_others(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn allow_others(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64) -> Row {
        let outcome = r#"{"standing":"over","survived":true,"ended_ps":5,"died_ps":null,"transfers":1,
            "delivered":1,"failures":0,"timeouts":0,"retransmitted":0,"spurious":0,"cnps":0,"dropped":0,
            "lost":0,"marked":0,"pauses":0,"events":9}"#;
        Row {
            id: Id(id),
            outcome: serde_json::from_str(outcome).unwrap(),
            took_ms: 3,
        }
    }

    #[test]
    fn added_rows_are_read() {
        let directory = tempfile::tempdir().unwrap();
        add(directory.path(), &[row(1), row(2)]).unwrap();
        add(directory.path(), &[row(2)]).unwrap();
        let parts = Parts::read(directory.path()).unwrap();
        assert_eq!((parts.rows.len(), parts.ids().len()), (3, 2));
        assert!(parts.damaged.is_empty());
    }

    #[test]
    fn a_part_that_lost_something_is_none() {
        let directory = tempfile::tempdir().unwrap();
        add(directory.path(), &[row(1), row(2)]).unwrap();
        let path = files(directory.path()).unwrap().remove(0);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let parts = Parts::read(directory.path()).unwrap();
            assert!(parts.rows.is_empty(), "{length} bytes");
            assert_eq!(parts.damaged.len(), 1);
        }
        let mut flipped = whole;
        flipped[30] ^= 1;
        fs::write(&path, &flipped).unwrap();
        assert_eq!(Parts::read(directory.path()).unwrap().damaged.len(), 1);
    }

    #[test]
    fn unfinished_files_are_no_parts() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(".unfinished-abc"), "{}").unwrap();
        fs::write(directory.path().join("notes.txt"), "{}").unwrap();
        assert!(Parts::read(directory.path()).unwrap().rows.is_empty());
        let missing = directory.path().join("missing");
        assert!(Parts::read(&missing).is_err());
        assert!(add(&missing, &[row(1)]).is_err());
    }
}

//! What an installation has put where, so that it can be taken away again, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use super as put;
use crate::output::Failure;

/// An installation, with a list of what belongs to it.
#[derive(Debug)]
pub(crate) struct Record {
    prefix: PathBuf,
    /// By path, relative to the prefix. A directory comes before what is in it.
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Entry {
    /// A directory that was not there before.
    Directory,
    /// A file, by its content.
    File { length: u64, crc: u32 },
    /// A link, by its target.
    Link(PathBuf),
}

/// What was removed.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    pub(crate) count: usize,
    /// Files and links that are not as they were put there.
    pub(crate) kept: Vec<PathBuf>,
}

/// Where the list is, below the prefix.
const FILE: &str = "share/ferroce/installed";

impl Record {
    /// For an installation in this directory, which may be there already, of this or another version.
    pub(crate) fn begin(prefix: &Path) -> Self {
        let entries = read(prefix).unwrap_or_default();
        Self {
            prefix: prefix.to_owned(),
            entries,
        }
    }

    /// Makes a directory and those above it.
    pub(crate) fn directory(&mut self, path: &Path) -> Result<(), Failure> {
        let within = path
            .ancestors()
            .take_while(|it| it.starts_with(&self.prefix));
        let missing: Vec<_> = within
            .filter(|it| !it.exists())
            .map(Path::to_owned)
            .collect();
        put::directory(path)?;
        for path in missing {
            self.note(&path, Entry::Directory);
        }
        Ok(())
    }

    /// A file with this content, readable by everyone.
    pub(crate) fn file(&mut self, path: &Path, content: &[u8]) -> Result<(), Failure> {
        put::file(path, content)?;
        self.note(path, Entry::of(content));
        Ok(())
    }

    /// A copy of a file, with its permissions.
    pub(crate) fn copy(&mut self, path: &Path, source: &Path) -> Result<(), Failure> {
        put::copy(path, source)?;
        let content = fs::read(path).map_err(|error| put::cannot_write(path, &error))?;
        self.note(path, Entry::of(&content));
        Ok(())
    }

    /// A link to a target.
    pub(crate) fn link(&mut self, path: &Path, target: &Path) -> Result<(), Failure> {
        put::link(path, target)?;
        self.note(path, Entry::Link(target.to_owned()));
        Ok(())
    }

    fn note(&mut self, path: &Path, entry: Entry) {
        let relative = path.strip_prefix(&self.prefix).unwrap_or(path);
        self.entries.insert(relative.to_owned(), entry);
    }

    /// Writes the list of an installation that ended so, of what there is.
    pub(crate) fn finish(mut self, installed: Result<(), Failure>) -> Result<(), Failure> {
        if installed.is_err() && self.entries.is_empty() {
            return installed;
        }
        let file = self.prefix.join(FILE);
        self.directory(file.parent().expect("it is below the prefix"))?;
        let mut text = String::new();
        for (path, entry) in &self.entries {
            let path = path.display();
            let _ = match entry {
                Entry::Directory => writeln!(text, "directory\t{path}"),
                Entry::File { length, crc } => writeln!(text, "file\t{path}\t{length}\t{crc:08x}"),
                Entry::Link(target) => writeln!(text, "link\t{path}\t{}", target.display()),
            };
        }
        let listed = put::file(&file, text.as_bytes());
        installed.and(listed)
    }

    /// Removes what is still as it was put into this directory.
    pub(crate) fn remove(prefix: &Path) -> Result<Removed, Failure> {
        let file = prefix.join(FILE);
        let entries = read(prefix).map_err(|error| {
            Failure::input(format_args!(
                "cannot read {}: {error}; name the directory that was given to `ferroce install`, or have \
                 the package manager remove what it installed",
                file.display()
            ))
        })?;
        let mut removed = Removed::default();
        let failed = |path: &Path, error: &io::Error| {
            Failure::broken(format_args!("cannot remove {}: {error}", path.display()))
        };
        for (relative, entry) in entries.iter().filter(|(_, it)| **it != Entry::Directory) {
            let path = prefix.join(relative);
            match entry.is_at(&path) {
                None => {}
                Some(false) => removed.kept.push(path),
                Some(true) => {
                    fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
                    removed.count += 1;
                }
            }
        }
        fs::remove_file(&file).map_err(|error| failed(&file, &error))?;
        // Those below come first.
        let directories = entries
            .iter()
            .rev()
            .filter(|(_, it)| **it == Entry::Directory);
        for (relative, _) in directories {
            let path = prefix.join(relative);
            match fs::remove_dir(&path) {
                Err(error)
                    if ![ErrorKind::NotFound, ErrorKind::DirectoryNotEmpty]
                        .contains(&error.kind()) =>
                {
                    return Err(failed(&path, &error));
                }
                _ => {}
            }
        }
        Ok(removed)
    }
}

impl Entry {
    fn of(content: &[u8]) -> Self {
        Self::File {
            length: content.len() as u64,
            crc: crc32fast::hash(content),
        }
    }

    /// Whether it is there as it was put; `None` if nothing is there.
    fn is_at(&self, path: &Path) -> Option<bool> {
        let kind = path.symlink_metadata().ok()?.file_type();
        Some(match self {
            Self::Directory => kind.is_dir(),
            Self::File { .. } => {
                kind.is_file() && fs::read(path).is_ok_and(|it| Self::of(&it) == *self)
            }
            Self::Link(target) => fs::read_link(path).is_ok_and(|it| it == *target),
        })
    }
}

/// The list of an installation.
fn read(prefix: &Path) -> io::Result<BTreeMap<PathBuf, Entry>> {
    let text = fs::read_to_string(prefix.join(FILE))?;
    let entries: Option<_> = text.lines().map(entry).collect();
    entries.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it is not a list of ours"))
}

fn entry(line: &str) -> Option<(PathBuf, Entry)> {
    let fields: Vec<_> = line.split('\t').collect();
    let (path, entry) = match fields[..] {
        ["directory", path] => (path, Entry::Directory),
        ["file", path, length, crc] => {
            let (length, crc) = (length.parse().ok()?, u32::from_str_radix(crc, 16).ok()?);
            (path, Entry::File { length, crc })
        }
        ["link", path, target] => (path, Entry::Link(target.into())),
        _ => return None,
    };
    let path = PathBuf::from(path);
    let is_below = path
        .components()
        .all(|it| matches!(it, Component::Normal(_)));
    is_below.then_some((path, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(prefix: &Path, text: &str) {
        let mut record = Record::begin(prefix);
        record.directory(&prefix.join("share/ferroce")).unwrap();
        record.directory(&prefix.join("bin")).unwrap();
        record
            .file(&prefix.join("bin/one"), text.as_bytes())
            .unwrap();
        record.file(&prefix.join("bin/two"), b"two").unwrap();
        record
            .link(&prefix.join("bin/link"), Path::new("one"))
            .unwrap();
        record.finish(Ok(())).unwrap();
    }

    fn all(below: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(below).unwrap().map(|it| it.unwrap().path());
        let mut found: Vec<_> = entries
            .flat_map(|it| {
                let below = if it.is_dir() { all(&it) } else { Vec::new() };
                [vec![it], below].concat()
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn files_of_others_stay_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let prefix = place.path().join("prefix");
        fs::create_dir_all(prefix.join("bin")).unwrap();
        fs::create_dir_all(prefix.join("empty")).unwrap();
        fs::write(prefix.join("bin/theirs"), "").unwrap();
        let before = all(place.path());
        for text in ["one", "another version"] {
            installed(&prefix, text);
        }
        let removed = Record::remove(&prefix).unwrap();
        assert_eq!((removed.count, removed.kept), (3, Vec::new()));
        assert_eq!(all(place.path()), before);
        // Of a prefix that was made for it nothing is left.
        let prefix = place.path().join("new");
        installed(&prefix, "one");
        Record::remove(&prefix).unwrap();
        assert_eq!(all(place.path()), before);
    }

    #[test]
    fn changed_and_added_files_stay() {
        let place = tempfile::tempdir().unwrap();
        let prefix = place.path().join("prefix");
        installed(&prefix, "one");
        fs::write(prefix.join("bin/one"), "eno").unwrap();
        fs::remove_file(prefix.join("bin/link")).unwrap();
        std::os::unix::fs::symlink("two", prefix.join("bin/link")).unwrap();
        fs::write(prefix.join("share/ferroce/mine"), "mine").unwrap();
        let removed = Record::remove(&prefix).unwrap();
        let kept = ["bin/link", "bin/one"].map(|it| prefix.join(it));
        assert_eq!((removed.count, removed.kept), (1, kept.to_vec()));
        let left = ["bin", "bin/link", "bin/one", "share", "share/ferroce"];
        let left: Vec<_> = left.into_iter().chain(["share/ferroce/mine"]).collect();
        assert_eq!(
            all(&prefix),
            left.iter().map(|it| prefix.join(it)).collect::<Vec<_>>()
        );
        let again = Record::remove(&prefix).unwrap_err().to_string();
        assert!(again.contains("was given to `ferroce install`"), "{again}");
    }

    #[test]
    fn a_list_that_leads_elsewhere_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let prefix = place.path().join("prefix");
        fs::create_dir_all(prefix.join("share/ferroce")).unwrap();
        let theirs = place.path().join("theirs");
        fs::write(&theirs, "").unwrap();
        for line in [
            "file\t../theirs\t0\t00000000".to_owned(),
            format!("file\t{}\t0\t00000000", theirs.display()),
            "directory\t..".to_owned(),
            "anything".to_owned(),
        ] {
            fs::write(prefix.join(FILE), line).unwrap();
            let error = Record::remove(&prefix).unwrap_err().to_string();
            assert!(error.contains("not a list of ours"), "{error}");
            assert!(theirs.exists());
        }
    }
}

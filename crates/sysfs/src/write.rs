//! A tree in a directory, kept up to date.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::geteuid;
use tempfile::Builder;
use thiserror::Error;

use crate::tree::{MARK, Node};

/// Why a tree was not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The directory holds something else; nothing was touched.
    #[error(
        "{} is not empty and was not made by Ferroce; name a directory that is empty or does not exist",
        .0.display()
    )]
    NotOurs(PathBuf),
    /// The directory belongs to another user, who could mislead what is written.
    #[error("{} belongs to user {owner}, not to you; set FERROCE_DIR to a directory you own", path.display())]
    OtherUser {
        /// The directory.
        path: PathBuf,
        /// Number of its owner.
        owner: u32,
    },
    /// The system refused.
    #[error("cannot write {}: {source}", path.display())]
    System {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Keeps a directory equal to a tree.
///
/// Several processes may write the same directory: each update holds a lock. Each file changes as
/// a whole, so that a reader sees the old content or the new one.
#[derive(Debug)]
pub(crate) struct Writer {
    root: PathBuf,
}

impl Writer {
    /// A writer for this directory, which is made if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory has other content than a tree, belongs to another user, or
    /// cannot be created.
    pub(crate) fn open(root: &Path) -> Result<Self, WriteError> {
        fs::create_dir_all(root).map_err(at(root))?;
        let owner = fs::metadata(root).map_err(at(root))?.uid();
        if owner != geteuid().as_raw() {
            let path = root.to_owned();
            return Err(WriteError::OtherUser { path, owner });
        }
        let mark = root.join(MARK);
        let mut entries = fs::read_dir(root).map_err(at(root))?;
        // In this order: another process that makes the same tree begins with its mark.
        if entries.next().is_some() && !mark.exists() {
            return Err(WriteError::NotOurs(root.to_owned()));
        }
        let root = root.to_owned();
        let writer = Self { root };
        drop(writer.lock()?);
        Ok(writer)
    }

    /// Makes the directory equal to the tree that `make` returns, and removes what is not in it.
    ///
    /// `make` is called with the lock held: of two processes the later one has the later counters,
    /// and no reader sees a counter fall.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::System`]; what was written until then stays.
    pub(crate) fn write(
        &self,
        make: impl FnOnce() -> Vec<(String, Node)>,
    ) -> Result<(), WriteError> {
        let _lock = self.lock()?;
        let tree = make();
        let mut expected: HashSet<PathBuf> = HashSet::from([self.root.join(MARK)]);
        for (path, node) in &tree {
            let path = self.root.join(path);
            put(&path, node).map_err(at(&path))?;
            let below_root = path.ancestors().take_while(|path| *path != self.root);
            expected.extend(below_root.map(Path::to_owned));
        }
        prune(&self.root, &expected).map_err(at(&self.root))
    }

    /// Removes the whole tree; the directory stays, with nothing in it.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::System`]; what was not removed until then stays.
    pub(crate) fn clear(&self) -> Result<(), WriteError> {
        let _lock = self.lock()?;
        // The mark last: without it what is left would be taken for another program's.
        let mark = self.root.join(MARK);
        prune(&self.root, &HashSet::from([mark.clone()])).map_err(at(&self.root))?;
        fs::remove_file(&mark).map_err(at(&mark))
    }

    fn lock(&self) -> Result<Flock<File>, WriteError> {
        let path = self.root.join(MARK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .map_err(at(&path))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| at(&path)(io::Error::from(errno)))
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError::System { path, source }
}

fn put(path: &Path, node: &Node) -> io::Result<()> {
    match node {
        Node::Directory => fs::create_dir_all(path),
        Node::File(text) if fs::read(path).is_ok_and(|old| old == text.as_bytes()) => Ok(()),
        Node::Link(target) if fs::read_link(path).is_ok_and(|old| old == Path::new(target)) => {
            Ok(())
        }
        Node::File(text) => replace(path, |new| fs::write(new, text)),
        Node::Link(target) => replace(path, |new| symlink(target, new)),
    }
}

/// Makes the new node under another name and moves it over the old one.
fn replace(path: &Path, make: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(parent)?;
    // A dot file, which programs that list directories of /sys pass over. One that a killed writer
    // has left goes when the tree is pruned.
    let new = Builder::new().prefix(".new").make_in(parent, make)?;
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path)?;
    }
    new.persist(path)?;
    Ok(())
}

fn prune(directory: &Path, expected: &HashSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_directory = path.is_dir() && !path.is_symlink();
        match expected.contains(&path) {
            true if is_directory => prune(&path, expected)?,
            true => {}
            false if is_directory => fs::remove_dir_all(&path)?,
            false => fs::remove_file(&path)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::example;
    use crate::tree::sys_tree;

    fn read(root: &Path, path: &str) -> String {
        fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn a_tree_is_removed_and_can_be_written_again() {
        let root = tempfile::tempdir().unwrap();
        let writer = Writer::open(root.path()).unwrap();
        for _ in 0..2 {
            writer.write(|| sys_tree(&[example("fr0", 0)])).unwrap();
            assert!(root.path().join("class/infiniband/fr0").exists());
            writer.clear().unwrap();
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn the_tree_reads_like_that_of_a_card() {
        let root = tempfile::tempdir().unwrap();
        let writer = Writer::open(root.path()).unwrap();
        writer.write(|| sys_tree(&[example("fr0", 0)])).unwrap();
        let device = "class/infiniband/fr0";
        for (file, text) in [
            ("node_guid", "0202:c9ff:fe00:0001\n"),
            ("ports/1/state", "4: ACTIVE\n"),
            ("ports/1/gid_attrs/types/1", "RoCE v2\n"),
            ("device/vendor", "0x15b3\n"),
            ("device/infiniband_verbs/uverbs0/ibdev", "fr0\n"),
        ] {
            assert_eq!(
                read(root.path(), &format!("{device}/{file}")),
                text,
                "{file}"
            );
        }
        assert_eq!(
            read(root.path(), "class/infiniband_verbs/uverbs0/ibdev"),
            "fr0\n"
        );
    }

    #[test]
    fn removed_entries_vanish_from_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let writer = Writer::open(root.path()).unwrap();
        writer
            .write(|| sys_tree(&[example("fr0", 0), example("fr1", 1)]))
            .unwrap();
        let mut card = example("fr1", 1);
        card.ports[0].counters = [7; ferroce_device::Counter::COUNT];
        writer.write(|| sys_tree(&[card])).unwrap();
        let names: Vec<_> = fs::read_dir(root.path().join("class/infiniband"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["fr1"]);
        let counter = "class/infiniband/fr1/ports/1/hw_counters/packet_seq_err";
        assert_eq!(read(root.path(), counter), "7\n");
    }

    #[test]
    fn a_directory_with_other_things_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("letter"), "dear").unwrap();
        let error = Writer::open(root.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn many_may_make_the_same_directory_at_the_same_time() {
        const WRITERS: usize = 4;
        let place = tempfile::tempdir().unwrap();
        let together = std::sync::Barrier::new(WRITERS);
        let make = || {
            let open = |number: u32| {
                together.wait();
                Writer::open(&place.path().join(number.to_string())).err()
            };
            (0..200).filter_map(open).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            for writer in [(); WRITERS].map(|()| scope.spawn(make)) {
                let errors = writer.join().unwrap();
                assert!(errors.is_empty(), "{errors:?}");
            }
        });
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "").unwrap();
        let tree = root.path().join("tree");
        fs::create_dir(&tree).unwrap();
        symlink(&victim, tree.join(MARK)).unwrap();
        assert!(matches!(
            Writer::open(&tree),
            Err(WriteError::System { .. })
        ));
    }
}

//! Fault rules that processes share: a file of their texts, and of how often each was met and has
//! struck.
//!
//! Writers take turns by a lock on the file. Readers look at the generation before and after, which is
//! odd while a writer is at work, so they wait for none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ferroce_fault::{RULES_MAX, Rule, TEXT_MAX, TableError, Targets};
use ferroce_os::{self as os, NotInherited};

use super::locks::PATIENCE;
use super::map::{Mappings, shareable};
use super::open::open_file;

/// The number is that of the layout, so that another release has a file of its own.
const LIVE: &str = "faults-1";
/// What the tables of runs are called, with the number of the run's process behind it.
const OF_RUN: &str = "faults-1-run-";
/// The byte that a writer locks, behind the end of the file.
const WRITER: i64 = 1 << 40;
/// The byte that the owner of a run's table has locked.
const OWNER: i64 = WRITER + 1;

const TEXT_WORDS: usize = TEXT_MAX / 8;

shareable! {
    #[derive(Debug)]
    struct Layout {
        /// Even, and another after each change.
        generation: AtomicU64,
        /// What the rules are about.
        targets: AtomicU64,
        /// The identity that was given out last.
        last_id: AtomicU64,
        slots: [Slot; RULES_MAX],
    }
}

shareable! {
    #[derive(Debug)]
    struct Slot {
        /// The rule's identity, or 0: no rule.
        id: AtomicU64,
        met: AtomicU64,
        struck: AtomicU64,
        length: AtomicU64,
        text: [AtomicU64; TEXT_WORDS],
    }
}

/// A rule in force, and what it has done.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultRow {
    /// Its identity.
    pub id: u64,
    /// The rule.
    pub rule: Rule,
    /// How often a program came to what it is about, in all processes.
    pub met: u64,
    /// How often its effect was injected.
    pub struck: u64,
}

/// A table of fault rules.
#[derive(Debug)]
pub struct FaultTable {
    layout: &'static Layout,
    path: PathBuf,
    /// Of a table that ends with its owner.
    owned: Option<NotInherited<fs::File>>,
}

/// Why a table was not changed.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The rules cannot be in force together.
    #[error(transparent)]
    Rules(#[from] TableError),
    /// The file cannot be used.
    #[error("cannot use {path}: {source}")]
    File {
        /// Where it lies.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no such rule.
    #[error("there is no fault rule {id}; `ferroce fault list` shows the rules and their numbers")]
    NoRule {
        /// What was asked for.
        id: u64,
    },
}

impl FaultTable {
    /// The table for all programs on the devices of a directory.
    pub(crate) fn live(directory: &Path) -> Result<Self, FaultError> {
        Self::at(&directory.join(LIVE))
    }

    /// A new table for the programs that a process starts. It is removed with the result, and by the
    /// next run if this process is killed.
    pub(crate) fn of_run(directory: &Path, rules: &[Rule]) -> Result<Self, FaultError> {
        Self::of_process(process::id(), directory, rules)
    }

    fn of_process(pid: u32, directory: &Path, rules: &[Rule]) -> Result<Self, FaultError> {
        let path = directory.join(format!("{OF_RUN}{pid}"));
        // Runs take turns: until a table has its owner's lock, others take it for one that was left.
        let table = Self::live(directory)?.exclusively(|| {
            sweep(directory);
            Self::owned_at(&path)
        })??;
        table.clear(None)?;
        table.add(rules)?;
        Ok(table)
    }

    /// The table in a file, which goes with this process.
    fn owned_at(path: &Path) -> Result<Self, FaultError> {
        let mut table = Self::at(path)?;
        let owned = open_file(path).map(NotInherited::new);
        let locked = owned.and_then(|file| os::lock(&file, OWNER).map(|_| file));
        table.owned = Some(locked.map_err(|source| table.failed(source))?);
        Ok(table)
    }

    /// The table of a run that this process is part of; `None` if the run has ended.
    pub fn of_own_run(path: &Path) -> Result<Option<Self>, FaultError> {
        path.exists().then(|| Self::at(path)).transpose()
    }

    /// The table in a file, which is made if need be.
    fn at(path: &Path) -> Result<Self, FaultError> {
        static MAPPINGS: Mappings<Layout> = Mappings::new();
        let mapped = open_file(path).and_then(|file| {
            let length = size_of::<Layout>() as u64;
            if file.metadata()?.len() < length {
                os::allocate(&file, length)?;
            }
            MAPPINGS.of(&file, || open_file(path))
        });
        let path = path.to_owned();
        match mapped {
            Ok(layout) => Ok(Self {
                layout,
                path,
                owned: None,
            }),
            Err(source) => Err(FaultError::File { path, source }),
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its rules are about.
    #[inline]
    pub fn targets(&self) -> Targets {
        Targets(self.layout.targets.load(Ordering::Relaxed))
    }

    /// Another number after each change.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.layout.generation.load(Ordering::Acquire)
    }

    /// The rules in the order in which they apply, and the generation that they belong to. `None` while
    /// they are being changed.
    pub fn rows(&self) -> Option<(u64, Vec<FaultRow>)> {
        let before = self.generation();
        if !before.is_multiple_of(2) {
            return None;
        }
        let rows = self.current();
        fence(Ordering::Acquire);
        let after = self.layout.generation.load(Ordering::Relaxed);
        (before == after).then_some((before, rows))
    }

    /// The same, once no process changes them.
    pub fn settled_rows(&self) -> Result<Vec<FaultRow>, FaultError> {
        self.exclusively(|| self.current())
    }

    /// Counts that a rule was met, and whether its effect was injected.
    pub fn note(&self, id: u64, strikes: bool) {
        let slots = &self.layout.slots;
        let slot = slots.iter().find(|it| it.id.load(Ordering::Relaxed) == id);
        if let Some(slot) = slot {
            slot.met.fetch_add(1, Ordering::Relaxed);
            slot.struck.fetch_add(strikes.into(), Ordering::Relaxed);
        }
    }

    /// Adds rules behind those that there are, or none of them.
    pub fn add(&self, rules: &[Rule]) -> Result<(), FaultError> {
        self.exclusively(|| {
            let all: Vec<_> = self.current().into_iter().map(|row| row.rule).collect();
            ferroce_fault::check(&[&all, rules].concat())?;
            self.change(|| {
                let is_free = |it: &&Slot| it.id.load(Ordering::Relaxed) == 0;
                let free = self.layout.slots.iter().filter(is_free);
                for (slot, rule) in free.zip(rules) {
                    let id = self.layout.last_id.fetch_add(1, Ordering::Relaxed) + 1;
                    slot.set(id, rule);
                }
            });
            Ok(())
        })?
    }

    /// Removes the rule with this identity, or all; returns those that it has removed.
    pub fn clear(&self, id: Option<u64>) -> Result<Vec<FaultRow>, FaultError> {
        self.exclusively(|| {
            let goes = |row: &FaultRow| id.is_none_or(|id| row.id == id);
            let gone: Vec<_> = self.current().into_iter().filter(goes).collect();
            if let (Some(id), true) = (id, gone.is_empty()) {
                return Err(FaultError::NoRule { id });
            }
            self.change(|| {
                for slot in &self.layout.slots {
                    let own = slot.id.load(Ordering::Relaxed);
                    if id.is_none_or(|id| own == id) {
                        slot.id.store(0, Ordering::Relaxed);
                    }
                }
            });
            Ok(gone)
        })?
    }

    /// What is there, which may be half of a change.
    fn current(&self) -> Vec<FaultRow> {
        let mut rows: Vec<_> = self.layout.slots.iter().filter_map(Slot::row).collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// Keeps other writers away.
    fn exclusively<T>(&self, work: impl FnOnce() -> T) -> Result<T, FaultError> {
        let locked = open_file(&self.path).and_then(|file| {
            os::lock_when_free(&file, WRITER, PATIENCE)?;
            Ok(file)
        });
        let _held = locked.map_err(|source| self.failed(source))?;
        Ok(work())
    }

    fn failed(&self, source: io::Error) -> FaultError {
        let path = self.path.clone();
        FaultError::File { path, source }
    }

    /// Keeps readers from taking half of a change for a whole. A writer that was killed has left an odd
    /// generation, which this one ends.
    fn change(&self, work: impl FnOnce()) {
        let generation = &self.layout.generation;
        let odd = generation.load(Ordering::Relaxed) | 1;
        generation.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        work();
        let targets: Targets = self.current().iter().map(|row| row.rule.target).collect();
        self.layout.targets.store(targets.0, Ordering::Relaxed);
        generation.store(odd.wrapping_add(1), Ordering::Release);
    }
}

impl Drop for FaultTable {
    fn drop(&mut self) {
        if self.owned.is_some() {
            // The next run removes what stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Slot {
    fn set(&self, id: u64, rule: &Rule) {
        let text = rule.to_string();
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().chain([&last]);
        for (cell, word) in self.text.iter().zip(words) {
            cell.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        self.length.store(text.len() as u64, Ordering::Relaxed);
        self.met.store(0, Ordering::Relaxed);
        self.struck.store(0, Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
    }

    /// Its rule, if there is one. Text that is none, which another program of the user must have written,
    /// is overlooked.
    fn row(&self) -> Option<FaultRow> {
        let id = self.id.load(Ordering::Relaxed);
        let words = self.text.iter().map(|cell| cell.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let length = usize::try_from(self.length.load(Ordering::Relaxed)).ok()?;
        let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
        (id != 0).then_some(())?;
        Some(FaultRow {
            id,
            rule: text.parse().ok()?,
            met: self.met.load(Ordering::Relaxed),
            struck: self.struck.load(Ordering::Relaxed),
        })
    }
}

/// Removes the tables of runs that are no more.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(OF_RUN)) {
            let is_owned = |file: fs::File| os::is_locked(&file, OWNER);
            if let Ok(false) = open_file(&entry.path()).and_then(is_owned) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn texts(table: &FaultTable) -> Vec<String> {
        let (_, rows) = table.rows().unwrap();
        rows.iter().map(|row| row.rule.to_string()).collect()
    }

    #[test]
    fn a_table_is_mapped_once_however_often_it_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            FaultTable::live(directory.path()).unwrap();
        }
        let path = directory.path().join(LIVE);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let of_table = |line: &&str| line.ends_with(path.to_str().unwrap());
        assert_eq!(maps.lines().filter(of_table).count(), 1);
    }

    #[test]
    fn rules_are_shared_counted_and_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let writer = FaultTable::live(directory.path()).unwrap();
        let reader = FaultTable::live(directory.path()).unwrap();
        assert_eq!((reader.targets(), texts(&reader)), Default::default());
        let both = [
            "post_send=EIO,nth=2",
            "reg_mr=ENOMEM,program=a_long_name_of_a_program",
        ];
        writer.add(&rules(&both)).unwrap();
        assert_eq!(texts(&reader), both);
        let (generation, rows) = reader.rows().unwrap();
        assert_eq!(
            reader.targets(),
            rows.iter().map(|row| row.rule.target).collect()
        );
        reader.note(rows[1].id, false);
        reader.note(rows[1].id, true);
        let counted = &writer.settled_rows().unwrap()[1];
        assert_eq!((counted.met, counted.struck), (2, 1));
        assert_eq!(reader.generation(), generation);
        let gone = writer.clear(Some(rows[0].id)).unwrap();
        assert_eq!(gone, rows[..1]);
        assert_ne!(reader.generation(), generation);
        assert_eq!(texts(&reader), both[1..]);
        let error = writer.clear(Some(rows[0].id)).unwrap_err().to_string();
        assert!(error.contains("there is no fault rule 1"), "{error}");
        assert_eq!(writer.clear(None).unwrap().len(), 1);
        assert_eq!((reader.targets(), texts(&reader)), Default::default());
    }

    #[test]
    fn a_full_table_takes_no_more_and_loses_none() {
        let directory = tempfile::tempdir().unwrap();
        let table = FaultTable::live(directory.path()).unwrap();
        let all: Vec<Rule> = (1..=RULES_MAX)
            .map(|nth| format!("post_send=EIO,nth={nth}").parse().unwrap())
            .collect();
        table.add(&all).unwrap();
        let error = table.add(&rules(&["reg_mr=EIO"])).unwrap_err().to_string();
        assert!(error.starts_with("65 fault rules; at most 64"), "{error}");
        assert_eq!(table.settled_rows().unwrap().len(), RULES_MAX);
    }

    #[test]
    fn the_longest_text_fits() {
        let directory = tempfile::tempdir().unwrap();
        let table = FaultTable::live(directory.path()).unwrap();
        let name = "x".repeat(TEXT_MAX - "reg_mr=EIO,program=".len());
        let longest = format!("reg_mr=EIO,program={name}");
        assert_eq!(longest.len(), TEXT_MAX);
        table.add(&rules(&[&longest])).unwrap();
        assert_eq!(texts(&table), [longest]);
    }

    #[test]
    fn the_table_of_a_run_goes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let dead = directory.path().join(format!("{OF_RUN}1"));
        drop(FaultTable::at(&dead).unwrap());
        let run = FaultTable::of_run(directory.path(), &rules(&["reg_mr=EIO"])).unwrap();
        assert!(!dead.exists());
        let seen = FaultTable::of_own_run(run.path()).unwrap().unwrap();
        assert_eq!(texts(&seen), ["reg_mr=EIO"]);
        let path = run.path().to_owned();
        sweep(directory.path());
        assert!(path.exists());
        drop(run);
        assert!(!path.exists());
        assert!(FaultTable::of_own_run(&path).unwrap().is_none());
    }

    #[test]
    fn runs_that_begin_at_a_time_leave_each_other_their_tables() {
        let directory = tempfile::tempdir().unwrap();
        let own = rules(&["reg_mr=EIO"]);
        let begin_often = |pid| {
            for _ in 0..500 {
                let run = FaultTable::of_process(pid, directory.path(), &own).unwrap();
                let seen = FaultTable::of_own_run(run.path()).unwrap().unwrap();
                assert_eq!(texts(&seen), ["reg_mr=EIO"]);
            }
        };
        thread::scope(|scope| {
            (1..=3).for_each(|pid| drop(scope.spawn(move || begin_often(pid))));
        });
    }

    #[test]
    fn readers_never_see_half_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let table = FaultTable::live(directory.path()).unwrap();
        let both = rules(&["post_send=EIO,nth=2", "reg_mr=ENOMEM"]);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for _ in 0..500 {
                    table.add(&both).unwrap();
                    table.clear(None).unwrap();
                }
            });
            while !writer.is_finished() {
                if let Some((_, rows)) = table.rows() {
                    assert!([0, 2].contains(&rows.len()), "{rows:?}");
                }
            }
        });
    }
}

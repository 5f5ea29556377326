//! Faults by rule: what `ferroce fault` and `ferroce run --fault` have happen to calls, completions and
//! events.
//!
//! Rules are in tables that processes share. A call costs a look at what the rules of each table are
//! about, and no more while none is about it.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_abi::border::uncancelled;
use ferroce_fault::{Effect, Occasion, Rule, Rules, Target};
use ferroce_os::List;
use ferroce_registry::{FaultTable, Registry};

use crate::error::Error;

/// Names the table of a run.
const VARIABLE: &str = "FERROCE_FAULT";

/// The tables whose rules this process obeys: that of the run, if it is part of one, and that of all
/// programs.
static TABLES: OnceLock<Vec<Source>> = OnceLock::new();

struct Source {
    table: FaultTable,
    /// The rules as they were read, the latest first. Threads may still use the older ones.
    read: List<Read>,
    is_being_read: AtomicBool,
}

struct Read {
    generation: u64,
    rules: Rules,
}

/// Obeys the tables from now on; to be called before the first call that rules may be about.
pub fn watch() -> Result<(), Error> {
    if TABLES.get().is_none() {
        let tables = tables()?;
        // Another thread may have been faster.
        let _ = TABLES.set(tables);
    }
    Ok(())
}

fn tables() -> Result<Vec<Source>, Error> {
    let of_run = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let of_run = of_run.map(|path| FaultTable::of_own_run(Path::new(&path)));
    let of_run = of_run.transpose()?.flatten();
    let tables = of_run.into_iter().chain([Registry::open()?.faults()?]);
    let source = |table| Source {
        table,
        read: List::new(),
        is_being_read: AtomicBool::new(false),
    };
    Ok(tables.map(source).collect())
}

/// Whether a rule is about this.
#[inline]
pub fn is_wanted(target: Target) -> bool {
    let sources = TABLES.get().into_iter().flatten();
    sources
        .into_iter()
        .any(|it| it.table.targets().contains(target))
}

/// Whether there has ever been a rule for this process.
pub(crate) fn is_in_use() -> bool {
    let mut sources = TABLES.get().into_iter().flatten();
    sources.any(|it| it.read.iter().next().is_some())
}

/// Counts an occasion that a rule is about, and returns what happens to it.
#[cold]
pub fn meet(occasion: Occasion<'_>) -> Option<Effect> {
    let sources = TABLES.get().into_iter().flatten();
    // All count it, and the first that is due applies.
    let effects = sources.map(|source| source.meet(occasion));
    uncancelled(|| effects.fold(None, Option::or))
}

/// Lets rules act on a call that is made before a device is chosen.
pub fn meet_early(target: Target) -> Result<(), Error> {
    watch()?;
    if !is_wanted(target) {
        return Ok(());
    }
    let occasion = Occasion {
        target,
        device: None,
        qp: None,
    };
    match meet(occasion) {
        Some(Effect::Fail(errno)) => Err(Error::Injected(errno)),
        _ => Ok(()),
    }
}

/// In the child of a fork, where no thread reads any more.
pub(crate) fn after_fork() {
    for source in TABLES.get().into_iter().flatten() {
        source.is_being_read.store(false, Ordering::Relaxed);
    }
}

impl Source {
    fn meet(&self, occasion: Occasion<'_>) -> Option<Effect> {
        let rules = &self.current()?.rules;
        rules.meet(occasion, |id, strikes| self.table.note(id, strikes))
    }

    /// The rules as they are, or as they were if another thread reads them or they are being changed.
    fn current(&self) -> Option<&'static Read> {
        let last = self.latest();
        if last.is_some_and(|it| it.generation == self.table.generation())
            || self.is_being_read.swap(true, Ordering::Acquire)
        {
            return last;
        }
        let read = self.refresh();
        self.is_being_read.store(false, Ordering::Release);
        read
    }

    fn refresh(&self) -> Option<&'static Read> {
        let last = self.latest();
        let Some((generation, rows)) = self.table.rows() else {
            return last;
        };
        let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let concerns = |rule: &Rule| rule.scope.is_of(program.trim_end());
        let own = rows.into_iter().filter(|row| concerns(&row.rule));
        let own = own.map(|row| (row.id, row.rule));
        let rules = match last {
            Some(last) => last.rules.followed_by(own),
            None => Rules::new(own),
        };
        self.read.push(Read { generation, rules });
        self.latest()
    }

    fn latest(&self) -> Option<&'static Read> {
        self.read.iter().next()
    }
}

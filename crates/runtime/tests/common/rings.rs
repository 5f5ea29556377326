//! The rings in the memory of this process, including both ends of those within it.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// For tests that count them: one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// Where it is mapped.
    pub start: u64,
    /// How much of its present memory this end has used.
    pub used_kib: u64,
}

/// The rings that exist.
pub fn rings() -> Vec<Mapped> {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut rings = Vec::new();
    let mut lines = maps.lines();
    while let Some(line) = lines.next() {
        if !line.contains("ferroce-ring") {
            continue;
        }
        let start = line.split('-').next().unwrap();
        let used = lines.by_ref().find_map(|line| line.strip_prefix("Rss:"));
        let used = used.unwrap().trim().trim_end_matches(" kB");
        rings.push(Mapped {
            start: u64::from_str_radix(start, 16).unwrap(),
            used_kib: used.parse().unwrap(),
        });
    }
    rings
}

/// Waits for this number of rings: the kernel reports the end of another process with a delay.
pub fn wait_for_rings(count: usize) {
    wait_for_rings_that(|rings| rings.len() == count);
}

/// Waits until the rings are as required.
pub fn wait_for_rings_that(is_so: impl Fn(&[Mapped]) -> bool) {
    super::wait_until("the rings", || is_so(&rings()));
}

//! The cost of control and telemetry: counting waits, reading them, registers, a scrape; each
//! compared with the unavoidable minimum.
//!
//! Costs are the CPU time of the thread that pays them, so they are also valid with more threads
//! than cores.

pub mod histogram;
pub mod registers;
pub mod scrape;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Why a measurement failed.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A cost beside the one that it is compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Beside {
    /// What cannot be done without.
    pub bare: f64,
    /// What Ferroce takes, in the same unit.
    pub ferroce: f64,
}

/// Does something a number of times, and returns that number.
pub type Work<'a> = dyn Fn() -> u64 + Sync + 'a;

/// Lets each of these run on a thread of its own for some seconds, all at the same time, and returns
/// what one time of each costs: nanoseconds of its thread.
///
/// # Errors
///
/// Returns an error if the kernel keeps no account of processor time.
pub fn costs(seconds: f64, works: &[&Work<'_>]) -> io::Result<Vec<f64>> {
    let stop = AtomicBool::new(false);
    let run = |work: &Work<'_>| {
        work();
        let own = Path::new("/proc/thread-self/schedstat");
        let began = on_cpu(own)?;
        let mut times = 0;
        while !stop.load(Ordering::Relaxed) {
            times += work();
        }
        let spent = on_cpu(own)? - began;
        Ok(spent.as_nanos() as f64 / times.max(1) as f64)
    };
    let run = &run;
    thread::scope(|scope| {
        let spawn = |work| scope.spawn(move || run(work));
        let threads: Vec<_> = works.iter().copied().map(spawn).collect();
        thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        let costs = threads.into_iter().map(|thread| match thread.join() {
            Ok(cost) => cost,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        costs.collect()
    })
}

/// How long the thread has had a core, by its file `schedstat`.
fn on_cpu(file: &Path) -> io::Result<Duration> {
    let line = fs::read_to_string(file)?;
    let first = line.split_ascii_whitespace().next();
    let nanos = first.and_then(|word| word.parse().ok());
    let unreadable = || io::Error::other(format!("{}: {line:?}", file.display()));
    nanos.map(Duration::from_nanos).ok_or_else(unreadable)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

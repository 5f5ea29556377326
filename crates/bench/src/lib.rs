//! Measures devices on this machine, beside what else can be had on it.
//!
//! | module | content |
//! |---|---|
//! | `bare` | programs on UDP sockets and on rings that do nothing but what they have to |
//! | `pair` | two devices of this process |
//! | `programs` | perftest on devices, iperf3 and UCX, in namespaces of their own |
//! | `load` | how much of the processors others use |
//! | `ratio` | ratios, how sure they are, and what is said of them |
//!
//! Figures vary by tens of percent with the state of a machine. Whatever is compared takes its turn in each
//! of several rounds, and only ratios within a round say something.

#![forbid(unsafe_code)]

pub mod bare;
pub mod load;
pub mod pair;
pub mod programs;
pub mod ratio;

use std::env;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// A thread that had to wait for a core for a larger share of its time than this spoils a
/// measurement of the bare program.
pub const BARE_CONTENTION_MAX: f64 = 0.02;

/// The same for the device, whose helper threads look in now and then and take their share.
pub const DEVICE_CONTENTION_MAX: f64 = 0.08;

/// How often a disturbed measurement is repeated, and after how long.
const REPEATS_MAX: u32 = 20;
const REPEAT_AFTER: Duration = Duration::from_millis(200);

/// A measurement that other processes may disturb.
pub trait Contended {
    /// The largest share of its time for which a thread waited for a core.
    fn contention(&self) -> f64;
}

impl Contended for bare::Throughput {
    fn contention(&self) -> f64 {
        self.contention
    }
}

impl Contended for bare::Latency {
    fn contention(&self) -> f64 {
        self.contention
    }
}

/// Measures until no other process has used the cores meanwhile, or gives up and takes the last.
pub fn undisturbed<T: Contended, E>(
    contention_max: f64,
    mut run: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut outcome = run()?;
    for _ in 0..REPEATS_MAX {
        if outcome.contention() <= contention_max {
            break;
        }
        thread::sleep(REPEAT_AFTER);
        let again = run()?;
        if again.contention() < outcome.contention() {
            outcome = again;
        }
    }
    Ok(outcome)
}

/// The value in the middle, or between the two in the middle; of none, not a number.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = |at: usize| values.get(at).copied().unwrap_or(f64::NAN);
    f64::midpoint(
        middle(values.len().saturating_sub(1) / 2),
        middle(values.len() / 2),
    )
}

/// A directory for the devices of a measurement: below `FERROCE_DIR` if that is set, or in memory where the
/// system has it. It goes with the value.
pub(crate) fn private_directory() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let base = match env::var_os("FERROCE_DIR") {
        Some(directory) => directory.into(),
        None if memory.is_dir() => memory.to_owned(),
        None => env::temp_dir(),
    };
    tempfile::Builder::new()
        .prefix(&format!("ferroce-bench-{}-", std::process::id()))
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(base)
}

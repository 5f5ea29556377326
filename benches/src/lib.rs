//! Ferroce's benchmark programs, and the bare program that the device is compared with.

#![forbid(unsafe_code)]

pub mod bare;
pub mod control;
pub mod crowd;
pub mod pacing;
pub mod pair;
pub mod picture;
pub mod programs;
pub mod quality;
mod rounds;

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

pub use self::rounds::Rounds;

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

/// A table with the columns of a range to the right.
pub fn table<H: Into<String>>(
    head: impl IntoIterator<Item = H>,
    right: Range<usize>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(head.into_iter().map(Into::<String>::into));
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(right.start).take(right.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n", table.trim_fmt())
}

/// Ends a program: prints what it has measured, as JSON or as its table, or what went wrong.
pub fn finish<T: Serialize>(
    program: &str,
    outcome: Result<T, Box<dyn Error>>,
    json: bool,
    table: impl FnOnce(&T) -> String,
) -> ExitCode {
    let printed = outcome.and_then(|measured| {
        let text = if json {
            format!("{}\n", serde_json::to_string_pretty(&measured)?)
        } else {
            table(&measured)
        };
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

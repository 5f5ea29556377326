//! Runs mixed programs on devices with a bad link, and shows whether anything grows: docs/soak.md.
//!
//!     cargo build --release && cargo run --release -p ferroce-interop --bin soak [MINUTES [SEED]]
//!
//! With `FERROCE_DRAW=FILE`, the picture is written there.

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ferroce_interop::soak::soak;

/// A week.
const MINUTES_MAX: u64 = 7 * 24 * 60;

fn main() -> ExitCode {
    let words: Result<Vec<u64>, _> = env::args().skip(1).map(|word| word.parse()).collect();
    let (minutes, seed) = match words.as_deref() {
        Ok([]) => (10, 1),
        Ok([minutes]) => (*minutes, 1),
        Ok([minutes, seed]) => (*minutes, *seed),
        _ => (0, 0),
    };
    if !(1..=MINUTES_MAX).contains(&minutes) {
        eprintln!("usage: soak [MINUTES [SEED]]: 1 to {MINUTES_MAX} minutes, 10 without them");
        return ExitCode::from(2);
    }
    let report = soak(Duration::from_secs(minutes * 60), seed);
    print!("{report}");
    if let Some(file) = env::var_os("FERROCE_DRAW")
        && let Err(error) = report.draw(Path::new(&file))
    {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    match report.is_clean() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

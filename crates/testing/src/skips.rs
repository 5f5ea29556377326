//! Tests that cannot run here.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Reports that `test` does not run, and why: on standard error, and in the file that the environment
/// variable `FERROCE_SKIPS` names, from which `./test` lists all skipped tests.
///
/// # Panics
///
/// If that file cannot be written, because the test would count as passed.
pub fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    eprint!("{line}");
    let Some(path) = std::env::var_os("FERROCE_SKIPS") else {
        return;
    };
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        // One write, so that lines of tests in other processes do not mix.
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot write {}: {error}", path.display());
    }
}

//! Ferroce's benchmark programs.

#![forbid(unsafe_code)]

pub mod control;
pub mod crowd;
pub mod flood;
pub mod pacing;
pub mod picture;
pub mod quality;
mod rounds;

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

pub use self::rounds::Rounds;

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

/// The program `ferroce`, if it is named, or the one beside this program.
///
/// # Errors
/// This program is nowhere.
pub fn ferroce_or_beside(ferroce: Option<&Path>) -> io::Result<PathBuf> {
    match ferroce {
        Some(path) => Ok(path.to_owned()),
        None => Ok(std::env::current_exe()?.with_file_name("ferroce")),
    }
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

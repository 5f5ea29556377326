//! Commands as tests write them, and what their output must contain.

use std::fmt;

/// A command: a line as it is typed, or its words.
pub trait Words: fmt::Debug {
    /// Each word.
    fn words(&self) -> Vec<&str>;
}

impl Words for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl Words for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl Words for Vec<&str> {
    fn words(&self) -> Vec<&str> {
        self.clone()
    }
}

impl<T: Words + ?Sized> Words for &T {
    fn words(&self) -> Vec<&str> {
        T::words(self)
    }
}

/// Checks that a text contains each of these parts.
///
/// # Panics
///
/// Panics with the text if one is missing.
#[track_caller]
pub fn has(text: &str, parts: impl IntoIterator<Item = impl AsRef<str>>) {
    for part in parts {
        let part = part.as_ref();
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

/// The rows of a table of cases: a line each, its cells between arrows, as in `in => out`.
///
/// # Panics
///
/// Panics if a row has another number of cells.
#[track_caller]
pub fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let row = |line| -> [&str; N] {
        let cells: Vec<_> = str::split(line, "=>").map(str::trim).collect();
        let count = cells.len();
        let row = cells.try_into();
        row.unwrap_or_else(|_| panic!("{count} cells and not {N}: {line}"))
    };
    table
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(row)
        .collect()
}

//! Layout of explanations and findings.

use std::fmt::Write as _;

use crate::output::look::{columns, width as columns_of};

/// Text in two columns, the second one wrapped.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) text: String,
}

const LEFT: usize = 13;
const NAME: usize = 32;
const WIDTH: usize = 80;

impl Lines {
    /// A row, or as many as its body takes.
    pub(crate) fn add(&mut self, head: &str, body: &str) {
        for (i, row) in wrapped(body, WIDTH - LEFT).iter().enumerate() {
            let head = if i == 0 { head } else { "" };
            self.line(&format!("{head:<LEFT$}{row}"));
        }
    }

    /// A row of the second column, in which a name stands beside its own text.
    pub(crate) fn named(&mut self, name: &str, text: &str) {
        for (i, row) in wrapped(text, WIDTH - LEFT - NAME).iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            self.line(&format!("{:<LEFT$}{name:<NAME$}{row}", ""));
        }
    }

    /// Text over both columns.
    pub(crate) fn across(&mut self, text: &str) {
        for row in wrapped(text, WIDTH) {
            self.line(&row);
        }
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.replace(UNBROKEN, " ").trim_end());
    }
}

/// Prose in lines that begin with four spaces, below what it is about.
pub(crate) fn indented(text: &str) -> String {
    let rows = wrapped(text, columns().min(100) - 4);
    rows.iter().map(|row| format!("    {row}\n")).collect()
}

/// The lines of a text. One that fits keeps its own spaces.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    if columns_of(text) <= width {
        return vec![text.to_owned()];
    }
    let mut rows = vec![String::new()];
    for word in text.split(' ') {
        let last = rows.last_mut().expect("there is a first row");
        if !last.is_empty() && columns_of(last) + 1 + columns_of(word) > width {
            rows.push(word.to_owned());
        } else {
            *last += if last.is_empty() { "" } else { " " };
            *last += word;
        }
    }
    rows
}

/// A space at which no line breaks.
const UNBROKEN: &str = "\u{a0}";

/// Text that stays in one line.
pub(crate) fn unbroken(text: &str) -> String {
    text.replace(' ', UNBROKEN)
}

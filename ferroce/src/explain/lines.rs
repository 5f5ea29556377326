//! How explanations are laid out.

use std::fmt::Write as _;

/// Text in two columns, the second one wrapped.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) text: String,
}

const LEFT: usize = 13;
const WIDTH: usize = 100;

impl Lines {
    /// A row, or as many as its body takes.
    pub(super) fn add(&mut self, head: &str, body: &str) {
        // A body that fits keeps its own spaces.
        let mut rows = vec![String::new()];
        if body.chars().count() <= WIDTH - LEFT {
            rows = vec![body.to_owned()];
        } else {
            for word in body.split(' ') {
                let last = rows.last_mut().expect("there is a first row");
                if !last.is_empty()
                    && last.chars().count() + 1 + word.chars().count() > WIDTH - LEFT
                {
                    rows.push(word.to_owned());
                } else {
                    *last += if last.is_empty() { "" } else { " " };
                    *last += word;
                }
            }
        }
        for (i, row) in rows.iter().enumerate() {
            let head = if i == 0 { head } else { "" };
            let line = format!("{head:<LEFT$}{row}");
            let _ = writeln!(self.text, "{}", line.replace(UNBROKEN, " ").trim_end());
        }
    }
}

/// A space at which no line breaks.
const UNBROKEN: &str = "\u{a0}";

/// Text that stays in one line.
pub(super) fn unbroken(text: &str) -> String {
    text.replace(' ', UNBROKEN)
}

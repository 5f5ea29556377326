//! Lines as iproute2's `rdma` prints them, and how to print.

use clap::Args;
use serde_json::{Map, Value};

use crate::output::look::{row_columns, width};
use crate::output::{Failure, Output};

/// How to print.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Format {
    /// Print JSON
    #[arg(short, long, global = true)]
    pub(super) json: bool,
    /// Print more
    #[arg(long, global = true)]
    pub(super) details: bool,
}

impl Format {
    /// With the details that -d in front of the noun asks for.
    pub(super) fn with(self, details: bool) -> Self {
        Self {
            details: self.details || details,
            ..self
        }
    }
}

/// One object for people: keys and values in the order in which they are printed.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// What stands in front of a line.
    title: String,
    fields: Map<String, Value>,
    /// Whole lines.
    below: String,
}

impl Row {
    /// A row whose line begins with `title`.
    pub(super) fn new(title: String) -> Self {
        Self {
            title,
            ..Self::default()
        }
    }

    /// The row of a link of a device, from 1.
    pub(super) fn of_link(device: &str, number: u64) -> Self {
        Self::new(format!("link {device}/{number}"))
    }

    /// Adds a value.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.fields.insert(key.to_owned(), value.into());
    }

    /// Adds words to what stands in front of a line.
    pub(super) fn say(&mut self, words: &str) {
        self.title += " ";
        self.title += words;
    }

    /// Adds lines below.
    pub(super) fn add_below(&mut self, lines: &str) {
        self.below += lines;
    }

    /// What people read: one line, which is broken between keys where a terminal is narrower.
    fn line(&self) -> String {
        let pairs = self.fields.iter().map(|(key, value)| match value {
            Value::String(text) => format!("{key} {text}"),
            value => format!("{key} {value}"),
        });
        let mut text = self.title.clone();
        match row_columns() {
            None => pairs.for_each(|pair| {
                text += if text.is_empty() { "" } else { " " };
                text += &pair;
            }),
            Some(columns) => pairs.for_each(|pair| append(&mut text, &pair, columns)),
        }
        format!("{text}\n{}", self.below)
    }
}

/// Adds a key and its value to a text, on a line of their own where the last one has no room. A list
/// that is longer than a line is broken behind its commas.
fn append(text: &mut String, pair: &str, columns: usize) {
    const INDENT: usize = 4;
    let last = text.rsplit('\n').next().map_or(0, width);
    if last > 0 && last + 1 + width(pair) > columns {
        *text += &format!("\n{:INDENT$}", "");
    } else if last > 0 {
        text.push(' ');
    }
    for part in pair.split_inclusive(',') {
        let last = text.rsplit('\n').next().map_or(0, width);
        if last > INDENT && last + width(part) > columns {
            *text += &format!("\n{:1$}", "", 2 * INDENT);
        }
        *text += part;
    }
}

/// Prints rows for people.
pub(super) fn print(rows: &[Row], to: &mut Output<'_>) -> Result<(), Failure> {
    let lines: String = rows.iter().map(Row::line).collect();
    to.text(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_keys_and_behind_commas() {
        let mut text = "link fr0/1".to_owned();
        for pair in [
            "state ACTIVE",
            "netdev lo",
            "egress loss=1%,delay=50us,jitter=10us,rate=1Gbit",
        ] {
            append(&mut text, pair, 40);
        }
        assert_eq!(
            text,
            "link fr0/1 state ACTIVE netdev lo\n    egress loss=1%,delay=50us,\n        \
             jitter=10us,rate=1Gbit"
        );
    }
}

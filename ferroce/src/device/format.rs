//! Lines and JSON as iproute2's `rdma` prints them.

use clap::Args;
use serde_json::{Map, Value};

use super::PORT;
use crate::output::{Failure, Output};

/// How to print, as iproute2 takes it: in front of the object.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Before {
    #[arg(short, long, hide = true)]
    json: bool,
    #[arg(short, long, hide = true)]
    pretty: bool,
    #[arg(short, long, hide = true)]
    details: bool,
}

impl Before {
    /// Refuses these options for a command that does not know them.
    pub(crate) fn refuse(self) -> Result<(), Failure> {
        if !(self.json || self.pretty || self.details) {
            return Ok(());
        }
        Err(Failure::input(
            "-j, -p and -d in front of the command go with cc, dev, impair, link, res and stat; write \
             them behind the others",
        ))
    }
}

/// How to print.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Format {
    /// Print JSON, with the keys of iproute2's rdma
    #[arg(short, long, global = true)]
    json: bool,
    /// Break the JSON into lines
    #[arg(short, long, global = true)]
    pretty: bool,
    /// Print more
    #[arg(short, long, global = true)]
    pub(super) details: bool,
}

/// One object: keys and values in the order in which they are printed.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// What stands in front of a line, in place of some of the keys.
    title: String,
    /// Keys of which the title tells.
    titled: Vec<&'static str>,
    fields: Map<String, Value>,
    /// Whole lines for people only.
    below: String,
}

impl Row {
    /// A row whose line begins with `title`, which says the values of some keys.
    pub(super) fn new(title: String, keys: &[(&'static str, Value)]) -> Self {
        let fields = keys
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()));
        Self {
            title,
            titled: keys.iter().map(|(key, _)| *key).collect(),
            fields: fields.collect(),
            below: String::new(),
        }
    }

    /// The row of a device by its place among all and its name, to be shown behind `title`.
    pub(super) fn of_device((index, name): (usize, &str), title: String) -> Self {
        Self::new(title, &[("ifindex", index.into()), ("ifname", name.into())])
    }

    /// The row of a device's only port.
    pub(super) fn of_port((index, name): (usize, &str)) -> Self {
        let keys = [
            ("ifindex", index.into()),
            ("ifname", name.into()),
            ("port", PORT.into()),
        ];
        Self::new(format!("link {name}/{PORT}"), &keys)
    }

    /// Adds a value.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.fields.insert(key.to_owned(), value.into());
    }

    /// Adds words to what stands in front of a line, for people only.
    pub(super) fn say(&mut self, words: &str) {
        self.title += " ";
        self.title += words;
    }

    /// Adds a value that programs get as it is and people get as lines.
    pub(super) fn put_below(&mut self, key: &'static str, value: Value, lines: &str) {
        self.fields.insert(key.to_owned(), value);
        self.titled.push(key);
        lines.clone_into(&mut self.below);
    }

    fn line(&self) -> String {
        let mut line = self.title.clone();
        for (key, value) in &self.fields {
            if self.titled.contains(&key.as_str()) {
                continue;
            }
            match value {
                Value::String(text) => line += &format!(" {key} {text}"),
                value => line += &format!(" {key} {value}"),
            }
        }
        format!("{}\n{}", line.trim_start(), self.below)
    }
}

impl Format {
    /// For a command that has no details to print.
    pub(super) fn new(json: bool, pretty: bool) -> Self {
        Self {
            json,
            pretty,
            details: false,
        }
    }

    /// With what stood in front of the object.
    pub(super) fn after(self, before: Before) -> Self {
        Self {
            json: self.json || before.json,
            pretty: self.pretty || before.pretty,
            details: self.details || before.details,
        }
    }

    /// Whether programs read what is printed.
    pub(super) fn is_json(self) -> bool {
        self.json || self.pretty
    }

    /// Prints rows.
    pub(super) fn print(self, to: &mut Output<'_>, rows: Vec<Row>) -> Result<(), Failure> {
        if !self.json && !self.pretty {
            let lines: String = rows.iter().map(Row::line).collect();
            return to.text(&lines);
        }
        let objects = rows.into_iter().map(|row| Value::Object(row.fields));
        self.print_json(&objects.collect(), to)
    }

    /// Prints facts for programs.
    pub(super) fn print_json(self, facts: &Value, to: &mut Output<'_>) -> Result<(), Failure> {
        if self.pretty {
            // `Value`'s alternate form is the one with lines.
            return to.text(&format!("{facts:#}\n"));
        }
        to.json(facts)
    }
}

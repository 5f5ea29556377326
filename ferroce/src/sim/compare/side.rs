//! The results of a run, read from its directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ferroce_scenario::results::Summary;
use serde::Deserialize;
use toml::{Table, Value};

use super::Key;
use crate::output::{Document as _, Failure};
use crate::sim::directory::{MARK, SCENARIO};
use crate::sim::tables::parquet::{self, Field};

/// A run.
pub(super) struct Side {
    /// What the user called it.
    pub(super) path: PathBuf,
    directory: PathBuf,
    pub(super) summary: Summary,
    /// The utilisation of links: of all, or without the table of them, of the busiest.
    pub(super) links: BTreeMap<String, f64>,
    /// The keys of its scenario's file, if that is there.
    keys: Option<BTreeMap<String, String>>,
}

/// What tells a summary from other JSON.
#[derive(Deserialize)]
struct Marked {
    schema: String,
    version: u32,
}

impl Side {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let (directory, file) = match path.is_dir() {
            true => (path.to_owned(), path.join(MARK)),
            false => (path.parent().unwrap_or(path).to_owned(), path.to_owned()),
        };
        let shown = file.display();
        let text = fs::read_to_string(&file).map_err(|error| {
            Failure::input(format_args!(
                "cannot read {shown}: {error}; name a directory that `ferroce sim run -o` wrote"
            ))
        })?;
        let marked: Result<Marked, _> = serde_json::from_str(&text);
        let is_summary =
            |it: Marked| it.schema == Summary::SCHEMA && it.version == Summary::VERSION;
        if !marked.is_ok_and(is_summary) {
            return Err(Failure::input(format_args!(
                "{shown} is not a summary of a run (schema {:?}, version {}); name one that `ferroce sim run \
                 -o` or -j wrote",
                Summary::SCHEMA,
                Summary::VERSION
            )));
        }
        let summary: Summary = serde_json::from_str(&text)
            .map_err(|error| {
                Failure::input(format_args!(
                    "cannot read {shown}: {error}; if another version of ferroce wrote it, run the scenario again"
                ))
            })?;
        let mut side = Self {
            path: path.to_owned(),
            links: BTreeMap::new(),
            keys: keys(&directory.join(SCENARIO)),
            directory,
            summary,
        };
        side.links = match side.table("link_totals", &["link", "utilisation"])? {
            Some(rows) => rows.into_iter().filter_map(named_share).collect(),
            None => {
                let busiest = side.summary.busiest_links.iter();
                busiest
                    .map(|it| (it.link.clone(), it.carried.utilisation))
                    .collect()
            }
        };
        Ok(side)
    }

    /// Columns of one of its tables, row by row; `None` if it is not there as Parquet.
    pub(super) fn table(
        &self,
        name: &str,
        columns: &[&str],
    ) -> Result<Option<Vec<Vec<Field>>>, Failure> {
        let path = self.directory.join(name).with_extension("parquet");
        let Ok(file) = File::open(&path) else {
            return Ok(None);
        };
        let rows = parquet::read(file, columns);
        rows.map(Some).map_err(|error| {
            Failure::input(format_args!("cannot read {}: {error}", path.display()))
        })
    }

    /// Its name and what was run.
    pub(super) fn described(&self) -> String {
        let it = &self.summary;
        let title = match it.title.as_str() {
            "" => String::new(),
            title => format!("{title}; "),
        };
        format!(
            "{}: {title}scenario {}, seed {}, Ferroce {}",
            self.path.display(),
            it.scenario_hash,
            it.seed,
            it.ferroce_version
        )
    }
}

fn named_share(row: Vec<Field>) -> Option<(String, f64)> {
    match &row[..] {
        [Field::Str(link), Field::Double(share)] => Some((link.clone(), *share)),
        _ => None,
    }
}

/// All keys of a scenario file with their values; `None` if it cannot be read.
fn keys(path: &Path) -> Option<BTreeMap<String, String>> {
    let table: Table = fs::read_to_string(path).ok()?.parse().ok()?;
    let mut keys = BTreeMap::new();
    flatten("", &Value::Table(table), &mut keys);
    Some(keys)
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (key, value) in table {
                flatten(&format!("{path}{dot}{key}"), value, into);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_table) => {
            for (at, value) in values.iter().enumerate() {
                flatten(&format!("{path}[{at}]"), value, into);
            }
        }
        Value::String(text) => drop(into.insert(path.to_owned(), text.clone())),
        other => drop(into.insert(path.to_owned(), other.to_string())),
    }
}

/// The keys of both scenario files that differ, except for what is written for people.
pub(super) fn different_keys(sides: &[Side; 2]) -> Vec<Key> {
    let [Some(a), Some(b)] = sides.each_ref().map(|side| side.keys.as_ref()) else {
        return Vec::new();
    };
    let mut all: Vec<_> = a.keys().chain(b.keys()).collect();
    all.sort();
    all.dedup();
    let differ = all.into_iter().filter(|key| {
        let is_prose = ["title", "question", "answer"].contains(&key.as_str());
        !is_prose && a.get(*key) != b.get(*key)
    });
    let both = |key: &String| (key.clone(), [a, b].map(|it| it.get(key).cloned()));
    differ.map(both).collect()
}

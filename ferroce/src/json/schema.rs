//! `ferroce schema`: the JSON Schemas of what commands print and of what they read; and `version`.

use clap::Args;
use ferroce_base::names::near;
use serde::Serialize;

use super::{DOCUMENTS, Known};
use crate::output::{Failure, Output, Table};

/// Files that commands read.
const INPUTS: &[Known] = &[
    Known {
        name: "profile",
        version: 1,
        commands: "profile files",
        text: include_str!("../../../docs/profile.schema.json"),
    },
    Known {
        name: "scenario",
        version: 1,
        commands: "scenario files",
        text: include_str!("../../../docs/scenario.schema.json"),
    },
];

/// List the JSON Schemas of what commands print with -j, or print one
///
/// What may change in them, and when, is in docs/json.md.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Schema {
    /// The schema to print, as ferroce.adp.show; adp.show is the same
    #[arg(value_name = "NAME", conflicts_with = "json")]
    name: Option<String>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// Print the version
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Version {
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Version {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let version = env!("CARGO_PKG_VERSION");
        match self.json {
            true => to.document(&super::run::Version {
                ferroce_version: version,
                arch: std::env::consts::ARCH,
            }),
            false => to.text(&format!("ferroce {version}\n")),
        }
    }
}

/// The schemas that there are.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct List {
    /// Those of documents, then those of files.
    schemas: Vec<Listed>,
}

/// A schema.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Listed {
    /// Its name, which documents have as `schema`.
    name: String,
    /// Its version, which documents have as `version`.
    version: u32,
    /// The commands that print such documents with -j, or the files that it is of.
    of: &'static str,
}

/// All schemas: a file's name, and the text.
pub(crate) fn files() -> impl Iterator<Item = (String, &'static str)> {
    DOCUMENTS.iter().map(|it| (it.file(), it.text))
}

fn all() -> impl Iterator<Item = &'static Known> {
    DOCUMENTS.iter().chain(INPUTS)
}

impl Known {
    pub(super) fn file(&self) -> String {
        format!("{}.v{}.json", self.name, self.version)
    }

    fn full_name(&self) -> String {
        format!("ferroce.{}", self.name)
    }
}

impl Schema {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        if let Some(name) = self.name {
            return to.text(named(&name)?.text);
        }
        if self.json {
            let schemas = all().map(|it| Listed {
                name: it.full_name(),
                version: it.version,
                of: it.commands,
            });
            return to.document(&List {
                schemas: schemas.collect(),
            });
        }
        let mut table = Table::new(&["schema", ">version", "of"]);
        for it in all() {
            let version = it.version.to_string();
            table.row(vec![it.full_name(), version, it.commands.to_owned()]);
        }
        to.text(&table.to_string())
    }
}

fn named(name: &str) -> Result<&'static Known, Failure> {
    let plain = name.strip_prefix("ferroce.").unwrap_or(name);
    let mut known = all();
    known.find(|it| it.name == plain).ok_or_else(|| {
        let meant = match near(plain, all().map(|it| it.name)) {
            Some(meant) => format!("; did you mean {meant}?"),
            None => String::new(),
        };
        Failure::input(format_args!(
            "unknown schema {name:?}{meant}; `ferroce schema` lists all"
        ))
    })
}

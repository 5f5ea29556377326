//! `ferroce sim`: scenarios in the fabric simulator.
//!
//! | module | purpose |
//! |---|---|
//! | `source` | scenarios by file or built-in name |
//! | `run` | runs one |
//! | `new` | a scenario of a cluster's size |
//! | `captures` | capture files of ports |
//! | `compare` | compares the results of two |
//! | `check` | finds errors and suspicious values in one |
//! | `progress` | the progress line |
//! | `report` | the report as text |
//! | `directory` | a directory of results |
//! | `tables` | its tables, as CSV and Parquet |
//! | `page` | the report as HTML |

mod captures;
mod check;
mod compare;
mod directory;
mod new;
mod page;
mod progress;
mod report;
mod run;
pub(crate) mod source;
mod tables;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum as _};
use ferroce_fabric::Simulation;
use ferroce_scenario::Scenario;
use ferroce_scenario::results::Results;

use self::directory::{Directory, Finished};
pub(crate) use self::source::BUILT_IN;
use self::tables::Format;
use crate::json::sim as json;
use crate::output::{Failure, Output, Table};

/// Simulate a fabric of the same devices: what-if for timeouts and congestion
///
/// Hosts, switches and links run on virtual time, with the transport, adaptive retransmission and
/// DCQCN code that runs on sockets.
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(subcommand)]
    verb: Verb,
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Run(args) => args.run(to),
            Verb::Check(args) => args.run(to),
            Verb::Compare(args) => args.run(to),
            Verb::List(args) => args.run(to),
            Verb::Show(args) => args.run(to),
            Verb::New(args) => args.run(to),
            Verb::Schema => to.text(&ferroce_scenario::json_schema()),
        }
    }
}

/// Writes the results of a run to a directory, with tables in all formats, as `sim run -o` does. It replaces one of
/// results that is there.
pub(crate) fn write(
    path: PathBuf,
    text: &str,
    scenario: &Scenario,
    simulation: &Simulation,
    results: &Results,
) -> Result<(), Failure> {
    let directory = Directory::check(path, true)?;
    directory.write(&Finished {
        text,
        scenario,
        simulation,
        results,
        formats: Format::value_variants(),
    })
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Run),
    Check(check::Check),
    Compare(compare::Compare),
    List(List),
    Show(Show),
    New(new::New),
    /// Print the JSON Schema of scenario files
    Schema,
}

/// Print a built-in scenario, as a file to begin with
///
/// For example `ferroce sim show flap-all-reduce > mine.toml`.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
struct Show {
    /// Name of a built-in scenario: see `ferroce sim list`
    #[arg(value_name = "NAME")]
    name: String,
}

impl Show {
    fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match BUILT_IN.iter().find(|(name, _)| *name == self.name) {
            Some((_, text)) => to.text(text),
            None => Err(Failure::input(format_args!(
                "unknown scenario {:?}; `ferroce sim list` lists the built-in ones",
                self.name
            ))),
        }
    }
}

/// List the built-in scenarios
#[derive(Args, Debug)]
struct List {
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl List {
    fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let mut rows = Vec::new();
        for (name, _) in BUILT_IN {
            let scenario = source::Source::open(name)?.scenario(&[])?;
            rows.push((*name, scenario.title, scenario.question));
        }
        if self.json {
            let scenario = |(name, title, question)| json::Scenario {
                name,
                title,
                question,
            };
            return to.document(&json::List {
                scenarios: rows.into_iter().map(scenario).collect(),
            });
        }
        let mut table = Table::new(&["name", "title"]);
        for (name, title, _) in rows {
            table.row(vec![name.to_owned(), title]);
        }
        to.text(&table.to_string())
    }
}

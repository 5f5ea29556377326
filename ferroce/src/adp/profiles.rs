//! `ferroce adp profile`: the built-in profiles.

use clap::{Args, Subcommand};
use ferroce_adp::builtin::{self, BuiltIn};
use ferroce_base::names::instead;

use super::codec::decoded;
use crate::json::adp as json;
use crate::output::{Failure, Output, Table};
use crate::spelling;

/// List and print the built-in profiles
///
/// Every option that takes a profile file takes the name of a built-in profile as well.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Profile {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the profiles; what `ferroce adp profile` alone does
    List,
    /// Print a profile as a profile file
    Show {
        /// The profile
        #[arg(value_name = "NAME", value_parser = named)]
        name: &'static BuiltIn,
    },
}

/// `ferroce adp profiles [NAME]`, as the previous release took it.
#[derive(Args, Debug)]
pub(crate) struct Old {
    #[arg(value_name = "NAME", value_parser = named)]
    name: Option<&'static BuiltIn>,
    #[arg(short, long)]
    json: bool,
}

impl Profile {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.verb {
            None | Some(Verb::List) => list(self.json, to),
            Some(Verb::Show { name }) => show(name, self.json, to),
        }
    }
}

impl Old {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.name {
            None => {
                spelling::old("ferroce adp profile list", to)?;
                list(self.json, to)
            }
            Some(name) => {
                let newer = format!("ferroce adp profile show {}", name.name);
                spelling::old(&newer, to)?;
                show(name, self.json, to)
            }
        }
    }
}

fn show(built_in: &BuiltIn, is_json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
    if is_json {
        let toml = built_in.toml.to_owned();
        return to.document(&decoded(&built_in.profile, toml, Vec::new()));
    }
    to.text(built_in.toml)
}

fn list(is_json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
    if is_json {
        let listed = builtin::all()
            .iter()
            .map(|BuiltIn { name, about, .. }| json::BuiltIn { name, about });
        return to.document(&json::Profiles {
            profiles: listed.collect(),
        });
    }
    let mut table = Table::new(&["profile", "for"]);
    for built_in in builtin::all() {
        table.row(vec![built_in.name.to_owned(), built_in.about.clone()]);
    }
    to.text(&table.to_string())
}

fn named(name: &str) -> Result<&'static BuiltIn, String> {
    builtin::named(name).ok_or_else(|| {
        let names = builtin::all().iter().map(|it| it.name);
        format!("not a built-in profile; {}", instead(name, names))
    })
}

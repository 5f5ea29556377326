//! `ferroce adp profiles`: the built-in profiles.

use clap::Args;
use ferroce_adp::builtin::{self, BuiltIn};

use super::codec::decoded;
use crate::json::adp as json;
use crate::output::{Failure, Output, Table};

/// List the built-in profiles, or print one as a profile file
///
/// Every option that takes a profile file takes the name of a built-in profile as well.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(crate) struct Profiles {
    /// The profile to print
    #[arg(value_name = "NAME", value_parser = named)]
    name: Option<&'static BuiltIn>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Profiles {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        if let Some(built_in) = self.name {
            if self.json {
                let toml = built_in.toml.to_owned();
                return to.document(&decoded(&built_in.profile, toml, Vec::new()));
            }
            return to.text(built_in.toml);
        }
        if self.json {
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
}

fn named(name: &str) -> Result<&'static BuiltIn, String> {
    builtin::named(name).ok_or_else(|| {
        let names: Vec<_> = builtin::all().iter().map(|it| it.name).collect();
        format!("not a built-in profile; write one of {}", names.join(", "))
    })
}

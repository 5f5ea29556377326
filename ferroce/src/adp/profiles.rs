//! `ferroce adp profiles`: the built-in profiles.

use clap::Args;
use ferroce_adp::builtin::{self, BuiltIn};
use serde::Serialize;

use crate::output::{Failure, Output, Table};

/// List the built-in profiles, or print one as a profile file
///
/// Wherever a profile file is taken, the name of a built-in profile is taken, too.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(crate) struct Profiles {
    /// The profile to print
    #[arg(value_name = "NAME", value_parser = named, conflicts_with = "json")]
    name: Option<&'static BuiltIn>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    about: &'a str,
}

impl Profiles {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        if let Some(built_in) = self.name {
            return to.text(built_in.toml);
        }
        if self.json {
            let listed = builtin::all()
                .iter()
                .map(|BuiltIn { name, about, .. }| Listed { name, about });
            return to.json(&listed.collect::<Vec<_>>());
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

//! `ferroce cc preset`: published sets of parameters.

use clap::Subcommand;
use ferroce_dcqcn::presets::{PRESETS, Preset};

use super::super::format::{Format, Row};
use super::{json, lines};
use crate::output::{Failure, Output};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the sets; what `ferroce cc preset` alone does
    List,
    /// Show what a set changes of the firmware's defaults
    Show {
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl Verb {
    pub(super) fn run(self, format: Format, to: &mut Output<'_>) -> Result<(), Failure> {
        let rows = match self {
            Self::List => PRESETS.iter().map(row).collect(),
            Self::Show { name } => vec![with_changes(named(&name)?)],
        };
        format.print(to, rows)
    }
}

/// The set with this name.
pub(super) fn named(name: &str) -> Result<&'static Preset, Failure> {
    Preset::named(name).ok_or_else(|| {
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        Failure::input(format_args!(
            "{name:?} is not a preset; available: {}",
            names.join(", ")
        ))
    })
}

fn row(preset: &Preset) -> Row {
    let keys = [
        ("name", preset.name.into()),
        ("source", preset.source.into()),
    ];
    Row::new(format!("{}: {}", preset.name, preset.source), &keys)
}

fn with_changes(preset: &Preset) -> Row {
    let change = |(param, value): &(ferroce_dcqcn::Param, u32)| (param.name().to_owned(), *value);
    let values: Vec<_> = preset.changes().iter().map(change).collect();
    let mut row = row(preset);
    row.put_below("dcqcn", json(&values), &lines(&values));
    row
}

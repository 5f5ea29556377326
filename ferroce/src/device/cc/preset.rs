//! `ferroce cc preset`: published sets of parameters.

use clap::Subcommand;
use ferroce_dcqcn::Param;
use ferroce_dcqcn::presets::{PRESETS, Preset};

use super::super::format::{Row, print};
use super::{Values, lines};
use crate::json::cc as json;
use crate::output::{Failure, Output};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the sets; what `ferroce cc preset` alone does
    List,
    /// Show what a set changes of the firmware's defaults
    Show {
        /// A set, by its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl Verb {
    pub(super) fn run(self, is_json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        let (presets, is_whole): (Vec<&Preset>, _) = match &self {
            Self::List => (PRESETS.iter().collect(), false),
            Self::Show { name } => (vec![named(name)?], true),
        };
        if is_json {
            let presets = presets.into_iter().map(|it| json::Preset {
                name: it.name,
                source: it.source,
                parameters: changes(it).into_iter().collect(),
                algorithm: algorithm(it).collect(),
            });
            let presets = presets.collect();
            return to.document(&json::Presets { presets });
        }
        let rows = presets.into_iter().map(|it| {
            let mut row = Row::new(format!("{}: {}", it.name, it.source));
            if is_whole {
                row.add_below(&lines(&changes(it)));
                for (name, word) in algorithm(it) {
                    row.add_below(&format!("    in scenarios: algorithm.{name}={word}\n"));
                }
            }
            row
        });
        print(&rows.collect::<Vec<_>>(), to)
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

/// What a set changes of the firmware's defaults.
fn changes(preset: &Preset) -> Values {
    let change = |(param, value): &(Param, u32)| (param.name().to_owned(), *value);
    preset.changes().iter().map(change).collect()
}

/// How the algorithm that a set was published for differs from the firmware's. Devices run the firmware's;
/// scenarios have this one.
fn algorithm(preset: &Preset) -> impl Iterator<Item = (String, &'static str)> {
    let changes = preset.switches().changes();
    changes.map(|(name, word)| (name.to_owned(), word))
}

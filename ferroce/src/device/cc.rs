//! `ferroce cc`: the parameters of congestion control.

use clap::{Args, Subcommand, ValueEnum};
use ferroce_dcqcn::{Param, ParamError, Params, Vocabulary};
use ferroce_hca::WriteLockError;
use ferroce_udp::Registry;
use serde_json::{Map, Value};
use thiserror::Error;

use super::format::{Before, Format, Row};
use super::{devices, link, observe, registry};
use crate::output::{Failure, Output};

/// Show and set the parameters of congestion control (DCQCN), also while programs run
///
/// Names are those of sysfs (rpg_ai_rate), of debugfs (rp_ai_rate), of mlxconfig (RPG_AI_RATE) or
/// of WinOF-2 (DcQcnAIRate).
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES, infer_subcommands = true)]
pub(crate) struct Cc {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The device; show takes all without it
    #[arg(short, long, value_name = "DEV", global = true)]
    dev: Option<String>,
    /// Only the switch of this priority
    #[arg(long, value_name = "P", global = true)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
    prio: Option<u8>,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
    /// Break the JSON into lines
    #[arg(short, long, global = true)]
    pretty: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the parameters; what `ferroce cc` alone does
    #[command(alias = "list")]
    Show {
        /// Whose names to print, and only the parameters that have one there
        #[arg(long, value_name = "WHOSE", value_enum)]
        names: Option<Names>,
    },
    /// Set parameters: all of them, or on an error none
    Set {
        /// NAME=VALUE, the name of any vocabulary; with --prio only enable=0 or enable=1
        #[arg(required = true, value_name = "NAME=VALUE")]
        assignments: Vec<String>,
    },
    /// Put the parameters to the firmware's defaults; with --prio only that priority's switch
    Reset,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Names {
    Sysfs,
    Debugfs,
    Mlxconfig,
    Winof,
}

impl Names {
    fn vocabulary(self) -> Vocabulary {
        match self {
            Self::Sysfs => Vocabulary::Sysfs,
            Self::Debugfs => Vocabulary::Debugfs,
            Self::Mlxconfig => Vocabulary::NvConfig,
            Self::Winof => Vocabulary::WinOf,
        }
    }
}

#[derive(Debug, Error)]
enum ChangeError {
    #[error(transparent)]
    Lock(#[from] WriteLockError),
    #[error(transparent)]
    Param(#[from] ParamError),
    #[error("{0:?} is for the whole port; with --prio write enable=0 or enable=1")]
    NotByPriority(String),
}

impl Cc {
    pub(crate) fn run(self, before: Before, to: &mut Output<'_>) -> Result<(), Failure> {
        let format = Format::new(self.json, self.pretty).after(before);
        let (registry, prio) = (registry(to)?, self.prio);
        let name = self.dev.as_deref().map(link).transpose()?;
        match self.verb.unwrap_or(Verb::Show { names: None }) {
            Verb::Show { names } => show(&registry, name, prio, names, format, to),
            Verb::Set { assignments } => change(&registry, name, |params| {
                let mut each = assignments.iter();
                each.try_for_each(|text| assign(params, prio, text))
            }),
            Verb::Reset => change(&registry, name, |params| {
                match prio {
                    None => *params = Params::default(),
                    Some(prio) => assign(params, Some(prio), "enable=1")?,
                }
                Ok(())
            }),
        }
    }
}

fn assign(params: &mut Params, prio: Option<u8>, text: &str) -> Result<(), ChangeError> {
    let Some(prio) = prio else {
        return Ok(params.assign(text)?);
    };
    let value = text.strip_prefix("enable=");
    let value = value.ok_or_else(|| ChangeError::NotByPriority(text.to_owned()))?;
    Ok(params.assign(&format!("enable/{prio}={value}"))?)
}

fn change(
    registry: &Registry,
    name: Option<&str>,
    change: impl FnOnce(&mut Params) -> Result<(), ChangeError>,
) -> Result<(), Failure> {
    let name = name.ok_or_else(|| Failure::input("which device? write -d DEV"))?;
    let observer = registry.observe(name).map_err(Failure::input)?;
    let changed = observer.state().change_congestion(change);
    changed.map_err(Failure::input)
}

fn show(
    registry: &Registry,
    name: Option<&str>,
    prio: Option<u8>,
    names: Option<Names>,
    format: Format,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (index, spec) in devices(registry, name)? {
        let name = spec.name.as_str();
        let keys = [("ifindex", index.into()), ("ifname", name.into())];
        let mut row = Row::new(format!("dev {name}"), &keys);
        let params = observe(registry, &spec)?.state().congestion();
        let values = match prio {
            Some(prio) => vec![(format!("enable/{prio}"), params.is_enabled(prio).into())],
            None => values(&params, names),
        };
        let lines = values
            .iter()
            .map(|(name, value)| format!("    {name}={value}\n"));
        let lines: String = lines.collect();
        let values = values.into_iter().map(|(name, value)| (name, value.into()));
        let values: Map<String, Value> = values.collect();
        row.put_below("dcqcn", values.into(), &lines);
        rows.push(row);
    }
    format.print(to, rows)
}

/// All parameters, or those that `names` has, with its names.
fn values(params: &Params, names: Option<Names>) -> Vec<(String, u32)> {
    let Some(names) = names else {
        let value = |param: &Param| (param.name().to_owned(), params.get(*param));
        return Param::ALL.iter().map(value).collect();
    };
    let lines = params.display(names.vocabulary()).to_string();
    let pairs = lines.lines().filter_map(|line| line.split_once('='));
    let value = |(name, value): (&str, &str)| Some((name.to_owned(), value.parse().ok()?));
    pairs.filter_map(value).collect()
}

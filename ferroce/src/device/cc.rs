//! `ferroce cc`: congestion control.
//!
//! | module | purpose |
//! |---|---|
//! | `explain` | the meaning of the parameters |
//! | `preset` | published parameter sets |
//! | `emit` | the commands that set the parameters on a card |
//! | `watch` | the queue pairs that are slowed down |

mod emit;
mod explain;
mod preset;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use ferroce_dcqcn::{Param, ParamError, Params, Vocabulary};
use ferroce_hca::WriteLockError;
use ferroce_udp::Registry;
use thiserror::Error;

use self::emit::Emit;
use self::explain::Explain;
use self::preset::Verb as Presets;
use self::watch::Watch;
use super::format::{Before, Format, Row, print};
use super::{each, link, observe, registry};
use crate::json::cc::{DeviceParameters, Shown};
use crate::output::{Failure, Output};

/// Show and set the parameters of congestion control (DCQCN), even while programs run
///
/// Names are those of sysfs (rpg_ai_rate), of debugfs (rp_ai_rate), of mlxconfig (RPG_AI_RATE) or
/// of WinOF-2 (DcQcnAIRate).
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES, infer_subcommands = true)]
pub(crate) struct Cc {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The device; show and watch take all without it
    #[arg(short, long, alias = "dev", value_name = "DEV", global = true)]
    device: Option<String>,
    /// Only the switches of this priority, or with watch its queue pairs
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
        #[arg(long, value_name = "WHOSE", value_enum, conflicts_with = "prio")]
        names: Option<Names>,
    },
    /// Set parameters atomically: all or none
    Set {
        /// NAME=VALUE, the name of any vocabulary; with --prio only enable, roce_rp/enable or
        /// roce_np/enable, 0 or 1
        #[arg(required_unless_present_any = ["preset", "from"], value_name = "NAME=VALUE")]
        assignments: Vec<String>,
        /// Begin with a published set, see `ferroce cc preset`
        #[arg(long, value_name = "NAME", conflicts_with = "prio")]
        preset: Option<String>,
        /// Take assignments from a file first, as `ferroce cc show` prints them; /dev/stdin reads
        /// standard input
        #[arg(long, value_name = "FILE", conflicts_with = "prio")]
        from: Option<PathBuf>,
    },
    /// Reset parameters to the firmware's defaults; with --prio, only that priority's switches
    Reset,
    Explain(Explain),
    /// Published sets of parameters, with their sources
    Preset {
        #[command(subcommand)]
        verb: Option<Presets>,
    },
    Emit(Emit),
    Watch(Watch),
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

/// The parameters that devices keep and that change nothing, and why.
const INERT: &[(Param, &str)] = &[
    (Param::Algorithm, "there is no QCN"),
    (Param::ShaperCoalesce, "each queue pair has its own limiter"),
    (Param::Cnp802pPrio, "a UDP socket sends no VLAN tag"),
    (Param::CnpPrioMode, "a UDP socket sends no VLAN tag"),
];

#[derive(Debug, Error)]
enum ChangeError {
    #[error(transparent)]
    Lock(#[from] WriteLockError),
    #[error(transparent)]
    Param(#[from] ParamError),
    #[error("{place}: {source}")]
    InFile { place: String, source: ParamError },
    #[error("{place}: parameters of another device begin here; keep those of one")]
    OtherDevice { place: String },
    #[error("{0:?} is for the whole port; with --prio write enable=0 or enable=1")]
    NotByPriority(String),
}

impl Verb {
    /// Refuses options that would have no effect.
    fn check(&self, dev: Option<&str>, prio: Option<u8>) -> Result<(), Failure> {
        let (takes_dev, takes_prio) = match self {
            Self::Show { .. } | Self::Set { .. } | Self::Reset | Self::Watch(_) => (true, true),
            Self::Emit(_) => (true, false),
            Self::Explain(_) | Self::Preset { .. } => (false, false),
        };
        if dev.is_some() && !takes_dev {
            return Err(Failure::input(
                "-d goes with show, set, reset, emit and watch; leave it out",
            ));
        }
        if prio.is_some() && !takes_prio {
            return Err(Failure::input(
                "--prio goes with show, set, reset and watch; leave it out",
            ));
        }
        Ok(())
    }
}

impl Cc {
    pub(crate) fn run(self, before: Before, to: &mut Output<'_>) -> Result<(), Failure> {
        let format = Format::new(self.json, self.pretty).after(before);
        let prio = self.prio;
        let name = self.device.as_deref().map(link).transpose()?;
        let verb = self.verb.unwrap_or(Verb::Show { names: None });
        verb.check(name, prio)?;
        match verb {
            Verb::Show { names } => show(&registry(to)?, name, prio, names, format, to),
            Verb::Set {
                assignments,
                preset,
                from,
            } => {
                let preset = preset.as_deref().map(preset::named).transpose()?;
                let from = from.as_deref().map(File::read).transpose()?;
                change(name, to, |params| {
                    if let Some(preset) = preset {
                        *params = preset.params();
                    }
                    if let Some(file) = &from {
                        file.assign(params)?;
                    }
                    let mut each = assignments.iter();
                    each.try_for_each(|text| assign(params, prio, text))
                })?;
                shown_after(name, prio, format, to)
            }
            Verb::Reset => {
                change(name, to, |params| {
                    match prio {
                        None => *params = Params::default(),
                        Some(prio) => assign(params, Some(prio), "enable=1")?,
                    }
                    Ok(())
                })?;
                shown_after(name, prio, format, to)
            }
            Verb::Explain(explain) => explain.run(format, to),
            Verb::Preset { verb } => verb.unwrap_or(Presets::List).run(format, to),
            Verb::Emit(emit) => emit.run(name, format, to),
            Verb::Watch(watch) => watch.run(&registry(to)?, (name, prio), format, to),
        }
    }
}

/// A file of assignments, one in a line.
struct File<'a> {
    path: &'a Path,
    text: String,
}

impl<'a> File<'a> {
    fn read(path: &'a Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::input(format_args!("cannot read {}: {error}", path.display()))
        })?;
        Ok(Self { path, text })
    }

    fn assign(&self, params: &mut Params) -> Result<(), ChangeError> {
        let lines = self.text.lines().map(str::trim).zip(1..);
        let is_said = |line: &str| !line.is_empty() && !line.starts_with('#');
        let mut devices = 0;
        for (line, number) in lines.filter(|(line, _)| is_said(line)) {
            let place = || format!("{}:{number}", self.path.display());
            if line.starts_with("dev ") {
                devices += 1;
                if devices > 1 {
                    return Err(ChangeError::OtherDevice { place: place() });
                }
                continue;
            }
            params.assign(line).map_err(|source| ChangeError::InFile {
                place: place(),
                source,
            })?;
        }
        Ok(())
    }
}

fn assign(params: &mut Params, prio: Option<u8>, text: &str) -> Result<(), ChangeError> {
    let Some(prio) = prio else {
        return Ok(params.assign(text)?);
    };
    let switch = text.split_once('=');
    let (name, value) = switch
        .filter(|(name, _)| matches!(*name, "enable" | "roce_rp/enable" | "roce_np/enable"))
        .ok_or_else(|| ChangeError::NotByPriority(text.to_owned()))?;
    Ok(params.assign(&format!("{name}/{prio}={value}"))?)
}

/// Changes the parameters of a device, and says which of the changes do not act as they are.
fn change(
    name: Option<&str>,
    to: &mut Output<'_>,
    change: impl FnOnce(&mut Params) -> Result<(), ChangeError>,
) -> Result<(), Failure> {
    let registry = registry(to)?;
    let name = name.ok_or_else(|| {
        Failure::input("no device named: write -d DEV; `ferroce dev` lists devices")
    })?;
    let observer = registry.observe(name)?;
    let mut both = None;
    let changed = observer.state().change_congestion(|params| {
        let old = params.clone();
        change(params)?;
        both = Some((old, params.clone()));
        Ok(())
    });
    changed.map_err(|error: ChangeError| Failure::input(error))?;
    let Some((old, new)) = both else {
        return Ok(());
    };
    let is_new = |param: &Param| old.get(*param) != new.get(*param);
    let line = observer.spec().speed.rate();
    for param in new.above(line).filter(is_new) {
        to.remark(format_args!(
            "warning: {param}={} is above the port's speed and acts as {}",
            new.get(param),
            line.bps() / 1_000_000
        ))?;
    }
    for (param, why) in INERT.iter().filter(|(param, _)| is_new(param)) {
        to.remark(format_args!(
            "warning: {param} is kept and changes nothing: {why}"
        ))?;
    }
    Ok(())
}

fn show(
    registry: &Registry,
    name: Option<&str>,
    prio: Option<u8>,
    names: Option<Names>,
    format: Format,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    let devices = each(registry, name, |index, spec| {
        let params = observe(registry, spec)?.state().congestion();
        let values = match prio {
            Some(prio) => switches(&params, prio),
            None => values(&params, names),
        };
        Ok((index, spec.name.clone(), values))
    })?;
    if format.is_json() {
        let parameters = |(index, device, values): (usize, String, Values)| DeviceParameters {
            device,
            index,
            parameters: values.into_iter().collect(),
        };
        let devices = devices.into_iter().map(parameters).collect();
        return format.document(&Shown { devices }, to);
    }
    let rows = devices.iter().map(|(_, device, values)| {
        let mut row = Row::new(format!("dev {device}"));
        row.add_below(&lines(values));
        row
    });
    print(&rows.collect::<Vec<_>>(), to)
}

/// Parameters by name.
type Values = Vec<(String, u32)>;

/// Prints for programs what the parameters are after a change.
fn shown_after(
    name: Option<&str>,
    prio: Option<u8>,
    format: Format,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    match format.is_json() {
        true => show(&registry(to)?, name, prio, None, format, to),
        false => Ok(()),
    }
}

/// The switches of a priority.
fn switches(params: &Params, prio: u8) -> Values {
    vec![
        (
            format!("roce_rp/enable/{prio}"),
            params.heeds_cnps(prio).into(),
        ),
        (
            format!("roce_np/enable/{prio}"),
            params.answers_marks(prio).into(),
        ),
    ]
}

/// All parameters, or those that `names` has, with its names.
fn values(params: &Params, names: Option<Names>) -> Values {
    let Some(names) = names else {
        let value = |param: &Param| (param.name().to_owned(), params.get(*param));
        return Param::ALL.iter().map(value).collect();
    };
    let lines = params.display(names.vocabulary()).to_string();
    let pairs = lines.lines().filter_map(|line| line.split_once('='));
    let value = |(name, value): (&str, &str)| Some((name.to_owned(), value.parse().ok()?));
    pairs.filter_map(value).collect()
}

fn lines(values: &[(String, u32)]) -> String {
    let line = |(name, value): &(String, u32)| format!("    {name}={value}\n");
    values.iter().map(line).collect()
}

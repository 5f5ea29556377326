//! `ferroce cc`: congestion control.
//!
//! | module | purpose |
//! |---|---|
//! | `explain` | the meaning of the parameters |
//! | `preset` | published parameter sets |
//! | `emit` | the commands that set the parameters on a card |
//! | `rates` | the queue pairs that are slowed down |

mod emit;
mod explain;
mod preset;
mod rates;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ferroce_dcqcn::{Param, ParamError, Params, Target, Vocabulary};
use ferroce_device::WriteLockError;
use ferroce_registry::Registry;
use thiserror::Error;

use self::emit::Emit;
use self::explain::Explain;
use self::preset::Verb as Presets;
use self::rates::{Rates, priority};
use super::dev::TAGS_REACH;
use super::format::{Row, print};
use super::watch::interval;
use crate::json::cc::{DeviceParameters, Shown};
use crate::naming::{self, DeviceArg, EachDevice, each, observe, registry};
use crate::output::exit_codes;
use crate::output::{Failure, Output};
use crate::spelling;

/// Show and set the parameters of congestion control (DCQCN), even while programs run
///
/// Names are those of sysfs (rpg_ai_rate), of debugfs (rp_ai_rate), of mlxconfig (RPG_AI_RATE) or
/// of WinOF-2 (DcQcnAIRate).
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES, infer_subcommands = true)]
pub(crate) struct Cc {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Where the previous release took the device.
    #[arg(short, long, value_name = "DEV", global = true, hide = true)]
    device: Option<String>,
    /// The same of the priority.
    #[arg(long, value_name = "P", global = true, hide = true, value_parser = priority())]
    prio: Option<u8>,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the parameters; what `ferroce cc` alone does
    #[command(alias = "list")]
    Show {
        #[command(flatten)]
        device: EachDevice,
        /// Only the switches of this priority
        #[arg(long, value_name = "P", value_parser = priority())]
        prio: Option<u8>,
        /// Whose names to print, and only the parameters that have one there
        #[arg(long, value_name = "WHOSE", value_enum, conflicts_with = "prio")]
        names: Option<Names>,
    },
    /// Set parameters atomically: all or none
    #[command(after_help = EXAMPLES)]
    #[command(override_usage = "ferroce cc set [OPTIONS] [DEV] KEY VALUE...")]
    Set {
        #[command(flatten)]
        device: DeviceArg,
        /// Parameters by the names of any vocabulary, KEY VALUE or KEY=VALUE; with --prio only enable,
        /// roce_rp/enable or roce_np/enable, 0 or 1
        #[arg(value_name = "KEY VALUE")]
        assignments: Vec<String>,
        /// Only the switches of this priority
        #[arg(long, value_name = "P", value_parser = priority())]
        prio: Option<u8>,
        /// Begin with a published set, see `ferroce cc preset`
        #[arg(long, value_name = "NAME", conflicts_with = "prio")]
        preset: Option<String>,
        /// Take assignments from a file first, as `ferroce cc show` prints them; /dev/stdin reads
        /// standard input
        #[arg(long, value_name = "FILE", conflicts_with = "prio")]
        from: Option<PathBuf>,
    },
    /// Reset parameters to those with which the firmware starts
    Reset {
        #[command(flatten)]
        device: DeviceArg,
        /// Only the switches of this priority
        #[arg(long, value_name = "P", value_parser = priority())]
        prio: Option<u8>,
    },
    Explain(Explain),
    /// List and show published sets of parameters, with their sources
    Preset {
        #[command(subcommand)]
        verb: Option<Presets>,
    },
    Emit(Emit),
    Rates(Rates),
    /// What `ferroce cc rates` was called
    #[command(hide = true)]
    Watch {
        #[arg(long, value_name = "S", default_value = "1", value_parser = interval)]
        interval: Duration,
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
}

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce cc set fr0 rpg_ai_rate 10
  ferroce cc set fr0 rpg_ai_rate=10 min_time_between_cnps=50
  ferroce cc set fr0 enable 0 --prio 3
  ferroce cc set fr0 --preset barre
  ferroce cc show fr1 | ferroce cc set fr0 --from /dev/stdin"
);

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
];

/// The parameters that are about the VLAN tag of CNPs.
const OF_TAGS: [Param; 2] = [Param::Cnp802pPrio, Param::CnpPrioMode];

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

impl Cc {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let is_json = self.json;
        let verb = self.verb.unwrap_or_else(|| Verb::Show {
            device: EachDevice::of(self.device.clone()),
            prio: self.prio,
            names: None,
        });
        let in_vain = match verb {
            Verb::Explain(_) | Verb::Preset { .. } if self.device.is_some() => Some("-d"),
            Verb::Explain(_) | Verb::Preset { .. } | Verb::Emit(_) => self.prio.map(|_| "--prio"),
            _ => None,
        };
        if let Some(option) = in_vain {
            return Err(Failure::input(format_args!(
                "{option} has no effect here; leave it out"
            )));
        }
        match verb {
            Verb::Show {
                device,
                prio,
                names,
            } => {
                let name = device.named()?;
                show(&registry(to)?, name.as_deref(), prio, names, is_json, to)
            }
            Verb::Set {
                device,
                assignments,
                prio,
                preset,
                from,
            } => {
                let (name, words) = device.before(assignments, is_parameter);
                let assignments = naming::assignments(&words, |_| false)?;
                if assignments.is_empty() && preset.is_none() && from.is_none() {
                    return Err(Failure::input(
                        "no parameter given; write KEY VALUE, --preset NAME or --from FILE",
                    ));
                }
                let preset = preset.as_deref().map(preset::named).transpose()?;
                let from = from.as_deref().map(File::read).transpose()?;
                let name = change(name.as_deref(), to, |params, _| {
                    if let Some(preset) = preset {
                        *params = preset.params();
                    }
                    if let Some(file) = &from {
                        file.assign(params)?;
                    }
                    let mut each = assignments.iter();
                    each.try_for_each(|text| assign(params, prio, text))
                })?;
                shown_after(&name, prio, is_json, to)
            }
            Verb::Reset { device, prio } => {
                let name = change(device.named()?.as_deref(), to, |params, start| {
                    let Some(prio) = prio else {
                        *params = start.clone();
                        return Ok(());
                    };
                    for mask in [Param::PrioMask, Param::NpPrioMask] {
                        let bit = 1 << prio;
                        params.set(mask, params.get(mask) & !bit | start.get(mask) & bit)?;
                    }
                    Ok(())
                })?;
                shown_after(&name, prio, is_json, to)
            }
            Verb::Explain(explain) => explain.run(is_json, to),
            Verb::Preset { verb } => verb.unwrap_or(Presets::List).run(is_json, to),
            Verb::Emit(emit) => emit.run(is_json, to),
            Verb::Rates(rates) => rates.run(&registry(to)?, is_json, to),
            Verb::Watch { interval, count } => {
                let rates = Rates::every(interval, count, self.device, self.prio);
                spelling::old("ferroce cc rates [DEV] --watch [SECONDS]", to)?;
                rates.run(&registry(to)?, is_json, to)
            }
        }
    }
}

/// Whether a word is a parameter, with its value or without.
fn is_parameter(word: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    SWITCHES.contains(&name) || word.contains('=') || Target::parse(name).is_ok()
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

/// What each priority has.
const SWITCHES: [&str; 3] = ["enable", "roce_rp/enable", "roce_np/enable"];

fn assign(params: &mut Params, prio: Option<u8>, text: &str) -> Result<(), ChangeError> {
    let Some(prio) = prio else {
        return Ok(params.assign(text)?);
    };
    let switch = text.split_once('=');
    let (name, value) = switch
        .filter(|(name, _)| SWITCHES.contains(name))
        .ok_or_else(|| ChangeError::NotByPriority(text.to_owned()))?;
    Ok(params.assign(&format!("{name}/{prio}={value}"))?)
}

/// Changes the parameters of a device, says which of the changes do not act as they are, and returns the
/// device's name.
fn change(
    name: Option<&str>,
    to: &mut Output<'_>,
    change: impl FnOnce(&mut Params, &Params) -> Result<(), ChangeError>,
) -> Result<String, Failure> {
    let registry = registry(to)?;
    let spec = naming::find(&registry, name)?;
    let observer = observe(&registry, &spec)?;
    let start = observer.state().settings().nvconfig().clone();
    let mut both = None;
    let changed = observer.state().change_congestion(|params| {
        let old = params.clone();
        change(params, &start)?;
        both = Some((old, params.clone()));
        Ok(())
    });
    changed.map_err(|error: ChangeError| Failure::input(error))?;
    let Some((old, new)) = both else {
        return Ok(spec.name);
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
    for param in OF_TAGS.iter().filter(|param| is_new(param)) {
        match spec.qos().vlan {
            None => to.remark(format_args!(
                "warning: {param} changes nothing while {name} has no VLAN; `ferroce dev set {name} \
                 vlan 100` puts it into one",
                name = spec.pf().name
            ))?,
            Some(_) => to.remark(format_args!("warning: {param} acts {TAGS_REACH}"))?,
        }
    }
    Ok(spec.name)
}

fn show(
    registry: &Registry,
    name: Option<&str>,
    prio: Option<u8>,
    names: Option<Names>,
    is_json: bool,
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
    if is_json {
        let parameters = |(index, device, values): (usize, String, Values)| DeviceParameters {
            device,
            index,
            parameters: values.into_iter().collect(),
        };
        let devices = devices.into_iter().map(parameters).collect();
        return to.document(&Shown { devices });
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
    name: &str,
    prio: Option<u8>,
    is_json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    match is_json {
        true => show(&registry(to)?, Some(name), prio, None, is_json, to),
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

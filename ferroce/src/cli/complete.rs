//! What shells propose: devices, profiles, scenarios, registers and other names that exist.
//!
//! Shells ask the program itself, with a variable in its environment, so that they know the devices of the
//! moment.

use std::ffi::OsStr;

use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::CompleteEnv;
use ferroce_adp::builtin;
use ferroce_dcqcn::Param;
use ferroce_dcqcn::presets::PRESETS;
use ferroce_device::{Counter, Model};
use ferroce_prm::REGISTERS;
use ferroce_registry::{DeviceSpec, Registry, impairment};

use crate::install::COMPLETION_VARIABLE;
use crate::sim;

/// Answers a shell and ends the process, if it is a shell that asks.
pub(crate) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(|| with_candidates(command(), ""))
        .var(COMPLETION_VARIABLE)
        .complete();
}

/// The command with what may be written for its arguments.
fn with_candidates(command: Command, path: &str) -> Command {
    let path = format!("{path} {}", command.get_name());
    let of = path.trim_start_matches(" ferroce").trim_start().to_owned();
    command
        .mut_args(|arg| match values(&of, &arg) {
            Some(Values::Names(names)) => arg.add(ArgValueCandidates::new(move || {
                names()
                    .into_iter()
                    .map(CompletionCandidate::new)
                    .collect::<Vec<_>>()
            })),
            Some(Values::NamesOrFiles(names)) => {
                arg.add(ArgValueCompleter::new(NamesOrFiles(names)))
            }
            None => arg,
        })
        .mut_subcommands(|it| with_candidates(it, &path))
}

type Names = fn() -> Vec<String>;

/// What an argument may be.
enum Values {
    Names(Names),
    NamesOrFiles(Names),
}

fn values(of: &str, arg: &Arg) -> Option<Values> {
    use Values::{Names, NamesOrFiles};
    let name = arg.get_value_names()?.first()?.as_str();
    let values = match (of, name) {
        (_, "DEV") => Names(devices),
        (_, "REGISTER" | "REGISTER FIELD VALUE") => Names(registers),
        (_, "COUNTER") => Names(|| Counter::TABLE.iter().map(|it| it.name.to_owned()).collect()),
        (_, "SCENARIO") => NamesOrFiles(sim::source::names),
        (_, "FILE") if of.starts_with("adp ") && arg.is_positional() => NamesOrFiles(profiles),
        (_, "FILE") if arg.get_id() == "profile" => NamesOrFiles(profiles),
        ("sim show", "NAME") => Names(sim::source::names),
        ("adp profile show", "NAME") => Names(profiles),
        ("cc preset show", "NAME") => Names(presets),
        ("cc set" | "cc emit", "NAME") if arg.get_id() == "preset" => Names(presets),
        ("cc set", "KEY VALUE") | ("cc explain", "NAME") => {
            Names(|| Param::ALL.iter().map(|it| it.name().to_owned()).collect())
        }
        ("impair set", "KEY VALUE") => Names(|| impairment::names().map(str::to_owned).collect()),
        ("dev set" | "dev add", "KEY VALUE") => Names(|| {
            [&["card"], &DeviceSpec::KEYS[..]]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect()
        }),
        (_, "CARD") => Names(|| Model::ALL.map(|it| it.name().to_owned()).to_vec()),
        _ => return None,
    };
    Some(values)
}

fn devices() -> Vec<String> {
    let devices = Registry::open().and_then(|it| it.devices());
    let devices = devices.unwrap_or_default().into_iter();
    devices.map(|it| it.name).collect()
}

fn registers() -> Vec<String> {
    REGISTERS.iter().map(|it| it.name().to_owned()).collect()
}

fn profiles() -> Vec<String> {
    builtin::all().iter().map(|it| it.name.to_owned()).collect()
}

fn presets() -> Vec<String> {
    PRESETS.iter().map(|it| it.name.to_owned()).collect()
}

/// Names, and files of the directory.
struct NamesOrFiles(Names);

impl ValueCompleter for NamesOrFiles {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let begun = current.to_string_lossy();
        let names = (self.0)().into_iter().filter(|it| it.starts_with(&*begun));
        let names = names.map(CompletionCandidate::new);
        names
            .chain(PathCompleter::any().complete(current))
            .collect()
    }
}

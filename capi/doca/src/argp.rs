//! Command lines as DOCA programs have them: `-p ADDR`, `-vid 3`, `--vhca-id 3`, `--vhca-id=3`, and
//! the same from a JSON file by the parameters' long names.

mod json;
mod usage;
mod value;

use std::fs;

pub use usage::usage;
pub use value::{Kind, Value};

use crate::error::{Code, Refusal};
use crate::log::Level;

/// A parameter that a program has registered.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Param {
    /// Its name behind one dash, of one or more letters.
    pub short: Option<String>,
    /// Its name behind two dashes, and the key in a JSON file.
    pub long: Option<String>,
    /// What it is for.
    pub description: String,
    /// What its value is; `None` until the program says.
    pub kind: Option<Kind>,
}

/// What a command line asks for.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// `-h`.
    Help,
    /// `-v`.
    Version,
    /// To run the program.
    Run(Run),
}

/// Levels and parameters of a run.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Run {
    /// `-l`.
    pub level: Option<Level>,
    /// `--sdk-log-level`.
    pub sdk_level: Option<Level>,
    /// Parameters by their index, in the order in which they are to be told to the program: those of
    /// the file as they are registered, then those of the command line as they are given.
    pub values: Vec<(usize, Value)>,
}

/// An option that every program has.
struct BuiltIn {
    short: Option<&'static str>,
    long: &'static str,
    takes: Option<&'static str>,
    description: &'static str,
}

const BUILT_IN: [BuiltIn; 5] = [
    BuiltIn {
        short: Some("h"),
        long: "help",
        takes: None,
        description: "Print this text",
    },
    BuiltIn {
        short: Some("v"),
        long: "version",
        takes: None,
        description: "Print versions",
    },
    BuiltIn {
        short: Some("l"),
        long: "log-level",
        takes: Some("<level>"),
        description: "How much the program logs",
    },
    BuiltIn {
        short: None,
        long: "sdk-log-level",
        takes: Some("<level>"),
        description: "How much the libraries log",
    },
    BuiltIn {
        short: Some("j"),
        long: "json",
        takes: Some("<path>"),
        description: "Take flags from a JSON file; those given here override it",
    },
];

/// Whether a parameter can join the others.
///
/// # Errors
///
/// [`Code::InvalidValue`]: it lacks a name or a kind, or a name is taken.
pub fn check(param: &Param, others: &[Param]) -> Result<(), Refusal> {
    let names = [("short_name", &param.short), ("long_name", &param.long)];
    if names.iter().all(|(_, name)| name.is_none()) {
        let what = "a parameter needs a name; set its short or long name";
        return Err(Refusal::new(Code::InvalidValue, what));
    }
    if param.kind.is_none() {
        let what = "a parameter needs a type; set one of STRING, INT, BOOLEAN, DOUBLE";
        return Err(Refusal::new(Code::InvalidValue, what));
    }
    for (field, name) in names {
        let Some(name) = name else { continue };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(is_name) {
            let allowed = "letters, digits, _ and -, of which the first is no -";
            return Err(Refusal::value(field, format_args!("{name:?}"), allowed));
        }
        let of_ours = |it: &BuiltIn| match field {
            "short_name" => it.short == Some(name),
            _ => it.long == name,
        };
        let of_theirs = |it: &Param| match field {
            "short_name" => it.short.as_ref() == Some(name),
            _ => it.long.as_ref() == Some(name),
        };
        if BUILT_IN.iter().any(of_ours) || others.iter().any(of_theirs) {
            let allowed = "a name that no other parameter has";
            return Err(Refusal::value(field, format_args!("{name:?}"), allowed));
        }
    }
    Ok(())
}

/// What an option on a command line is.
enum Found {
    BuiltIn(&'static BuiltIn),
    Param(usize),
}

/// Reads a command line without the program's name, and the JSON file that it names.
///
/// # Errors
///
/// [`Code::InvalidValue`]: an option that is not there, a value that is missing or wrong;
/// [`Code::NotFound`], [`Code::IoFailed`]: the file cannot be read.
pub fn parse(params: &[Param], arguments: &[String]) -> Result<Request, Refusal> {
    let mut run = Run::default();
    let mut file = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (option, inline) = match argument.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (argument.as_str(), None),
        };
        let mut value = || inline.or_else(|| rest.next().map(String::as_str));
        match find(params, option)? {
            Found::BuiltIn(built_in) => match built_in.long {
                "help" => return Ok(Request::Help),
                "version" => return Ok(Request::Version),
                "json" => file = Some(needed(option, value())?),
                "log-level" => run.level = Some(level(needed(option, value())?)?),
                _ => run.sdk_level = Some(level(needed(option, value())?)?),
            },
            Found::Param(index) => {
                if run.values.iter().any(|(given, _)| *given == index) {
                    let what = format_args!("{option} is given twice; give it once").to_string();
                    return Err(Refusal::new(Code::InvalidValue, what));
                }
                let kind = params[index].kind.unwrap_or(Kind::String);
                let value = match kind {
                    Kind::Boolean => inline.unwrap_or("true"),
                    _ => needed(option, value())?,
                };
                run.values.push((index, kind.parse(option, value)?));
            }
        }
    }
    match file {
        None => Ok(Request::Run(run)),
        Some(path) => Ok(Request::Run(run.over(json::parse(params, &read(path)?)?))),
    }
}

impl Run {
    /// This one with what only the file has.
    fn over(self, file: Self) -> Self {
        let given: Vec<usize> = self.values.iter().map(|(index, _)| *index).collect();
        let only_there = |(index, _): &(usize, Value)| !given.contains(index);
        let values = file.values.into_iter().filter(only_there);
        Self {
            level: self.level.or(file.level),
            sdk_level: self.sdk_level.or(file.sdk_level),
            values: values.chain(self.values).collect(),
        }
    }
}

fn find(params: &[Param], option: &str) -> Result<Found, Refusal> {
    let (name, is_long) = match (option.strip_prefix("--"), option.strip_prefix('-')) {
        (Some(name), _) => (name, true),
        (None, Some(name)) => (name, false),
        (None, None) => ("", false),
    };
    let is_param = |param: &Param| {
        let own = if is_long { &param.long } else { &param.short };
        own.as_deref() == Some(name)
    };
    let is_built_in = |it: &&BuiltIn| match is_long {
        true => it.long == name,
        false => it.short == Some(name),
    };
    let built_in = BUILT_IN.iter().find(is_built_in).map(Found::BuiltIn);
    let param = || params.iter().position(is_param).map(Found::Param);
    built_in.or_else(param).ok_or_else(|| {
        let what = format_args!("{option:?} is not an option; -h lists them").to_string();
        Refusal::new(Code::InvalidValue, what)
    })
}

fn needed<'a>(option: &str, value: Option<&'a str>) -> Result<&'a str, Refusal> {
    value.ok_or_else(|| {
        let what = format_args!("{option} lacks its value; write {option} VALUE").to_string();
        Refusal::new(Code::InvalidValue, what)
    })
}

fn level(text: &str) -> Result<Level, Refusal> {
    let wrong = |_| Refusal::value("level", format_args!("{text:?}"), Level::NUMBERS);
    Level::of(text.parse().map_err(wrong)?)
}

fn read(path: &str) -> Result<String, Refusal> {
    fs::read_to_string(path).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => Code::NotFound,
            _ => Code::IoFailed,
        };
        let what = format_args!("cannot read {path:?}: {error}; name a JSON file").to_string();
        Refusal::new(code, what)
    })
}

#[cfg(test)]
mod tests;

//! Output and errors of commands.
//!
//! | module | does |
//! |---|---|
//! | `lines` | how prose, numbers and findings are laid out |
//! | `look` | how wide output is, and whether it has colour |
//! | `table` | tables that fit |

pub(crate) mod lines;
pub(crate) mod look;
mod table;

use std::fmt;
use std::io::{self, Write};

use ferroce_base::time::Span;
use ferroce_registry::RegistryError;
use serde::Serialize;

pub(crate) use self::look::{filled_columns, look};
pub use self::table::Table;

/// The exit codes of most commands, after what else stands at the end of their help.
macro_rules! exit_codes {
    ($($before:literal)?) => {
        concat!(
            $($before, "\n\n",)?
            "Exit codes:\n",
            "  0  success, including a closed pipe\n",
            "  1  operation failed or output could not be written\n",
            "  2  bad input: flags, files or values; the message says what to write instead"
        )
    };
}
pub(crate) use exit_codes;

pub(crate) const EXIT_CODES: &str = exit_codes!();

/// An object that a command prints.
pub(crate) trait Document: Serialize {
    /// The name of its schema.
    const SCHEMA: &'static str;
    /// Rises when something else than new fields comes.
    const VERSION: u32;

    /// The object on one line.
    fn line(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Envelope::of(self))
    }

    /// The object on several lines.
    fn lines(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&Envelope::of(self))
    }
}

/// A document behind its name.
#[derive(Serialize)]
struct Envelope<'a, T: ?Sized> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    facts: &'a T,
}

impl<'a, T: Document + ?Sized> Envelope<'a, T> {
    fn of(facts: &'a T) -> Self {
        Self {
            schema: T::SCHEMA,
            version: T::VERSION,
            facts,
        }
    }
}

/// Where a command prints: facts to `out`, remarks to `err`.
pub struct Output<'a> {
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
    /// Whether JSON is broken into lines.
    pub is_pretty: bool,
}

impl Output<'_> {
    /// Prints a fact.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// Prints a document, on one line unless lines are asked for.
    pub(crate) fn document(&mut self, facts: &impl Document) -> Result<(), Failure> {
        let text = match self.is_pretty {
            true => facts.lines(),
            false => facts.line(),
        };
        self.text(&(text.map_err(io::Error::from)? + "\n"))
    }

    /// Prints a remark that is not part of the answer.
    pub fn remark(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        let text = look().err.labels(&text.to_string());
        Ok(writeln!(self.err, "{text}")?)
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The input is bad; whole lines that say what, and what to write instead.
    Input(String),
    /// Nothing is left to say, the output has said it.
    Said,
    /// The machine was too busy to tell; the output has said so.
    TooBusy,
    /// The command could not do its work, for no fault of the input; whole lines.
    Broken(String),
    /// The output could not be written.
    Output(io::Error),
    /// The command line is not one.
    Usage(clap::Error),
    /// A program was run, or could not be, and this is the exit code; whole lines about it.
    Program(u8, String),
}

impl Failure {
    /// A single thing that is wrong with the input.
    pub fn input(text: impl fmt::Display) -> Self {
        Self::Input(format!("error: {text}\n"))
    }

    /// Something that is not the input's fault.
    pub fn broken(text: impl fmt::Display) -> Self {
        Self::Broken(format!("error: {text}\n"))
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Broken(_) | Self::Output(_) => 1,
            Self::Input(_) | Self::Said | Self::Usage(_) => 2,
            Self::TooBusy => 3,
            Self::Program(code, _) => *code,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(lines) | Self::Input(lines) | Self::Program(_, lines) => {
                f.write_str(lines)
            }
            Self::Said | Self::TooBusy => Ok(()),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Self::Output(error) => writeln!(f, "error: cannot write the output: {error}"),
            Self::Usage(error) => match look().err.is_on() {
                true => write!(f, "{}", error.render().ansi()),
                false => write!(f, "{}", error.render()),
            },
        }
    }
}

impl std::error::Error for Failure {}

impl From<RegistryError> for Failure {
    /// What the user has written is input; what the machine or other programs stand in the way of
    /// is not.
    fn from(error: RegistryError) -> Self {
        use RegistryError::{Directory, File, InUse};
        match error {
            Directory { .. } | File { .. } | InUse { .. } => Self::broken(error),
            _ => Self::input(error),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// A duration in milliseconds with three digits, for columns whose header names the unit.
#[must_use]
pub fn ms(span: Option<Span>) -> String {
    span.map_or_else(
        || "never".to_owned(),
        |span| {
            let ns = span.as_nanos();
            let us = ns / 1000 + u64::from(ns % 1000 >= 500);
            format!("{}.{:03}", us / 1000, us % 1000)
        },
    )
}

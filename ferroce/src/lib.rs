//! The `ferroce` program: its command line and its output.
//!
//! It is a library so that tests and fuzzers use the same code as the program. The commands make no
//! decisions about the device; they read input, call the crates below, and print the answer.

#![forbid(unsafe_code)]

pub mod adp;
mod bench;
mod bins;
pub mod cli;
pub mod demo;
pub mod device;
mod drill;
pub mod explain;
mod identify;
mod install;
mod json;
mod leftover;
mod mlxreg;
mod naming;
pub mod output;
mod page;
mod pcap;
mod policy;
mod put;
mod reg;
mod registers;
pub mod run;
mod scenario_files;
pub mod serve;
mod sim;
mod spelling;
mod sweep;
mod torture;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use crate::cli::Given;
use crate::output::look::{self, Surroundings};
use crate::output::{Failure, Output};

/// Runs the program with these arguments, the first of which is its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::complete::answer(cli::command);
    let (mut out, mut err) = (BufWriter::new(io::stdout().lock()), io::stderr().lock());
    let surroundings = Surroundings::of_process();
    ExitCode::from(execute_in(surroundings, args, &mut out, &mut err))
}

/// Runs the program with these arguments and streams, which are no terminals, and returns its exit code.
pub fn execute(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    execute_in(Surroundings::default(), args, out, err)
}

fn execute_in(
    surroundings: Surroundings,
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let args: Vec<_> = args.into_iter().collect();
    // Complaints about the command line have colour, too.
    look::set(surroundings.look(look::choice_among(&args)));
    let outcome = match Given::read(args) {
        Ok(given) => {
            look::set(surroundings.look(given.cli.color));
            let is_pretty = given.is_pretty;
            given.run(&mut Output {
                out,
                err,
                is_pretty,
            })
        }
        Err(error) if error.use_stderr() => Err(Failure::Usage(error)),
        // Help and version.
        Err(error) => match look::look().out.is_on() {
            true => write!(out, "{}", error.render().ansi()).map_err(Failure::from),
            false => write!(out, "{}", error.render()).map_err(Failure::from),
        },
    };
    // Facts come before the remarks about them.
    let flushed = out.flush().map_err(Failure::from);
    match outcome.and(flushed) {
        Ok(()) => 0,
        Err(failure) => {
            let text = look::look().err.labels(&failure.to_string());
            // If standard error is closed too, the failure cannot be shown.
            let _ = write!(err, "{text}");
            failure.exit_code()
        }
    }
}

//! The `ferroce` program: its command line and its output.
//!
//! It is a library so that tests and fuzzers use the same code as the program. The commands make no
//! decisions about the device; they read input, call the crates below, and print the answer.

#![forbid(unsafe_code)]

pub mod adp;
mod bins;
pub mod cli;
pub mod demo;
pub mod device;
pub mod explain;
mod identify;
mod install;
mod json;
mod leftover;
mod lines;
mod mlxreg;
pub mod output;
mod pcap;
mod policy;
mod reg;
mod registers;
pub mod run;
pub mod serve;
mod sim;
mod svg;
mod sweep;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::output::{Failure, Output};

/// Runs the program with these arguments, the first of which is its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (mut out, mut err) = (BufWriter::new(io::stdout().lock()), io::stderr().lock());
    ExitCode::from(run(args, &mut out, &mut err))
}

/// Runs the program with these arguments and streams, and returns its exit code.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let outcome = match Cli::try_parse_from(device::spelled_out(args)) {
        Ok(cli) => cli.run(&mut Output { out, err }),
        Err(error) if error.use_stderr() => Err(Failure::Usage(error)),
        // Help and version.
        Err(error) => write!(out, "{}", error.render()).map_err(Failure::from),
    };
    // Facts come before the remarks about them.
    let flushed = out.flush().map_err(Failure::from);
    match outcome.and(flushed) {
        Ok(()) => 0,
        Err(failure) => {
            // Nobody is left to tell when standard error is gone too.
            let _ = write!(err, "{failure}");
            failure.exit_code()
        }
    }
}

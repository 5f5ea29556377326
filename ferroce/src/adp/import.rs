//! `ferroce adp import`: converts the forms that operators have to profile files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_adp::file;
use ferroce_adp::file::import::{Form, Imported};

use super::codec::decoded;
use super::{parse, profile_of, read_text};
use crate::output::{Failure, Output};

/// Print a profile of any form as a profile file
///
/// Reads what mlxreg and mstreg print with --get, by name or by number, with --detailed and
/// --full_path or without; a command line that writes the register; its bytes in hex; and profile
/// files. All other commands that take a profile file read these as well.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(crate) struct Import {
    /// File to read; - reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// The most text that is read: a table of all registers there are is smaller.
const TEXT_MAX: u64 = 1 << 20;

impl Import {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        print(&self.file, &read_text(&self.file)?, self.json, to)
    }
}

/// Standard input, as far as it may be a profile.
pub(super) fn stdin() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(TEXT_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        Failure::input(format_args!(
            "cannot read standard input: {error}; give a profile"
        ))
    })?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Failure::input(
            "standard input is larger than 1 MiB, which no profile is; give the table of ROCE_ACCL \
             only",
        ));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Prints the profile in a text as a profile file.
pub(super) fn print(
    place: &Path,
    text: &str,
    json: bool,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    let imported = parse(place, text).map_err(|problems| Failure::Input(problems.lines))?;
    let profile = profile_of(place, &imported.document)?;
    let toml = file::to_toml(imported.document.raw());
    if json {
        return to.document(&decoded(&profile, toml, imported.remarks.clone()));
    }
    to.text(&toml)?;
    remark(&imported, to)
}

/// Says on standard error what was read, and what of it is not in the profile.
pub(super) fn remark(imported: &Imported, to: &mut Output<'_>) -> Result<(), Failure> {
    if imported.form != Form::Toml {
        to.remark(format_args!("read as {}", imported.form.name()))?;
    }
    for remark in &imported.remarks {
        to.remark(format_args!("warning: {remark}"))?;
    }
    Ok(())
}

//! `ferroce adp import`: converts the forms that operators have to profile files.

use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_adp::file;
use ferroce_adp::file::import::{Form, Imported};

use super::codec::decoded;
use super::input::{parse, profile_of, read_text};
use crate::output::{Failure, Output};

/// Print a profile of any form as a profile file
///
/// Reads what mlxreg and mstreg print with --get, by name or by number, with --detailed and
/// --full_path or without; a command line that writes the register; its bytes in hex; and profile
/// files. All other commands that take a profile file read these as well.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Import {
    /// File to read; - reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Import {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        print(&self.file, &read_text(&self.file)?, self.json, to)
    }
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

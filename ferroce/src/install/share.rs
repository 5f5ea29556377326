//! The files that are installed in addition to the program and its libraries.
//!
//! All of them are part of this program, so that it can install them without its sources.

use std::io;
use std::path::Path;

use clap_complete::env::Shells;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use ferroce_adp::builtin;

use crate::json;
use crate::output::Failure;
use crate::put::record::Record;
use crate::{sim, sweep};

/// When this version was released, or when its manual pages last changed before that.
const RELEASED: &str = "2026-11-23";

/// With it a shell asks what to propose.
pub(crate) const COMPLETION_VARIABLE: &str = "FERROCE_COMPLETE";

macro_rules! files {
    ($directory:literal: $($name:literal)+) => {
        &[$(($name, include_str!(concat!("../../../", $directory, $name)))),+]
    };
}

/// Below `share/ferroce` or `share/doc`: a directory, and the files in it.
type Files = (&'static str, &'static [(&'static str, &'static str)]);

const FILES: &[Files] = &[
    (
        "ferroce/dashboards",
        files!("dashboards/": "ferroce.json" "ferroce.rules.yml"),
    ),
    (
        "ferroce/schemas",
        files!("docs/": "profile.schema.json" "scenario.schema.json"),
    ),
    (
        "doc/ferroce",
        files!("": "CHANGELOG.md" "LICENSE-APACHE" "LICENSE-MIT" "README.md"),
    ),
];

/// The pages of the manual, by their places below those of the project.
const PAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/manual.rs"));

/// The exporter as a service of the user, below `share`; where the program is replaces `@PREFIX@`.
const UNIT: (&str, &str, &str) = (
    "systemd/user",
    "ferroce-exporter.service",
    include_str!("../../../packaging/ferroce-exporter.service"),
);

/// Where each shell looks for completions, below `share`.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "bash-completion/completions", "ferroce"),
    ("zsh", "zsh/site-functions", "_ferroce"),
    ("fish", "fish/vendor_completions.d", "ferroce.fish"),
];

/// Writes profiles, scenarios, sweeps, dashboards, schemas, completions, the manual and a unit for
/// systemd below `share` of a directory.
pub(super) fn install(
    prefix: &Path,
    command: clap::Command,
    record: &mut Record,
) -> Result<(), Failure> {
    let share = &prefix.join("share");
    for (directory, files) in FILES {
        let directory = share.join(directory);
        record.directory(&directory)?;
        for (name, text) in *files {
            record.file(&directory.join(name), text.as_bytes())?;
        }
    }
    let schemas = share.join("ferroce/schemas");
    for (name, text) in json::files() {
        record.file(&schemas.join(name), text.as_bytes())?;
    }
    let profiles = share.join("ferroce/profiles");
    record.directory(&profiles)?;
    for profile in builtin::all() {
        let name = format!("{}.toml", profile.name);
        record.file(&profiles.join(name), profile.toml.as_bytes())?;
    }
    let scenarios = share.join("ferroce/scenarios");
    record.directory(&scenarios)?;
    for (name, text) in sim::BUILT_IN {
        record.file(&scenarios.join(format!("{name}.toml")), text.as_bytes())?;
    }
    let sweeps = share.join("ferroce/sweeps");
    record.directory(&sweeps)?;
    for (name, text) in sweep::files() {
        record.file(&sweeps.join(name), text.as_bytes())?;
    }
    for (name, content) in PAGES {
        let path = share.join("doc/ferroce").join(name);
        record.directory(path.parent().unwrap_or(share))?;
        record.file(&path, content)?;
    }
    for (shell, directory, name) in COMPLETIONS {
        let directory = share.join(directory);
        record.directory(&directory)?;
        record.file(&directory.join(name), &completions(shell)?)?;
    }
    let (directory, name, unit) = UNIT;
    let directory = share.join(directory);
    record.directory(&directory)?;
    // Units name programs by their whole path, from wherever the directory was given.
    let prefix = prefix.canonicalize()?;
    let unit = unit.replace("@PREFIX@", &prefix.display().to_string());
    record.file(&directory.join(name), unit.as_bytes())?;
    manual(command, &share.join("man/man1"), record)
}

/// What a shell reads to ask.
pub(super) fn completions(shell: &str) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells.completer(shell).ok_or(io::ErrorKind::Unsupported)?;
    shell.write_registration(
        COMPLETION_VARIABLE,
        "ferroce",
        "ferroce",
        "ferroce",
        &mut script,
    )?;
    if shell.name() == "zsh" {
        // zsh runs the file of a command when it first completes it.
        let now = b"[[ $funcstack[1] != _ferroce ]] || _clap_dynamic_completer_ferroce \"$@\"\n";
        script.extend(now);
    }
    Ok(script)
}

/// One manual page for the program and one for each of its commands.
fn manual(command: clap::Command, directory: &Path, record: &mut Record) -> Result<(), Failure> {
    record.directory(directory)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    pages(&command, directory, record)
}

fn pages(command: &clap::Command, directory: &Path, record: &mut Record) -> Result<(), Failure> {
    let (name, text) = page(command).map_err(Failure::from)?;
    record.file(&directory.join(name), &text)?;
    let mut shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    shown.try_for_each(|it| pages(it, directory, record))
}

/// The name of a command's manual page and its text.
fn page(command: &clap::Command) -> io::Result<(String, Vec<u8>)> {
    let mut text = Vec::new();
    // What stands after the help has headings of its own, so it is not left to the generator.
    let after = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command.clone().after_help(None::<&str>))
        .date(RELEASED)
        .source(concat!("Ferroce ", env!("CARGO_PKG_VERSION")))
        .manual("Ferroce Manual");
    man.render(&mut text)?;
    if let Some(after) = after {
        after_help(&after).to_writer(&mut text)?;
    }
    Ok((man.get_filename(), text))
}

/// Paragraphs after the help as sections: the first line of each is its heading.
fn after_help(text: &str) -> Roff {
    let mut roff = Roff::new();
    for paragraph in text.split("\n\n") {
        let (heading, lines) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let heading = match heading.trim_end_matches(':') {
            "Exit codes" => "EXIT STATUS".to_owned(),
            other => other.to_uppercase(),
        };
        roff.control("SH", [heading.as_str()]).control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff
}

//! The output of commands matches the files in `tests/snapshots/`, and fits the terminal.
//!
//! A file has commands and their output, on devices of its own. To add a command, write its line
//! into the file. `UPDATE_SNAPSHOTS=1 cargo test -p ferroce --test all snapshots::` writes the files
//! again; then check `git diff`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use ferroce::cli::Cli;
use ferroce_testing::said;

use crate::common::Place;

/// Files with commands that are refused, on more devices than fr0.
const REFUSALS: [&str; 2] = ["refusals", "refusals-mlxreg"];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/snapshots/{name}.txt"))
}

/// The columns of a file's terminal. The width for mlxreg is that of the tool.
fn columns(name: &str) -> usize {
    match name {
        "mlxreg" => 240,
        "traces" | "wide" => 120,
        _ => 80,
    }
}

/// Commands and their output, on a terminal with the columns of that file.
fn transcript(name: &str, commands: &[&str]) -> String {
    let place = Place::with("spare", "127.0.0.100");
    place.good("dev del spare");
    let is_refused = REFUSALS.contains(&name);
    if is_refused {
        place.good("dev add a 127.63.1.3 --vfs 1");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let shared = [
        ("profiles", "profiles"),
        ("docs", "docs"),
        ("ferroce/tests/files", "tests"),
    ];
    for (from, name) in shared {
        symlink(root.join(from), place.path().join(name)).unwrap();
    }
    let state = || {
        let commands = ["dev", "mlxreg -d a --reg_name ROCE_ACCL -g", "cc show"];
        is_refused.then(|| commands.map(|it| place.good(it)))
    };
    let before = state();
    let mut text = String::new();
    for command in commands {
        let mut program = place.command(command);
        program
            .current_dir(place.path())
            .env("COLUMNS", columns(name).to_string());
        let (code, out, err) = said(program.output().unwrap());
        text += &format!("$ ferroce {command}\n{out}{err}");
        assert!(!is_refused || code != Some(0), "{command}: {out}{err}");
        if let Some(code) = code.filter(|code| *code != 0) {
            text += &format!("[exit code {code}]\n");
        }
    }
    assert!(state() == before, "a refusal has changed something");
    text
}

/// The help of every command without subcommands, except for mlxreg, whose help is that of another
/// tool.
fn helps(command: &Command, path: &str, found: &mut Vec<String>) {
    found.push(format!("{path} --help").trim_start().to_owned());
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    for below in shown.filter(|it| !["help", "mlxreg"].contains(&it.get_name())) {
        helps(below, format!("{path} {}", below.get_name()).trim(), found);
    }
}

fn check(name: &str, commands: &[&str]) -> Result<(), String> {
    let columns = columns(name);
    let text = transcript(name, commands);
    let path = file(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    // Errors and remarks are prose, which a terminal may wrap; so may commands be.
    let is_prose = |line: &str| {
        let labels = [
            "$ ",
            "{",
            "error: ",
            "-E- ",
            "ferroce: ",
            "warning: ",
            "note: ",
        ];
        labels.iter().any(|label| line.starts_with(label))
    };
    let mut lines = text.lines();
    if let Some(wide) = lines.find(|it| !is_prose(it) && it.chars().count() > columns) {
        return Err(format!("{name} is wider than {columns} columns: {wide}"));
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    match text == expected {
        true => Ok(()),
        false => {
            let differs = text
                .lines()
                .zip(expected.lines())
                .find(|(new, old)| new != old);
            let path = path.display();
            Err(format!(
                "{path}: {differs:?}; UPDATE_SNAPSHOTS=1 writes it anew"
            ))
        }
    }
}

#[test]
fn usual_output_matches_its_snapshot_and_fits_the_terminal() {
    let files = fs::read_dir(file("").parent().unwrap()).unwrap();
    let wrong = files.filter_map(|it| {
        let path = it.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let commands: Vec<_> = text
            .lines()
            .filter_map(|it| it.strip_prefix("$ ferroce "))
            .collect();
        if name == "help" {
            None
        } else {
            check(name, &commands).err()
        }
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A change of help has to be reviewed in its final form.
#[test]
fn help_matches_its_snapshot_and_describes_each_word() {
    let mut commands = Vec::new();
    helps(&Cli::command(), "", &mut commands);
    assert!(commands.len() > 60, "{commands:?}");
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    let same = check("help", &commands);
    assert!(same.is_ok(), "{same:?}");
    let text = fs::read_to_string(file("help")).unwrap();
    // A wrapped example cannot be copied, and its remark loses its column.
    let examples = text.split("Examples:\n").skip(1);
    let examples = examples.filter_map(|it| it.split("\n\n").next());
    for line in examples.flat_map(str::lines) {
        let begins = ["  ferroce ", "  tcpdump "];
        assert!(begins.iter().any(|it| line.starts_with(it)), "{line}");
    }
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    for pair in lines.windows(2) {
        // Short help is on the line of its option.
        let is_word = pair[0].starts_with(['<', '[']) && !pair[0].contains("  ");
        let is_word = is_word && !pair[0].contains(": ");
        assert!(!is_word || !pair[1].is_empty(), "{} has no help", pair[0]);
    }
}

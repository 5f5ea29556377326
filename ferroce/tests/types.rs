//! Errors about a number or a file do not name types of the program.

use std::fs;
use std::path::Path;

use clap::{ArgAction, Command, CommandFactory as _};
use ferroce::cli::Cli;

use crate::common::{Place, Words, has, run};

/// Words that a Rust program uses for its own types.
const OURS: [&str; 17] = [
    "target type",
    "invalid digit",
    "float literal",
    "empty string",
    "expected struct",
    "expected enum",
    "expected a map",
    "expected a sequence",
    "expected u8",
    "expected u16",
    "expected u32",
    "expected u64",
    "expected f64",
    "invalid type",
    "unknown variant",
    "unknown field",
    "is not in ",
];

#[track_caller]
fn is_plain(complaint: &str, about: &str) {
    let slip = OURS.iter().find(|ours| complaint.contains(**ours));
    assert_eq!(slip, None, "{about}: {complaint}");
}

/// The paths of all commands, each with its own arguments.
fn commands(path: &[String], command: &Command, found: &mut Vec<(Vec<String>, Command)>) {
    found.push((path.to_vec(), command.clone()));
    for below in command.get_subcommands() {
        let path = [path, &[below.get_name().to_owned()]].concat();
        commands(&path, below, found);
    }
}

#[test]
fn numbers_on_the_command_line() {
    let mut found = Vec::new();
    commands(&[], &Cli::command(), &mut found);
    let mut refused = 0;
    for (path, command) in found {
        let options = command.get_opts().filter_map(|it| it.get_long());
        for option in options {
            for value in [
                "x",
                "-1",
                "1.5",
                "",
                "99999999999999999999999",
                "4294967297",
            ] {
                let value = format!("--{option}={value}");
                let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
                // An accepted command must not be executed.
                args.extend([value.as_str(), "--no-such-option"]);
                let (code, _, err) = run(&args);
                assert_eq!(code, 2, "{args:?}");
                refused += usize::from(err.contains("must be a"));
                is_plain(&err, &format!("{args:?}"));
            }
        }
        let takes_one = command.get_positionals().next();
        if let Some(one) = takes_one.filter(|it| matches!(it.get_action(), ArgAction::Set)) {
            for value in ["x", "1.5", "99999999999999999999999"] {
                let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
                args.extend([value, "--no-such-option"]);
                is_plain(&run(&args).2, one.get_id().as_str());
            }
        }
    }
    assert!(refused > 50, "{refused}");
    let (_, _, err) = run("adp trace link-flap --timeout x");
    assert!(
        err.starts_with("error: invalid value 'x' for '--timeout <T>': "),
        "{err}"
    );
    let (_, _, err) = run("sweep plan survival --shards 0");
    has(&err, ["'--shards <S>': must be 1 to 1000000\n"]);
}

/// Values of every type that TOML has.
const VALUES: [&str; 8] = [
    "\"x\"",
    "true",
    "1.5",
    "-1",
    "99999999999999",
    "[1]",
    "{ a = 1 }",
    "1979-05-27",
];

/// The text with each of its values replaced by one of another type, one at a time.
fn with_other_types(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let settings = lines.iter().enumerate();
    let settings = settings.filter_map(|(at, line)| Some((at, line.split_once(" = ")?.0)));
    let mut texts = Vec::new();
    for (at, key) in settings {
        for value in VALUES {
            let setting = format!("{key} = {value}");
            let mut lines = lines.clone();
            lines[at] = &setting;
            texts.push(lines.join("\n") + "\n");
        }
    }
    assert!(!texts.is_empty(), "no settings: {text}");
    texts
}

fn all_are_plain(file: &Path, text: &str, args: impl Words) {
    for wrong in with_other_types(text) {
        fs::write(file, &wrong).unwrap();
        is_plain(&run(&args).2, &wrong);
    }
}

#[test]
fn files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();

    let file = path("profile.toml");
    let profile = read("profiles/nvidia-ranges.toml");
    all_are_plain(Path::new(&file), &profile, format!("adp check {file}"));
    let file = path("flap.toml");
    let scenario = read("sweeps/flap.toml");
    all_are_plain(Path::new(&file), &scenario, format!("sim check {file}"));
    fs::write(&file, scenario).unwrap();
    let file = path("sweep.toml");
    let sweep = read("sweeps/survival.toml");
    all_are_plain(Path::new(&file), &sweep, format!("sweep plan {file}"));
}

#[test]
fn files_of_devices() {
    let place = Place::with("fr7", "127.0.0.7");
    let registry = place.path().join("registry");
    let directory = fs::read_dir(registry).unwrap().next().unwrap().unwrap();
    let file = directory.path().join("fr7.toml");
    let text = fs::read_to_string(&file).unwrap();
    let personality = "personality = 5\nwindow = true\nlink = 5\npci = 5\nvf_address = 5\n";
    for wrong in with_other_types(&text) {
        fs::write(&file, &wrong).unwrap();
        is_plain(&place.run("dev show fr7").2, &wrong);
    }
    for setting in personality.lines() {
        let head = text.split_once("[personality]").unwrap().0;
        fs::write(&file, format!("{head}{setting}\n")).unwrap();
        let err = place.bad(2, "dev show fr7");
        has(&err, [&format!("{setting}: must be ")]);
        is_plain(&err, setting);
    }
}

/// Files that programs of this project write are not for people, but may have been edited.
#[test]
fn files_of_our_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let out = path("out");
    fs::create_dir(&out).unwrap();
    for (file, args) in [
        (path("state.json"), "adp fit --outages list:1s --state"),
        (path("out/plan.json"), "sweep collect"),
    ] {
        let place = if file.contains("plan") { &out } else { &file };
        let args = format!("{args} {place}");
        for wrong in [
            "5",
            "[]",
            "{}",
            "{\"question\": 1}",
            "{\"format\": \"x\"}",
            "nul",
        ] {
            fs::write(&file, wrong).unwrap();
            let (code, _, err) = run(&args);
            assert_eq!(code, 2, "{err}");
            is_plain(&err, wrong);
        }
    }
}

//! No line of a command's output is longer than a terminal of 80 columns, whatever its input.
//!
//! `tests/snapshots.rs` has the usual output; this has what makes it wide.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const COLUMNS: usize = 80;

/// The whole output of the program on a terminal of 80 columns.
fn print(directory: &Path, args: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ferroce"))
        .args(args.split_whitespace())
        .current_dir(directory)
        .env("COLUMNS", COLUMNS.to_string())
        .env("FERROCE_DIR", directory.join("registry"))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[track_caller]
fn fits(text: &str, args: &str) {
    // An error is one sentence, which the terminal wraps.
    let is_wide = |line: &&str| line.chars().count() > COLUMNS && !line.starts_with("error: ");
    let wide: Vec<_> = text.lines().filter(is_wide).collect();
    assert!(wide.is_empty(), "{args:?}: {wide:#?}");
}

/// A directory with the project's files that commands read, and its path.
fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for shared in ["profiles", "scenarios"] {
        std::os::unix::fs::symlink(root.join(shared), directory.path().join(shared)).unwrap();
    }
    let path = directory.path().to_owned();
    (directory, path)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|it| it.unwrap().path());
    names
        .map(|it| it.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn profiles() {
    let (_directory, path) = place();
    let wrong = "time_base = 6\n[[timeout_range]]\nrange_low_bound = 99\nprev_range_index = 7\n\
                 [[timeout_range]]\nstart_range_index = 1\n";
    fs::write(path.join("wrong.toml"), wrong).unwrap();
    for profile in names(&path.join("profiles")) {
        let file = format!("profiles/{profile}.toml");
        for args in [
            format!("adp check {file}"),
            format!("adp check {file} --timeout 17 --retry-cnt 0"),
            format!("adp check {file} --timeout 0"),
            format!("adp trace {file} --timeout 18 --retry-cnt 7"),
            format!("adp plot {file}"),
            format!("adp compare {file} firmware --outages list:300ms"),
        ] {
            fits(&print(&path, &args), &args);
        }
    }
    for args in [
        "adp check wrong.toml",
        "adp apply wrong.toml",
        "adp profile",
    ] {
        let text = print(&path, args);
        assert!(!text.is_empty(), "{args:?}");
        fits(&text, args);
    }
}

#[test]
fn explanations() {
    let (_directory, path) = place();
    fits(&print(&path, "explain error"), "explain error");
    for status in 1..=13 {
        let causes = print(&path, &format!("explain error {status}"));
        fits(&causes, "explain error");
        for code in ["0", "0x32", "0x33", "0x52", "0x53", "0xf5", "0xf9"] {
            let args = format!("explain error {status} {code}");
            fits(&print(&path, &args), &args);
        }
    }
    let profile = "--profile profiles/nvidia-ranges.toml";
    for (timeout, retry_cnt) in [(14, 7), (0, 7), (31, 0), (99, 15)] {
        for policy in ["", profile, "--personality ib"] {
            let qp = format!("--timeout {timeout} --retry-cnt {retry_cnt}");
            let args = format!("explain timeout {qp} {policy}");
            fits(&print(&path, &args), &args);
        }
    }
}

#[test]
fn scenarios() {
    let (_directory, path) = place();
    fits(&print(&path, "sim list"), "sim list");
    let long = "a-job-with-a-name-that-only-scripts-would-choose-for-it";
    let scenario = SCENARIO.replace("NAME", long);
    fs::write(path.join("own.toml"), scenario).unwrap();
    fs::write(
        path.join("wrong.toml"),
        "[topology]\nkind = \"star\"\nhosts = \"many\"\n",
    )
    .unwrap();
    for args in ["sim run own.toml", "sim check wrong.toml"] {
        let text = print(&path, args);
        assert!(!text.is_empty(), "{args:?}");
        fits(&text, args);
    }
    for name in names(&path.join("scenarios")) {
        let args = format!("sim check scenarios/{name}.toml");
        fits(&print(&path, &args), &args);
    }
}

#[test]
fn sweeps() {
    let (_directory, path) = place();
    fs::write(path.join("scenario.toml"), SCENARIO).unwrap();
    fs::write(path.join("sweep.toml"), SWEEP).unwrap();
    fs::write(
        path.join("wrong.toml"),
        SWEEP.replace("timeout\"", "tiemout\""),
    )
    .unwrap();
    for args in [
        "sweep plan survival",
        "sweep plan wrong.toml",
        "sweep plan sweep.toml -o out --shards 3",
        "sweep run out",
        "sweep collect out",
    ] {
        let text = print(&path, args);
        assert!(!text.is_empty(), "{args:?}");
        fits(&text, args);
    }
}

const SCENARIO: &str = r#"
title = "How a small incast fares with losses on all links, with plain InfiniBand timeouts, and why"
[topology]
kind = "star"
hosts = 3
[device]
personality = "ib"
[[job]]
name = "NAME"
workload = "incast"
bytes = "64KiB"
timeout = 8
[[fault]]
kind = "loss"
link = "all"
probability = "1%"
"#;

/// The most axes that a table has room for, and more.
const SWEEP: &str = r#"
title = "How a small incast fares with losses on all links, by timeout, retry count, size and seed"
scenario = "scenario.toml"
seeds = 2
baseline = true
[[axis]]
field = "fault[0].probability"
values = ["0.1%", "1%"]
[[axis]]
field = "job.NAME.timeout"
values = [8, 9]
[[axis]]
field = "job.NAME.retry_cnt"
values = [7]
[[axis]]
field = "job.NAME.bytes"
values = ["64KiB"]
"#;

//! `ferroce sweep` from plan to table, and the files that are left when it fails.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_testing::said;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{bad, has, run};

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

const SCENARIO: &str = r#"
[topology]
kind = "star"
hosts = 3
[device]
personality = "ib"
[[job]]
workload = "incast"
bytes = "64KiB"
[[fault]]
kind = "loss"
link = "all"
probability = "1%"
"#;

const SWEEP: &str = r#"
title = "Loss"
scenario = "scenario.toml"
seeds = 10
[[axis]]
field = "fault[0].probability"
values = ["0.1%", "1%"]
"#;

/// A directory with a sweep of `seeds` seeds.
fn place(seeds: u32) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("scenario.toml"), SCENARIO).unwrap();
    write_sweep(directory.path(), seeds);
    directory
}

fn write_sweep(directory: &Path, seeds: u32) {
    let sweep = SWEEP.replace("seeds = 10", &format!("seeds = {seeds}"));
    fs::write(directory.join("sweep.toml"), sweep).unwrap();
}

fn path(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

/// The names of a sweep's files that begin with `first`.
fn files(directory: &TempDir, first: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(directory.path().join("out")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let begins = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(first)
    };
    files.filter(begins).collect()
}

fn table(directory: &TempDir, out: &str) -> String {
    let csv = path(directory, "table.csv");
    let (code, _, err) = run(format!(
        "sweep collect {} --csv {csv}",
        path(directory, out)
    ));
    assert_eq!((code, err.as_str()), (0, ""));
    fs::read_to_string(csv).unwrap()
}

#[test]
fn from_the_plan_to_the_table() {
    let directory = place(10);
    let (sweep, out) = (path(&directory, "sweep.toml"), path(&directory, "out"));
    let (code, text, _) = run(format!("sweep plan {sweep} -o {out} --shards 4"));
    assert_eq!(code, 0);
    has(
        &text,
        [
            "20 points: 2 combinations, 10 seeds of each",
            "4 shards of ",
        ],
    );

    let (code, _, err) = run(format!("sweep collect {out}"));
    assert_eq!(code, 1);
    has(&err, ["missing: ", "(0.1%, seed 1)"]);
    let command =
        format!("error: 20 of 20 points are missing; this runs them: ferroce sweep run {out}\n");
    assert!(err.ends_with(&command), "{err}");

    for shard in ["0/4", "1/4", "2/4", "3/4"] {
        let (code, _, err) = run(format!("sweep run {out} --shard {shard}"));
        assert_eq!(code, 0, "{err}");
        has(&err, [&format!("shard {shard}: ")]);
    }
    let (code, text, err) = run(format!("sweep collect {out}"));
    assert_eq!((code, err.as_str()), (0, ""));
    has(&text, ["20 of 20 points have results", "100 % (72 to 100)"]);
    let (_, json, _) = run(format!("sweep collect {out} -j"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["combinations"][1]["values"]["fault[0].probability"],
        "1%"
    );
    assert_eq!(json["combinations"][1]["survived"], 10);

    let other = path(&directory, "other");
    let (code, _, err) = run(format!("sweep launch {sweep} -o {other} --on local"));
    assert_eq!(code, 0, "{err}");
    assert_eq!(table(&directory, "out"), table(&directory, "other"));

    let (code, _, err) = run(format!(
        "sweep launch {sweep} -o {out}-k8s --on k8s --dry-run --shards 8"
    ));
    assert_eq!(code, 2);
    has(&err, ["write --shards 1 or less"]);
}

#[test]
fn survival_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = SCENARIO.replace("kind = \"loss\"", "kind = \"link-down\"");
    let scenario = scenario.replace("probability = \"1%\"", "at = \"1us\"\nfor = \"1ms\"");
    fs::write(directory.path().join("scenario.toml"), scenario).unwrap();
    let sweep = SWEEP
        .replace("probability", "for")
        .replace("\"0.1%\", \"1%\"", "\"1ms\", \"10s\"");
    let sweep_file = path(&directory, "sweep.toml");
    fs::write(&sweep_file, &sweep).unwrap();
    let out = path(&directory, "out");
    let (code, _, err) = run(format!("sweep run {sweep_file} -o {out}"));
    assert_eq!(code, 0, "{err}");
    let svg = path(&directory, "survival.svg");
    let collect = format!("sweep collect {out} --survival {svg}");
    assert!(bad(&collect).contains("add assumption"));

    let assumption = format!("assumption = \"One outage & no more.\"\nbaseline = true\n{sweep}");
    fs::write(&sweep_file, assumption).unwrap();
    let (code, _, err) = run(format!("sweep run {sweep_file} -o {out}"));
    assert_eq!(code, 0, "{err}");
    // The plan differs, and the points of the previous one are part of it.
    has(&err, ["had another plan", "20 had results"]);
    let (code, _, err) = run(&collect);
    assert_eq!(code, 0, "{err}");
    let svg = fs::read_to_string(svg).unwrap();
    has(
        &svg,
        [
            "One outage &amp; no more.",
            "Jobs that survive",
            "Time that jobs lost to faults, of runs that survived (time_lost_ms)",
            "10 runs",
            "10s",
        ],
    );
    let (code, _, err) = run(format!("{collect} --of slowdown_p99"));
    assert_eq!(code, 0, "{err}");
    let svg = fs::read_to_string(path(&directory, "survival.svg")).unwrap();
    has(&svg, ["the 99th percentile (slowdown_p99)"]);
    let unknown = bad(format!("{collect} --of slowdown"));
    has(
        &unknown,
        ["no metric is called slowdown; there are survival, ended_ms,"],
    );
    let page = path(&directory, "survival.html");
    let (code, _, err) = run(format!("sweep collect {out} --survival {page}"));
    assert_eq!(code, 0, "{err}");
    assert!(fs::read_to_string(page).unwrap().contains("<svg"));
    let png = bad(format!("sweep collect {out} --survival x.png"));
    has(&png, ["must end in .svg or .html"]);
    let along = bad(format!("sweep collect {out} --survival x.svg --along y"));
    has(&along, ["the sweep has no axis y; it has fault[0].for"]);
}

fn start(directory: &TempDir) -> Child {
    let (sweep, out) = (path(directory, "sweep.toml"), path(directory, "out"));
    let mut command = Command::new(FERROCE);
    command.args(["sweep", "run", &sweep, "-o", &out, "--threads", "2"]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until there are more than `known` parts.
fn wait_for_part(directory: &TempDir, child: &mut Child, known: usize) {
    let begun = Instant::now();
    let is_there =
        || directory.path().join("out").exists() && files(directory, "part-").len() > known;
    while !is_there() {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        assert!(begun.elapsed() < Duration::from_secs(120), "no results");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn stopped_or_killed_runs_leave_whole_results() {
    // Enough seeds that it does not end before it is stopped.
    let directory = place(100_000);
    let out = path(&directory, "out");
    let mut child = start(&directory);
    wait_for_part(&directory, &mut child, 0);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    has(&err, ["points are left; the same command resumes"]);
    assert!(files(&directory, ".unfinished").is_empty());

    let parts = files(&directory, "part-").len();
    let mut child = start(&directory);
    wait_for_part(&directory, &mut child, parts);
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, json, _) = run(format!("sweep collect {out} -j"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (code, &json["damaged"], &json["duplicates"]),
        (1, &0.into(), &0.into())
    );

    // A smaller sweep over the same scenario uses the existing results.
    write_sweep(directory.path(), 15);
    let sweep = path(&directory, "sweep.toml");
    let (code, _, err) = run(format!("sweep run {sweep} -o {out}"));
    assert_eq!(code, 0, "{err}");
    let fresh = path(&directory, "fresh");
    assert_eq!(run(format!("sweep run {sweep} -o {fresh}")).0, 0);
    assert_eq!(table(&directory, "out"), table(&directory, "fresh"));
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_partial_files() {
    let directory = place(10);
    let (sweep, out) = (path(&directory, "sweep.toml"), path(&directory, "out"));
    assert_eq!(run(format!("sweep plan {sweep} -o {out}")).0, 0);
    // Files of at most half a KiB, as on a full disk; without the signal.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" sweep run \"$1\"";
    let output = Command::new("sh")
        .args(["-c", script, FERROCE, &out])
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    has(
        &err,
        ["cannot write", "make room, and run the same command"],
    );
    assert!(files(&directory, "part-").is_empty() && files(&directory, ".unfinished").is_empty());
    assert_eq!(run(format!("sweep run {out}")).0, 0);
    assert_eq!(run(format!("sweep collect {out}")).0, 0);
}

/// A directory with programs of these texts, for the front of PATH.
fn programs(programs: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in programs {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

/// What `launch` passes to sbatch, and how it reads the answer. A real one is in interop.
#[test]
fn a_launch_submits_one_array() {
    let directory = place(10);
    let (sweep, out) = (path(&directory, "sweep.toml"), path(&directory, "out"));
    let launch = |slurm: &TempDir| {
        let output = Command::new(FERROCE)
            .args(["sweep", "launch", &sweep, "-o", &out, "--on", "slurm"])
            .args([
                "--shards",
                "2",
                "--shard-time",
                "0",
                "--",
                "--partition=long",
                "--mem=1G",
            ])
            .env("PATH", format!("{}:/usr/bin:/bin", slurm.path().display()))
            .output()
            .unwrap();
        said(output)
    };
    let config = ("scontrol", "echo 'MaxArraySize            = 17'");
    let given = path(&directory, "given");
    let submits = format!("for it; do echo \"$it\"; done > {given}; echo 4711");
    let (code, said, err) = launch(&programs(&[config, ("sbatch", &submits)]));
    assert_eq!(code, Some(0), "{err}");
    assert!(
        said.starts_with("job 4711: 2 shards; when they are done: ferroce sweep collect "),
        "{said}"
    );
    let given = fs::read_to_string(given).unwrap();
    let words: Vec<_> = given.lines().collect();
    let script = format!("{out}/launch.sbatch");
    assert_eq!(
        words,
        ["--parsable", "--partition=long", "--mem=1G", &script]
    );
    let script = fs::read_to_string(script).unwrap();
    has(&script, ["#SBATCH --array=0-1"]);

    let refuses = (
        "sbatch",
        "echo 'sbatch: error: invalid partition' >&2; exit 1",
    );
    let (code, _, err) = launch(&programs(&[config, refuses]));
    assert_eq!(code, Some(1));
    has(&err, ["launch.sbatch: sbatch: error: invalid partition"]);
    let (code, _, err) = launch(&programs(&[(
        "scontrol",
        "echo 'no controller' >&2; exit 1",
    )]));
    assert_eq!(code, Some(1));
    has(&err, ["scontrol show config: no controller"]);
}

//! `ferroce bench` with rounds that are too short to say anything about speed.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_testing::{said, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{self, Words, bad, has};

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

fn bench(args: impl Words) -> Command {
    let mut command = Command::new(FERROCE);
    command.arg("bench").args(args.words());
    command
}

/// Output of measurements that succeed, on a noisy machine as well.
#[track_caller]
fn measured(command: &mut Command) -> (String, String) {
    let (code, out, err) = said(command.output().unwrap());
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {err}");
    (out, err)
}

#[track_caller]
fn document(command: &mut Command) -> Value {
    let (out, _) = measured(command.arg("-j"));
    let document: Value = serde_json::from_str(&out).unwrap();
    common::schema::check(&document).unwrap();
    document
}

/// The programs that have figures of a workload.
fn programs(workload: &Value) -> Vec<&str> {
    let figures = workload["figures"].as_array().unwrap();
    let of = figures.iter().map(|figure| {
        let values = figure["values"].as_array().unwrap();
        let is_positive = |value: &Value| value.as_f64().unwrap() > 0.0;
        assert!(values.iter().all(is_positive), "{figure}");
        figure["of"].as_str().unwrap()
    });
    of.collect()
}

#[test]
fn each_workload_is_measured_and_judged() {
    // Without a PATH there is no other program.
    let document = document(bench("--rounds 1 --seconds 0.005").env("PATH", ""));
    let found: Vec<_> = document["workloads"].as_array().unwrap().iter().collect();
    let names = found.iter().map(|it| it["workload"].as_str().unwrap());
    assert!(names.eq([
        "WRITE 8 B",
        "WRITE 512 B",
        "WRITE 4 KiB",
        "WRITE 16 KiB",
        "WRITE 64 KiB",
        "WRITE 1 MiB",
        "READ 8 B",
        "READ 1 MiB",
        "atomic 8 B",
        "latency 8 B",
        "latency 64 KiB",
    ]));
    for workload in &found {
        let expected = match workload["workload"].as_str().unwrap() {
            "latency 8 B" => &["bare_udp", "ferroce_udp", "bare_ring", "ferroce_shm"][..],
            name if name.starts_with("WRITE") => &["bare_udp", "ferroce_udp", "ferroce_shm"],
            _ => &["ferroce_udp", "ferroce_shm"],
        };
        assert_eq!(programs(workload), expected, "{workload}");
    }
    let goals = document["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 11);
    for goal in goals {
        assert_eq!(
            goal["verdict"], "cannot_tell",
            "one round is too few: {goal}"
        );
    }
    let absent = document["absent"].as_array().unwrap();
    let reasons: Vec<_> = absent
        .iter()
        .map(|it| it["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        [
            "not installed (apt install iperf3)",
            "not installed (apt install ucx-utils)"
        ]
    );
}

#[test]
fn five_rounds_have_a_table_of_verdicts() {
    let (out, _) = measured(bench("--rounds 5 --seconds 0.005 --only 16").env("PATH", ""));
    has(
        &out,
        [
            "Medians of 5 rounds of 0.005 s a figure",
            "bare UDP",
            "WRITE 4 KiB",
            "WRITE 16 KiB",
            "verdict",
            ">= 0.5 of bare UDP",
            "iperf3: not installed (apt install iperf3)",
        ],
    );
    let verdict = |line: &str| {
        ["met", "missed", "cannot tell"]
            .iter()
            .any(|it| line.contains(it))
    };
    assert_eq!(out.lines().filter(|line| verdict(line)).count(), 1, "{out}");
}

#[test]
fn other_programs_are_measured_beside_it() {
    let mut command = bench("--rounds 1 --seconds 0.01");
    let document = document(command.args(["--only", "WRITE 64 KiB"]));
    let absent = document["absent"].as_array().unwrap();
    if let Some(absent) = absent.first() {
        let reason = format!("{}: {}", absent["program"], absent["reason"]);
        return skip("other_programs_are_measured_beside_it", &reason);
    }
    let expected = [
        "bare_udp",
        "ferroce_udp",
        "ferroce_shm",
        "iperf3",
        "ucx_tcp",
    ];
    assert_eq!(programs(&document["workloads"][0]), expected);
}

#[test]
fn bad_requests_are_refused() {
    let no_such = bad("bench --only WRITES");
    has(
        &no_such,
        ["--only WRITES: no such workload; there are WRITE 8 B, WRITE 512 B"],
    );
    for seconds in ["0", "x", "61", "inf"] {
        let error = bad(format!("bench --seconds {seconds}"));
        has(&error, ["must be seconds from 0.001 to 60"]);
    }
    has(&bad("bench --rounds 0"), ["1 to 1000"]);
}

#[test]
fn one_processor_is_too_few() {
    let command = Command::new("taskset")
        .args(["1", FERROCE, "bench"])
        .output();
    let Ok(output) = command else {
        return skip("one_processor_is_too_few", "taskset is not installed");
    };
    let (code, out, err) = said(output);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    has(&err, ["error: a measurement needs two processors"]);
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    for (signal, expected) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let mark = format!("{}-{signal}", std::process::id());
        let mut command = bench("--rounds 1000 --only WRITE");
        command
            .env(MARK, &mark)
            .env_remove("FERROCE_DIR")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let prefix = format!("ferroce-bench-{}-", child.id());
        let files = || {
            names("/dev/shm")
                .filter(|it| it.starts_with(&prefix))
                .collect::<Vec<_>>()
        };
        // Devices over shared memory have files for a moment, until they have met.
        within_a_minute("files", || !files().is_empty());
        within_a_minute("no files", || files().is_empty());
        let pid = Pid::from_raw(child.id().cast_signed());
        kill(pid, signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), expected);
        within_a_minute("no programs", || programs_with(&mark) == 0);
        assert_eq!(files(), Vec::<String>::new());
    }
}

/// A variable that programs inherit from the command that starts them.
const MARK: &str = "FERROCE_BENCH_TEST";

fn names(directory: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|it| it.file_name().to_string_lossy().into_owned())
}

fn programs_with(mark: &str) -> usize {
    let mark = format!("{MARK}={mark}");
    let has_it = |process: &String| {
        let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let mut variables = variables.split(|byte| *byte == 0);
        variables.any(|it| it == mark.as_bytes())
    };
    names("/proc").filter(has_it).count()
}

#[track_caller]
fn within_a_minute(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

//! `ferroce stat hist`: the histogram of timeouts.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::{Place, Words};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// What a command prints that sets other bins, and says so.
#[track_caller]
fn set(place: &Place, args: impl Words) -> String {
    let (code, out, err) = place.run(args);
    assert_eq!(code, 0, "{err}");
    assert!(
        err.starts_with("note: the histogram of a") && err.lines().count() == 1,
        "{err}"
    );
    out
}

/// DOCA's sample, with its options as it takes them.
#[test]
fn the_histogram_is_read_as_the_sample_reads_it() {
    let place = Place::with("a", "127.63.1.6");
    let options = "stat hist set a -u msec -w double -n 5 -vid 0 -b0 50 -b1 100 -c -t 0 -r 2";
    let bins = "Bin  0 [      0 -      49]msec: 0\nBin  1 [     50 -     149]msec: 0\n\
                Bin  2 [    150 -     349]msec: 0\nBin  3 [    350 -     749]msec: 0\n\
                Bin  4 [    750 -    ... ]msec: 0\n\n\n";
    let read = "Successfully read 5 adaptive retransmission histogram bins:\n\n";
    let expected = format!(
        "\nHistogram started...\n\nIteration: 1 - {read}{bins}\nIteration: 2 - {read}{bins}"
    );
    assert_eq!(set(&place, options), expected);
    // The same again changes nothing.
    assert_eq!(place.good(options), expected);
    let args = "reg get ADP_RETX_HISTOGRAM_CONFIG -d a -j";
    let config: Value = serde_json::from_str(&place.good(args)).unwrap();
    for (field, value) in [
        ("bin_width_mode", 1),
        ("time_unit", 3),
        ("vhca_id_valid", 1),
        ("clear_on_read", 1),
        ("count_enable", 1),
        ("bin_num", 5),
        ("bin0_width", 50),
        ("bin1_width", 100),
    ] {
        assert_eq!(config["fields"][field], value, "{field}");
    }
    let args = "-j stat hist show a/1 -t 0";
    let facts: Value = serde_json::from_str(&place.good(args)).unwrap();
    // Without options of bins it is only read.
    assert_eq!(
        facts["bins"][1],
        json!({"low_ns": 50_000_000, "high_ns": 150_000_000, "count": 0})
    );
    let same: Value = serde_json::from_str(&place.good("-j stat hist show a/1")).unwrap();
    assert_eq!(facts["bins"], same["bins"]);
    // With one of them, the others have the sample's defaults.
    let args = "-j stat hist set a/1 -n 2 -t 0";
    let facts: Value = serde_json::from_str(&set(&place, args)).unwrap();
    assert_eq!(
        facts["bins"][1],
        json!({"low_ns": 10_000, "high_ns": null, "count": 0})
    );
}

/// Bars for people, a line of JSON for each read.
#[test]
fn the_histogram_is_drawn_and_watched() {
    let place = Place::with("a", "127.31.1.2");
    let bins = "-u msec -w double -n 5 -b0 50 -b1 100 -t 0";
    let hist = |options: &str| place.good(format!("stat hist set a {bins} {options}"));
    let none = "no adaptive-retransmission timeouts\n";
    set(&place, format!("stat hist set a {bins}"));
    let spurious = "spurious retransmissions: 0 of 0 since the device was added\n";
    assert_eq!(
        hist("--bars -r 2"),
        format!("\n{none}\n{spurious}").repeat(2)
    );
    let heading = "a since these bins were set, read";
    assert_eq!(
        hist("--watch -r 2"),
        format!(
            "\n{heading} 1, every 0 s; Ctrl-C ends\n\n{none}\n{spurious}\n{heading} 2, every 0 s; \
             Ctrl-C ends\n\n{none}\n{spurious}"
        )
    );
    let json = hist("--watch -r 3 -j");
    let reads: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let iterations: Vec<_> = reads.iter().map(|read| &read["iteration"]).collect();
    assert_eq!(iterations, [1, 2, 3]);
}

#[test]
fn a_signal_ends_watching_and_is_no_failure() {
    let place = Place::with("a", "127.31.1.3");
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = place
            .command("stat hist show a --watch 3600 -j")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.contains("\"iteration\":1"), "{first}");
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        assert!(lines.next().is_none());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

/// Reads the histogram every second, does something after the first read, and expects that to end it.
fn ends_when(place: &Place, change: impl Words, code: i32, said: &str) {
    let args = "stat hist set a -j -n 2 -t 1 -r 60";
    let mut command = place.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    place.good(change);
    let after = lines.count();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(said), "{error}");
    assert!(after < 59, "{after} more reads");
}

#[test]
fn a_device_that_goes_is_missed() {
    let place = Place::with("a", "127.40.63.2");
    ends_when(&place, "dev del a", 2, "no device \"a\"");
}

/// Counts would be missing, and nobody would know.
#[test]
fn what_others_do_to_the_counts_is_told() {
    let place = Place::with("a", "127.40.63.4");
    for change in ["bin0_width=3", "count_enable=0", "clear_on_read=1"] {
        let set = format!("reg set ADP_RETX_HISTOGRAM_CONFIG {change} -d a");
        ends_when(&place, &set, 1, "another program has changed the bins of a");
    }
}

//! `ferroce stat hist`: the histogram of timeouts.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Place, Words, has};

#[test]
fn a_signal_ends_watching_without_failure() {
    let place = Place::with("a", "127.31.1.3");
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = place
            .command("stat hist show a --watch 3600 -j")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        has(&first, ["\"iteration\":1"]);
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        assert!(lines.next().is_none());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

/// Reads the histogram every second, makes a change after the first read, and expects that to end
/// it.
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
    has(&error, [said]);
    assert!(after < 59, "{after} more reads");
}

#[test]
fn a_removed_device_is_reported() {
    let place = Place::with("a", "127.40.63.2");
    ends_when(&place, "dev del a", 2, "no device \"a\"");
}

/// Without the report, missing counts would go unnoticed.
#[test]
fn changes_of_the_counts_by_others_are_reported() {
    let place = Place::with("a", "127.40.63.4");
    for change in ["bin0_width=3", "count_enable=0", "clear_on_read=1"] {
        let set = format!("reg set ADP_RETX_HISTOGRAM_CONFIG {change} -d a");
        ends_when(&place, &set, 1, "another program has changed the bins of a");
    }
}

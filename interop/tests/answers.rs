//! The answers that correct programs get.

use ferroce_interop::lab::Lab;

#[test]
fn completion_timestamps_are_ordered_and_constant() {
    let lab = Lab::new("wall-clock");
    let compiled = lab.compile("wall_clock");
    let finished = lab.run([compiled.to_str().unwrap()]).finish();
    assert!(finished.status.success(), "{finished}");
    assert_eq!(finished.stdout, "0 backwards, 0 changed\n", "{finished}");
}

#[test]
fn arming_a_completion_queue_announces_waiting_completions() {
    let lab = Lab::new("events");
    let compiled = lab.compile("events");
    let finished = lab.run([compiled.to_str().unwrap()]).finish();
    finished.answers(include_str!("../programs/events.txt"));
}

/// Calls that are newer than the headers of this machine, and regions of memfds.
#[test]
fn newer_calls_work_or_are_refused_as_without_the_feature() {
    let lab = Lab::new("newer-calls");
    let compiled = lab.compile("newer_calls");
    let finished = lab.run([compiled.to_str().unwrap()]).finish();
    finished.answers(include_str!("../programs/newer_calls.txt"));
    for named in [
        "(/memfd:shared (deleted)) has 16384 bytes; offset 4096 and length 16384 reach",
        "; allowed: a DMA-buf that can be mapped, or a memfd",
        "(/memfd:shared (deleted)) cannot be mapped: Permission denied",
    ] {
        assert!(finished.stderr.contains(named), "{named}: {finished}");
    }
    for quiet in ["length is 0", "fd 999"] {
        assert!(!finished.stderr.contains(quiet), "{quiet}: {finished}");
    }
}

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

/// Direct verbs, from the library that programs link against.
const LIBMLX5: &str = "-Wl,--no-as-needed -lmlx5";

#[test]
fn dc_works_through_libmlx5_and_other_direct_verbs_are_refused() {
    let lab = Lab::new("dc-calls");
    let compiled = lab.compile_with("dc_calls", LIBMLX5);
    let finished = lab.run([compiled.to_str().unwrap()]).finish();
    finished.answers(include_str!("../programs/dc_calls.txt"));
    for named in [
        "a DCT needs a shared receive queue; set srq",
        "dc_type is 7; allowed: 1 (MLX5DV_DCTYPE_DCT) or 2",
        "one of a DCI an address handle, DCT number and DC key",
        "a queue pair of type DCT cannot go from Rtr to Rts",
    ] {
        assert!(finished.stderr.contains(named), "{named}: {finished}");
    }
}

#[test]
fn many_initiators_reach_the_target_of_another_process() {
    for (count, link) in [("1", "shm"), ("1000", "shm"), ("1000", "udp")] {
        let lab = Lab::new("dc-crowd");
        let compiled = lab.compile_with("dc_calls", LIBMLX5);
        let program = [compiled.to_str().unwrap(), count];
        let output = lab.run_with(["--link", link], program).success();
        assert_eq!(
            output,
            format!("{count} initiators each way: ok\n"),
            "{link}"
        );
    }
}

/// The answer of `mlx5dv_is_supported` decides which transport UCX takes.
#[test]
fn devices_are_those_of_libmlx5_only_on_request() {
    for (value, expected) in [("1", "is_supported: yes"), ("0", "is_supported: no")] {
        let mut lab = Lab::new("dc-supported");
        lab.set("FERROCE_MLX5DV", value);
        let compiled = lab.compile_with("dc_calls", LIBMLX5);
        let output = lab.run([compiled.to_str().unwrap()]).success();
        assert_eq!(output.lines().next(), Some(expected));
    }
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

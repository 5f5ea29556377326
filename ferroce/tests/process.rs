//! Behaviour that shows only when the program runs as a process: pipes and files.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use crate::common::{Words, has, scratch};

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");
const PROFILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../profiles/fast-recovery.toml"
);

fn feed(args: impl Words, input: &[u8]) -> (Option<i32>, String) {
    let mut child = Command::new(FERROCE)
        .args(args.words())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn a_file_may_be_standard_input() {
    let text = std::fs::read(PROFILE).unwrap();
    let (code, payload) = feed("adp encode /dev/stdin", &text);
    assert_eq!((code, payload.len()), (Some(0), 257));
    for args in [
        "adp check /dev/stdin",
        "adp plot /dev/stdin",
        "adp trace /dev/stdin --timeout 18 --retry-cnt 7",
        "explain timeout --from nccl --profile /dev/stdin",
    ] {
        assert_eq!(feed(args, &text).0, Some(0), "{args:?}");
    }
    let (code, canonical) = feed("adp decode -", payload.as_bytes());
    assert_eq!(code, Some(0));
    assert_eq!(
        feed("adp encode /dev/stdin", canonical.as_bytes()).1,
        payload
    );
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    // Far more than a pipe can hold.
    let profile = "time_base = 4\nqp_total_timeout = false\nretx_total_timeout = 60\n\
        timeout_init_low_bound = 8\n[[timeout_range]]\nrange_low_bound = 8\n\
        timeout_retry_num = 1\ndec_mode = 0\n";
    let path = scratch("endless", profile);
    let mut child = Command::new(FERROCE)
        .args(format!("adp trace {path} --timeout 14 --retry-cnt 7 --max 100000").words())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure_of_its_own() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = Command::new(FERROCE)
        .args(["adp", "encode", PROFILE])
        .stdout(full)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_register_dump_is_not_a_profile_file() {
    let output = Command::new(FERROCE)
        .args(["adp", "check", FERROCE])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    has(&errors, ["is not text"]);
}

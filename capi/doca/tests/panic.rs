//! A panic of a DOCA library under a call of a C program.

use std::env;
use std::process::Command;
use std::ptr::null;

use ferroce_doca::{Code, border};

const ROLE: &str = "FERROCE_TEST_ROLE";

#[ferroce_abi::border(code)]
extern "C" fn doca_broken() -> Code {
    panic!("on purpose");
}

#[ferroce_abi::border(code)]
extern "C" fn doca_broken_with_a_code_of_the_program() -> u32 {
    panic!("on purpose");
}

#[ferroce_abi::border(value)]
extern "C" fn doca_broken_handle() -> usize {
    panic!("on purpose");
}

#[ferroce_abi::border(pointer)]
extern "C" fn doca_broken_pointer() -> *const u8 {
    panic!("on purpose");
}

#[ferroce_abi::border(nothing)]
extern "C" fn doca_broken_setter() {
    panic!("on purpose");
}

#[ferroce_abi::border(code)]
extern "C" fn doca_whole() -> Code {
    Code::Success
}

/// The program: has the library panic, and goes on as if it had not.
fn program() {
    assert_eq!(doca_broken(), Code::Unexpected);
    assert_eq!(
        doca_broken_with_a_code_of_the_program(),
        Code::Unexpected as u32
    );
    assert_eq!(doca_broken_handle(), 0);
    assert_eq!(doca_broken_pointer(), null());
    doca_broken_setter();
    assert_eq!(doca_whole(), Code::Success);
}

#[test]
fn a_panic_is_a_code_and_a_line() {
    if env::var_os(ROLE).is_some() {
        return program();
    }
    let own = env::current_exe().unwrap();
    let output = Command::new(own)
        .args(["--nocapture", "a_panic"])
        .env(ROLE, "program")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let place = "on purpose (capi/doca/tests/panic.rs:";
    let ours = |line: &str| line.starts_with("ferroce: ") && line.contains(place);
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 5, "one for each: {stderr}");
    assert!(lines.into_iter().all(ours), "{stderr}");
}

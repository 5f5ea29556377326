//! Runs the program inside the test.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// Exit code, standard output and standard error.
pub(crate) fn run(args: &[&str]) -> (u8, String, String) {
    let args = ["ferroce"].iter().chain(args).map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = ferroce::run(args, &mut out, &mut err);
    (
        code,
        String::from_utf8(out).unwrap(),
        String::from_utf8(err).unwrap(),
    )
}

/// Standard output of a command that succeeds and has nothing to remark.
#[track_caller]
pub(crate) fn good(args: &[&str]) -> String {
    let (code, out, err) = run(args);
    assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
    out
}

/// The same as JSON, which is one line.
#[track_caller]
pub(crate) fn good_json(args: &[&str]) -> Value {
    let out = good(args);
    assert_eq!(out.lines().count(), 1);
    serde_json::from_str(&out).unwrap()
}

/// Standard error of a command that is refused, and prints nothing else.
#[track_caller]
pub(crate) fn bad(args: &[&str]) -> String {
    let (code, out, err) = run(args);
    assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
    err
}

/// Path of a new file with this text.
pub(crate) fn scratch(name: &str, text: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{name}-{}-{count}.toml", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

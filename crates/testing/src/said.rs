//! The output of a program that has ended.

use std::process::Output;

/// Exit code, standard output and standard error, which must be text.
pub fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
    let (out, err) = (text(output.stdout), text(output.stderr));
    (output.status.code(), out, err)
}

//! Captures as tshark reads them, with verification of checksums.

use std::path::Path;

use ferroce_testing::Words;

use crate::Tool;

const TSHARK: Tool = Tool {
    program: "tshark",
    debian_package: "tshark",
};

/// What tshark prints of a capture.
///
/// # Panics
///
/// As [`Tool::run`].
pub fn run(capture: &Path, args: &[&str]) -> String {
    let file = capture.to_str().expect("a plain path");
    let verify = "-o ip.check_checksum:TRUE -o udp.check_checksum:TRUE".words();
    TSHARK.run(&[&["-n", "-r", file], &verify[..], args].concat(), &[])
}

/// Fields of each packet that passes the filter.
///
/// # Panics
///
/// As [`Tool::run`].
pub fn fields(capture: &Path, filter: &str, fields: impl Words) -> Vec<Vec<String>> {
    // tshark knows some numbers twice, as an item and as the tree around it.
    let mut args = vec!["-Y", filter, "-T", "fields", "-E", "occurrence=l"];
    args.extend(fields.words().into_iter().flat_map(|field| ["-e", field]));
    let output = run(capture, &args);
    let row = |line: &str| line.split('\t').map(str::to_owned).collect();
    output.lines().map(row).collect()
}

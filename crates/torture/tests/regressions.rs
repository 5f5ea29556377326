//! Scripts of what torture once found, each of which must hold now.

use std::fs;
use std::path::Path;

use ferroce_torture::{Script, play};

#[test]
fn scripts_of_earlier_findings_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let script: Script = fs::read_to_string(&file).unwrap().parse().unwrap();
        let finding = play(&script).finding;
        assert_eq!(finding, None, "{}", file.display());
    }
}

//! Each patch in `mutations/` still fits the code that it puts a bug into.

use std::fs;
use std::path::Path;

/// The lines of each part of a patch that it finds in the file: those that stay, and those that it takes out.
fn before(patch: &str) -> Vec<String> {
    let parts = patch.split("\n@@ ").skip(1);
    let of_part = |part: &str| {
        let lines = part.lines().skip(1).filter(|line| !line.starts_with('+'));
        lines
            .map(|line| format!("{}\n", line.get(1..).unwrap_or_default()))
            .collect()
    };
    parts.map(of_part).collect()
}

#[test]
fn each_mutation_fits_the_code() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in fs::read_dir(here.join("mutations")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "patch") {
            continue;
        }
        let (patch, name) = (fs::read_to_string(&path).unwrap(), path.display());
        for of_file in patch.split("diff --git ").skip(1) {
            let file = of_file.lines().find_map(|line| line.strip_prefix("--- a/"));
            let text = fs::read_to_string(here.join("../..").join(file.unwrap())).unwrap();
            for part in before(of_file) {
                assert!(
                    text.contains(&part),
                    "{name} does not fit any more:\n{part}"
                );
            }
        }
        count += 1;
    }
    assert!(count >= 30, "{count} mutations");
}

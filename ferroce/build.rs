//! Lists the pages of the manual and their pictures, which `ferroce install` brings along.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=../docs");
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    let mut found = Vec::new();
    for directory in ["docs", "docs/design", "docs/examples"] {
        pages(&root.join(directory), &mut found);
    }
    found.sort();
    let mut list = "&[\n".to_owned();
    for path in found {
        let name = path.strip_prefix(&root).expect("it is below the root");
        writeln!(list, "({name:?}, include_bytes!({path:?})),").expect("a string takes all");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("manual.rs"), list + "]\n").expect("cargo's directory can be written");
}

/// The pages in a directory, and the pictures that they show.
fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(directory).expect("a directory of the project");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    found.extend(paths.filter(|path| path.is_file() && !path.ends_with("card.txt")));
}

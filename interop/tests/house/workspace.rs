//! The files of the workspace, and what cargo says about its packages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// The directory of the workspace.
pub(crate) fn root() -> PathBuf {
    let interop = Path::new(env!("CARGO_MANIFEST_DIR"));
    interop
        .parent()
        .expect("interop lies in the workspace")
        .to_owned()
}

/// The content of a file, by its path from the root.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file in TOML, by its path from the root.
pub(crate) fn toml(path: &str) -> toml::Table {
    let parsed = read(path).parse();
    parsed.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The workspace's own packages.
pub(crate) fn own_packages() -> Vec<Value> {
    packages(&["--no-deps"])
}

/// The packages that `cargo metadata` lists.
pub(crate) fn packages(arguments: &[&str]) -> Vec<Value> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    items(&metadata, "packages").to_vec()
}

/// The text under a key, or nothing.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The list under a key, or nothing.
pub(crate) fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// A source file of the project.
pub(crate) struct Source {
    /// From the root.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

/// The sources in the directories, by path.
pub(crate) fn sources_under(directories: &[&str]) -> Vec<Source> {
    let root = root();
    let mut pending: Vec<_> = directories.iter().map(|name| root.join(name)).collect();
    let mut sources = Vec::new();
    while let Some(directory) = pending.pop() {
        let entries = fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for entry in entries {
            let path = entry.expect("a directory can be listed").path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    pending.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source is UTF-8");
                let path = path.strip_prefix(&root).expect("found under the root");
                sources.push(Source {
                    path: path.display().to_string(),
                    text,
                });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

/// The sources of the whole project.
pub(crate) fn all_sources() -> Vec<Source> {
    sources_under(&[
        "crates", "capi", "ferroce", "benches", "interop", "fuzz", "models",
    ])
}

/// Fails with the violations of a rule, if there are any.
pub(crate) fn report(rule: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{rule}:\n{}", violations.join("\n"));
}

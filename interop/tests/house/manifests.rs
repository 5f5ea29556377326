//! Facts of the manifests, and the files that repeat them.

use std::fs;
use std::path::Path;

use crate::workspace::{own_packages, read, report, text, toml};

#[test]
fn every_crate_takes_the_workspace_lints() {
    let mut violations = Vec::new();
    for package in &own_packages() {
        let path = text(package, "manifest_path");
        let manifest: toml::Table = fs::read_to_string(path)
            .expect("cargo names manifests that exist")
            .parse()
            .expect("cargo has parsed it before");
        let lints = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        if lints.and_then(toml::Value::as_bool) != Some(true) {
            violations.push(format!("{path} lacks [lints] workspace = true"));
        }
    }
    report("lints", &violations);
}

/// Cargo compiles each file of `tests` as a program of its own, unless the manifest lists them. Then a file that
/// neither the manifest nor one of its programs names is never run.
#[test]
fn all_files_of_tests_are_run() {
    let mut violations = Vec::new();
    for package in &own_packages() {
        let path = Path::new(text(package, "manifest_path"));
        let manifest: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
        if manifest["package"].get("autotests").is_none() {
            continue;
        }
        let tests = path.with_file_name("tests");
        let programs = manifest["test"].as_array().unwrap().iter();
        let programs: Vec<_> = programs.map(|it| it["name"].as_str().unwrap()).collect();
        let texts = programs
            .iter()
            .map(|it| tests.join(it).with_extension("rs"));
        let texts: Vec<_> = texts.filter_map(|it| fs::read_to_string(it).ok()).collect();
        for entry in fs::read_dir(&tests).unwrap() {
            let file = entry.unwrap().path();
            let Some(name) = file
                .file_name()
                .and_then(|it| it.to_str()?.strip_suffix(".rs"))
            else {
                continue;
            };
            let line = format!("mod {name};");
            let is_module = texts.iter().any(|it| it.lines().any(|it| it == line));
            if !is_module && !programs.contains(&name) {
                violations.push(file.display().to_string());
            }
        }
    }
    report("files of tests that are not run", &violations);
}

#[test]
fn licences_and_version_are_those_of_the_manifest() {
    assert!(read("LICENSE-MIT").contains("The Ferroce authors"));
    assert!(read("LICENSE-APACHE").contains("Version 2.0, January 2004"));
    let manifest = toml("Cargo.toml");
    let package = &manifest["workspace"]["package"];
    assert_eq!(package["license"].as_str(), Some("MIT OR Apache-2.0"));
    assert_eq!(toml("clippy.toml")["msrv"], package["rust-version"]);
}

/// Files that install a release name the version that is being prepared.
#[test]
fn packages_and_recipes_have_the_version_of_the_manifest() {
    let manifest = toml("Cargo.toml");
    let version = &manifest["workspace"]["package"]["version"];
    let version = version.as_str().expect("a version");
    let mut violations = Vec::new();
    for (path, line) in [
        ("action.yml", format!("    default: {version}")),
        (
            "packaging/devcontainer/devcontainer-feature.json",
            format!("\"default\": \"{version}\""),
        ),
        (
            "packaging/devcontainer/install.sh",
            format!("version=${{VERSION:-{version}}}"),
        ),
        ("CITATION.cff", format!("version: {version}")),
        ("docs/ci.md", format!("ferroce_{version}_amd64.deb")),
        ("docs/ci.md", format!("uses: ferroce/ferroce@v{version}")),
    ] {
        if !read(path).contains(&line) {
            violations.push(format!("{path}: {line}"));
        }
    }
    report("versions that are not the manifest's", &violations);
}

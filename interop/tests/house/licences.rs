//! The licences of dependencies are among those that deny.toml allows.

use std::collections::BTreeSet;
use std::process::Command;

use crate::workspace::{packages, report, text, toml};

/// Whether an SPDX expression can be met with the allowed licences. Reads the old `/` as OR.
fn is_covered(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let covered = any_of(&mut words, allowed);
    covered && words.peek().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    let mut covered = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        covered |= all_of(words, allowed);
    }
    covered
}

fn all_of(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    let mut covered = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        covered &= one(words, allowed);
    }
    covered
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let covered = any_of(words, allowed);
        return words.next() == Some(")") && covered;
    }
    let Some(licence) = words.next() else {
        return false;
    };
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next().unwrap_or_default();
        return allowed.contains(format!("{licence} WITH {exception}").as_str());
    }
    allowed.contains(licence)
}

#[test]
fn licence_expressions_are_read_as_spdx_defines_them() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]);
    for good in [
        "MIT",
        "MIT/GPL-3.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Apache-2.0",
        "GPL-3.0 AND BSL-1.0 OR MIT",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_covered(good, &allowed), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MIT AND (GPL-3.0 OR BSL-1.0)",
        "Apache-2.0 WITH GCC-exception-3.1",
        "(MIT",
        "MIT MIT",
    ] {
        assert!(!is_covered(bad, &allowed), "{bad}");
    }
}

fn host() -> String {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .expect("rustc runs");
    let text = String::from_utf8(output.stdout).expect("rustc prints UTF-8");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

#[test]
fn every_dependency_has_a_licence_that_deny_toml_allows() {
    let deny = toml("deny.toml");
    let allow = deny["licenses"]["allow"].as_array().expect("a list");
    let allowed: BTreeSet<_> = allow.iter().filter_map(toml::Value::as_str).collect();
    let mut violations = Vec::new();
    for package in &packages(&["--filter-platform", &host()]) {
        let licence = text(package, "license");
        if !is_covered(licence, &allowed) {
            let (name, version) = (text(package, "name"), text(package, "version"));
            violations.push(format!("{name} {version}: {licence:?}"));
        }
    }
    report("licences that deny.toml does not allow", &violations);
}

//! What the pages say about the code, and the targets of their links.

use std::fs;

use proc_macro2::TokenTree;

use crate::syntax::{each_token, tokens};
use crate::workspace::{Source, all_sources, read, report, root};

#[test]
fn every_environment_variable_is_in_the_manual() {
    let page = read("docs/environment.md");
    let mut violations = Vec::new();
    let is_test = |source: &Source| {
        source.path.contains("/tests/") || source.path.starts_with("crates/testing/")
    };
    for source in all_sources().iter().filter(|source| !is_test(source)) {
        each_token(tokens(&source.text), &mut |tokens, index| {
            let TokenTree::Literal(literal) = &tokens[index] else {
                return;
            };
            let literal = literal.to_string();
            // Whole strings only, as for a variable that is read or set.
            let text = literal.trim_start_matches('c').trim_matches('"');
            if is_variable(text) && !page.contains(&format!("`{text}`")) {
                violations.push(format!("{}: {text} is not there", source.path));
            }
        });
    }
    report("docs/environment.md lists every variable", &violations);
}

fn is_variable(text: &str) -> bool {
    let is_name = |rest: &str| rest.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let rest = text.strip_prefix("FERROCE_");
    rest.is_some_and(|rest| !rest.is_empty() && is_name(rest))
}

#[test]
fn the_changelog_has_room_for_what_comes_next() {
    let changelog = read("CHANGELOG.md");
    assert!(changelog.lines().any(|line| line == "## [Unreleased]"));
}

#[test]
fn the_readme_names_the_commands_and_ci_runs_the_same() {
    let readme = read("README.md");
    for command in ["./test", "cargo run --release -- demo"] {
        assert!(
            readme.lines().any(|line| line.trim() == command),
            "README.md gives `{command}` no line of its own"
        );
    }
    let ci = read(".ci/run");
    let last = ci.lines().rfind(|line| !line.trim().is_empty());
    assert_eq!(last, Some("exec ./test"));
}

/// Targets of the links in a Markdown text.
fn links(markdown: &str) -> impl Iterator<Item = &str> {
    markdown
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#', ' ']).next())
        .filter(|target| !target.is_empty() && !target.contains("://"))
}

#[test]
fn links_between_the_pages_lead_somewhere() {
    let root = root();
    let pages = ["", "docs", "docs/design", "interop", "benches", "profiles"]
        .iter()
        .filter_map(|directory| fs::read_dir(root.join(directory)).ok())
        .flat_map(|entries| entries.map(|entry| entry.expect("a directory can be listed").path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut violations = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page is UTF-8");
        let directory = page.parent().expect("a page lies in a directory");
        for target in links(&text) {
            if !directory.join(target).exists() {
                violations.push(format!("{}: {target}", page.display()));
            }
        }
    }
    report("dead links", &violations);
}

/// The source files that a text names between backticks, from the root or from `crates/`.
fn named_sources(markdown: &str) -> impl Iterator<Item = &str> {
    let is_path = |text: &&str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        text.ends_with(".rs") && text.contains("/src/") && text.chars().all(is_part)
    };
    markdown.split('`').skip(1).step_by(2).filter(is_path)
}

#[test]
fn source_files_that_pages_name_exist() {
    let root = root();
    let design = fs::read_dir(root.join("docs/design")).expect("the design pages are there");
    let design = design.map(|entry| entry.expect("a directory can be listed").path());
    let others = ["ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root.join(page));
    let (mut violations, mut named) = (Vec::new(), 0);
    for page in design.chain(others) {
        let text = fs::read_to_string(&page).expect("a page is UTF-8");
        for path in named_sources(&text) {
            named += 1;
            if !root.join(path).exists() && !root.join("crates").join(path).exists() {
                violations.push(format!("{}: {path}", page.display()));
            }
        }
    }
    report("files that are not there", &violations);
    assert!(named > 30, "ARCHITECTURE.md alone names more than {named}");
}

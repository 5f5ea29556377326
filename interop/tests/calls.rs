//! The page of calls names every function of the headers and of the libraries once, and lists as
//! refused what the libraries refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const HEADERS: [(&str, &[&str]); 4] = [
    ("/usr/include/infiniband/verbs.h", &["ibv_"]),
    ("/usr/include/rdma/rdma_cma.h", &["rdma_"]),
    ("/usr/include/rdma/rdma_verbs.h", &["rdma_"]),
    ("/usr/include/rdma/rsocket.h", &["r"]),
];

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; apt-get install libibverbs-dev librdmacm-dev",
            path.display()
        )
    })
}

fn project(path: &str) -> String {
    read(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path))
}

/// Each call of the page's first tables, with its answer there.
fn page() -> BTreeMap<String, String> {
    let text = project("docs/calls.md");
    let mut calls = BTreeMap::new();
    for row in text
        .lines()
        .take_while(|line| *line != "## Calls since release 45")
        .filter(|line| line.starts_with("| ") && line.contains('`'))
    {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, _, names, answer, _] = cells[..] else {
            panic!("a row has three cells: {row}");
        };
        for name in names.split(['`', ' ']).filter(|name| !name.is_empty()) {
            let before = calls.insert(name.to_owned(), answer.to_owned());
            assert!(before.is_none(), "{name} stands there twice");
        }
    }
    calls
}

/// The functions that a header declares at the beginning of a line, or on the line after their
/// type.
fn declared(header: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in header.lines() {
        let is_code = line.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let Some((before, _)) = line.split_once('(').filter(|_| is_code) else {
            continue;
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = before.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let is_call = prefixes.iter().any(|prefix| name.starts_with(prefix));
        if is_call {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn every_call_of_the_headers_is_on_the_page() {
    let page = page();
    let mut missing = BTreeSet::new();
    for (path, prefixes) in HEADERS {
        let calls = declared(&read(path), prefixes);
        assert!(calls.len() > 10, "{path}: {calls:?}");
        missing.extend(calls.into_iter().filter(|name| !page.contains_key(name)));
    }
    assert!(missing.is_empty(), "docs/calls.md lacks {missing:?}");
}

#[test]
fn the_page_says_of_each_symbol_what_the_library_does() {
    let page = page();
    let mut compared = 0;
    for line in project("capi/libibverbs/symbols.txt").lines() {
        let [name, nodes, kind] = line.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        // Only the public ones; a few have a leading underscore, and headers call them without it.
        if !nodes.starts_with("1.") || line.starts_with('#') {
            continue;
        }
        let name = name.trim_start_matches('_');
        let answer = page.get(name);
        let answer = answer.unwrap_or_else(|| panic!("docs/calls.md lacks {name}"));
        let is_refused = matches!(kind, "eopnotsupp" | "null" | "minus_one");
        assert_eq!(
            answer.starts_with("refused"),
            is_refused,
            "{name}: {answer}, {kind}"
        );
        compared += 1;
    }
    assert!(compared > 90, "{compared} symbols");
}

#[test]
fn the_page_lists_the_direct_verbs_that_work() {
    let text = project("docs/calls.md");
    let (_, section) = text.split_once("## Direct verbs\n").expect("a section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let listed = section.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("| `")?.split_once('`')?;
        Some(name.to_owned())
    });
    let listed: BTreeSet<_> = listed.collect();
    let symbols = project("capi/libmlx5/symbols.txt");
    let working = symbols.lines().filter_map(|line| {
        let [name, _, answer] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let is_here = matches!(answer, "status" | "null_pointer" | "zero");
        is_here.then(|| name.trim_start_matches('_').to_owned())
    });
    assert_eq!(listed, working.collect());
}

//! Promises of the pages have tests.

use std::collections::BTreeSet;
use std::path::Path;

use proc_macro2::TokenTree;

use crate::syntax::{each_token, is_mark, is_word, tokens};
use crate::workspace::{Source, all_sources, read, report};

/// Names of the tests of a source: functions with the attribute, and rows of a macro that makes
/// them.
fn tests_of(source: &Source) -> BTreeSet<String> {
    let (mut tests, mut rows, mut by_macro) = (BTreeSet::new(), BTreeSet::new(), false);
    each_token(tokens(&source.text), &mut |tokens, index| {
        let is_attribute = |at: usize| is_mark(tokens.get(at), '#');
        if let TokenTree::Ident(name) = &tokens[index]
            && is_mark(tokens.get(index + 1), ':')
        {
            rows.insert(name.to_string());
        }
        let is_test = matches!(tokens.get(index + 1), Some(TokenTree::Group(group))
            if is_attribute(index) && group.stream().to_string() == "test");
        if !is_test {
            return;
        }
        let mut at = index;
        while is_attribute(at) {
            at += 2;
        }
        match tokens.get(at + 1) {
            Some(TokenTree::Ident(name)) if is_word(tokens.get(at), "fn") => {
                tests.insert(name.to_string());
            }
            after => by_macro |= is_mark(after, '$'),
        }
    });
    if by_macro {
        tests.append(&mut rows);
    }
    tests
}

/// The identifiers in a piece of a page that are written as code, each with the target of its link.
fn named_tests(markdown: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let pieces: Vec<&str> = markdown.split('`').collect();
    let count = (pieces.len() - 1) / 2;
    (0..count).filter_map(move |n| {
        let (name, rest) = (pieces[2 * n + 1], pieces[2 * n + 2]);
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let target = rest
            .strip_prefix("](")
            .and_then(|rest| rest.split(')').next());
        (name.contains('_') && name.chars().all(is_name)).then_some((name, target))
    })
}

/// Pages on which the last cell of each row of a table names tests, or says "none" and why.
const PAGES: &[&str] = &["docs/attacks.md", "docs/security.md", "docs/sources.md"];

/// Each row of these pages names tests, and each named test exists.
#[test]
fn promises_of_pages_have_tests() {
    let sources = all_sources();
    let tests: Vec<_> = sources.iter().map(|it| (&it.path, tests_of(it))).collect();
    let is_there = |name: &str, target: Option<&str>| {
        let path = target.map(|target| target.trim_start_matches("../"));
        let mut tests = tests
            .iter()
            .filter(|(source, _)| path.is_none_or(|path| *source == path));
        tests.any(|(_, tests)| tests.contains(name))
    };
    for page in PAGES {
        check(page, &is_there);
    }
}

fn check(path: &str, is_there: &impl Fn(&str, Option<&str>) -> bool) {
    let page = read(path);
    let lines: Vec<&str> = page.lines().collect();
    let is_row = |line: &str| line.starts_with("| ");
    let rows = lines.windows(2).map(|pair| (pair[0], pair[1]));
    let rows = rows.filter(|(row, next)| is_row(row) && !next.starts_with("|---"));
    let mut named: Vec<_> = named_tests(&page)
        .filter(|(_, target)| target.is_some_and(is_source))
        .collect();
    let mut violations = Vec::new();
    for (row, _) in rows {
        let cell = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .unwrap_or_default();
        let of_row: Vec<_> = named_tests(cell).collect();
        if of_row.is_empty() && !cell.starts_with("none: ") {
            violations.push(format!("a row without a test: {row}"));
        }
        named.extend(of_row);
    }
    let missing = named
        .iter()
        .filter(|(name, target)| !is_there(name, *target));
    violations.extend(missing.map(|(name, _)| format!("no test is called {name}")));
    report(path, &violations);
}

fn is_source(target: &str) -> bool {
    Path::new(target).extension().is_some_and(|it| it == "rs")
}

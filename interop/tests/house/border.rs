//! The boundary between C programs and the libraries.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenTree};

use crate::syntax::{each_token, is_word, line, tokens};
use crate::workspace::{Source, report, sources_under};

/// Functions of capi that have C's calling convention and no `#[border]`, and why.
const NO_BORDER: &[(&str, &str, &str)] = &[
    ("libdoca_common/src/log.rs", "doca_log", "a jump into C"),
    ("libibverbs/src/lib.rs", "eopnotsupp", "a constant"),
    ("libibverbs/src/lib.rs", "null", "no_object has it"),
    ("libibverbs/src/lib.rs", "minus_one", "no_object has it"),
    ("libibverbs/src/lib.rs", "zero", "a constant"),
    (
        "librdmacm/src/facade.rs",
        "find_targets",
        "the loader calls it",
    ),
    ("librdmacm/src/facade.rs", "null_pointer", "sets errno"),
    ("librdmacm/src/facade.rs", "zero", "sets errno"),
    ("librdmacm/src/lib.rs", "error", "sets errno"),
    ("librdmacm/src/lib.rs", "text", "a constant"),
    ("libmlx5/src/lib.rs", "status", "sets errno"),
    ("libmlx5/src/lib.rs", "eopnotsupp", "sets errno"),
    ("libmlx5/src/lib.rs", "no_object", "sets errno"),
    ("libmlx5/src/lib.rs", "minus_one", "sets errno"),
    ("libmlx5/src/lib.rs", "nothing", "a constant"),
    ("sysfs/src/parameter.rs", "begin", "the loader calls it"),
    ("sysfs/src/parameter.rs", "end", "exit calls it"),
];

/// Every function that a C program calls has `#[border]`, or leaves the library to wait. A call
/// that a preloaded library forwards is `extern "C-unwind"`, and is cancelled in the C library.
#[test]
fn no_c_entry_point_lets_a_panic_or_a_cancellation_pass() {
    let mut violations = Vec::new();
    let mut seen = 0;
    let mut excused = BTreeSet::new();
    let sources = sources_under(&["capi"]);
    let is_library = |source: &&Source| source.path.contains("/src/");
    for source in sources.iter().filter(is_library) {
        each_token(tokens(&source.text), &mut |tokens, index| {
            let Some(name) = called_by_c(&tokens[index..]) else {
                return;
            };
            seen += 1;
            if has_border(&tokens[..index]) {
                return;
            }
            let is_here = |(path, known, _): &(&str, &str, &str)| {
                source.path.ends_with(path) && *known == name
            };
            match NO_BORDER.iter().position(is_here) {
                Some(index) => drop(excused.insert(index)),
                None => violations.push(format!(
                    "{}:{}: no #[border]",
                    source.path,
                    line(&tokens[index])
                )),
            }
        });
    }
    for (index, (path, name, _)) in NO_BORDER.iter().enumerate() {
        if !excused.contains(&index) {
            violations.push(format!("{path} needs no exception for {name} any more"));
        }
    }
    assert!(seen > 200, "{seen} functions");
    report("docs/design/the-programs-process.md", &violations);
}

/// The name of the function with C's calling convention that begins here.
fn called_by_c(tokens: &[TokenTree]) -> Option<String> {
    let [external, TokenTree::Literal(convention), function, name, ..] = tokens else {
        return None;
    };
    let is_function = is_word(Some(external), "extern")
        && convention.to_string() == "\"C\""
        && is_word(Some(function), "fn");
    match name {
        TokenTree::Ident(name) if is_function => Some(name.to_string()),
        // A macro's variable; otherwise this is the type of a function.
        TokenTree::Punct(_) if is_function => Some(String::from("$")),
        _ => None,
    }
}

/// Whether the attributes and the qualifiers at the end are a function's with `#[border]`.
fn has_border(before: &[TokenTree]) -> bool {
    let attributes = before.iter().rev().take_while(|token| match token {
        TokenTree::Ident(word) => ["pub", "unsafe", "const"].iter().any(|it| word == it),
        TokenTree::Group(group) => group.delimiter() != Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == '#',
        TokenTree::Literal(_) => false,
    });
    let mut words = attributes.flat_map(|token| match token {
        TokenTree::Group(group) => group.stream().into_iter().collect(),
        _ => Vec::new(),
    });
    words.any(|word| is_word(Some(&word), "border"))
}

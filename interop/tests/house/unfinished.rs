//! Unfinished code in sources, and the modules' descriptions.

use proc_macro2::TokenTree;

use crate::syntax::{each_token, is_mark, line, tokens};
use crate::workspace::{all_sources, report};

/// A file of this length should be split, or reviewed.
const LONG_FILE: usize = 1000;

/// Macros that stand for code to be written.
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];

#[test]
fn nothing_is_left_unfinished() {
    let mut violations = Vec::new();
    for source in all_sources() {
        each_token(tokens(&source.text), &mut |tokens, index| {
            let place = || format!("{}:{}", source.path, line(&tokens[index]));
            let is_macro = is_mark(tokens.get(index + 1), '!');
            if let TokenTree::Ident(name) = &tokens[index]
                && is_macro
                && UNFINISHED.iter().any(|it| name == it)
            {
                violations.push(format!("{}: {name}!", place()));
            }
            if let TokenTree::Group(group) = &tokens[index]
                && index > 0
                && is_mark(tokens.get(index - 1), '#')
                && group.stream().to_string() == "ignore"
            {
                violations.push(format!("{}: an ignored test without a reason", place()));
            }
        });
        let lines = source.text.lines().count();
        if lines > LONG_FILE {
            println!(
                "{} has {lines} lines; look whether it is two modules",
                source.path
            );
        }
    }
    report("unfinished", &violations);
}

/// In the first line of the file.
#[test]
fn modules_say_what_they_contain() {
    let sources = all_sources();
    let modules = sources
        .iter()
        .filter(|source| source.path.contains("/src/"));
    let silent = modules.filter(|module| !module.text.starts_with("//! "));
    let silent: Vec<_> = silent.map(|module| module.path.clone()).collect();
    report("modules without a sentence", &silent);
}

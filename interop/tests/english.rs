//! What users read is plain English: constructs that had to be mended once do not come back.

use std::fs;
use std::path::{Path, PathBuf};

use ferroce_interop::lab::Lab;

/// Words and phrases, and what to write in their place. Lower case; the first letter may be a capital.
const SLIPS: &[(&str, &str)] = &[
    ("allowed is", "must be"),
    ("allowed are", "must be one of, expected one of"),
    ("at first sight", "nominal"),
    ("at the head", "at the top"),
    ("at will", "on demand"),
    ("cannot be helped", "is not supported"),
    ("comes twice", "given more than once"),
    ("for ever", "forever, without end"),
    ("for good", "permanently"),
    ("go by its settings", "use its settings"),
    ("goes by its settings", "uses its settings"),
    ("has got", "has received"),
    ("have got", "have received"),
    ("he", "the user, the program"),
    ("him", "it, them"),
    ("his", "the user's, its"),
    ("is no part", "unknown"),
    ("is nothing to show", "unexpected"),
    ("knocks", "retransmits"),
    ("let it go on", "resume it (SIGCONT)"),
    ("nobody", "no program, no thread"),
    ("none of theirs", "not theirs"),
    ("outlived", "survived"),
    ("somebody", "another program, a thread"),
    ("spoil", "impair, degrade"),
    ("spoilt", "impaired, degraded"),
    ("stranger", "outsider"),
    ("strangers", "outsiders"),
    ("the house", "the project"),
    ("whoever", "any program that"),
    ("with commas", "comma-separated"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The slips in a line of text, each with what to write.
fn slips(line: &str) -> Vec<String> {
    let line = line.to_lowercase();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let stands_alone = |slip: &str| {
        line.match_indices(slip).any(|(at, _)| {
            !line[..at].ends_with(is_part) && !line[at + slip.len()..].starts_with(is_part)
        })
    };
    let found = SLIPS.iter().filter(|(slip, _)| stands_alone(slip));
    let found = found.map(|(slip, better)| format!("{slip:?}; write {better}"));
    found.collect()
}

fn check(what: &str, lines: impl IntoIterator<Item = (String, String)>) {
    let found = lines.into_iter().flat_map(|(place, line)| {
        let slips = slips(&line);
        slips
            .into_iter()
            .map(move |slip| format!("{place}: {slip}"))
    });
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// The numbered lines of the files of an ending in a directory, and in those below it.
fn lines(directory: &Path, ending: &str) -> Vec<(String, String)> {
    let mut numbered = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory of the project") {
        let path = entry.expect("a directory can be listed").path();
        if path.is_dir() {
            numbered.extend(lines(&path, ending));
        } else if path.extension().is_some_and(|it| it == ending) {
            let text = fs::read_to_string(&path).expect("a text is UTF-8");
            let lines = text.lines().enumerate();
            let place = |index| format!("{}:{}", path.display(), index + 1);
            numbered.extend(lines.map(|(index, line)| (place(index), line.to_owned())));
        }
    }
    numbered
}

#[test]
fn the_manual_is_plain() {
    let mut manual = lines(&root().join("docs"), "md");
    // Decisions are for those who work on it.
    manual.retain(|(place, _)| !place.contains("/design/"));
    for page in ["README.md", "CHANGELOG.md", "SECURITY.md"] {
        let text = fs::read_to_string(root().join(page)).expect("a page of the project");
        manual.extend(text.lines().map(|line| (page.to_owned(), line.to_owned())));
    }
    check("the manual", manual);
}

#[test]
fn messages_are_plain() {
    for directory in ["ferroce/src", "crates", "capi"] {
        let mut code = lines(&root().join(directory), "rs");
        code.retain(|(place, line)| {
            let is_comment = line.trim_start().starts_with("//");
            let is_shown = place.contains("/src/") && !place.contains("test");
            // Identifiers may say what they like.
            is_shown && !is_comment && line.contains(['"', '\\'])
        });
        check("messages", code);
    }
}

#[test]
fn help_is_plain() {
    let lab = Lab::new("english");
    check(
        "help",
        lines(&lab.path().join("prefix/share/man/man1"), "1"),
    );
}

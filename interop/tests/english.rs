//! The texts of the project are plain English: constructs that were corrected once do not come
//! back.

use std::fs;
use std::path::{Path, PathBuf};

use ferroce_interop::lab::Lab;

/// Words and phrases, and what to write in their place. Lower case; the first letter may be a capital.
const SLIPS: &[(&str, &str)] = &[
    ("allowed are", "must be one of, expected one of"),
    ("allowed is", "must be"),
    ("at first sight", "nominal"),
    ("at the head", "at the top"),
    ("at will", "on demand"),
    ("cannot be helped", "is not supported"),
    ("comes twice", "given more than once"),
    ("does not do it", "what it lacks"),
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
    ("opens nothing", "is not valid"),
    ("outlived", "survived"),
    ("pleases", "suits"),
    ("since the device exists", "since the device was added"),
    ("somebody", "another program, a thread"),
    ("spoil", "impair, degrade"),
    ("spoilt", "impaired, degraded"),
    ("stranger", "outsider"),
    ("strangers", "outsiders"),
    ("surely", "certainly"),
    ("the house", "the project"),
    ("this many looks", "N tables"),
    ("who opens", "if opened"),
    ("whoever", "any program that"),
    ("with commas", "comma-separated"),
];

/// The same for pages and for the fronts of crates and modules, which are read as text.
const IN_TEXT: &[(&str, &str)] = &[
    ("also.", "as well"),
    ("amid", "during, among"),
    ("anybody", "anyone, any program"),
    ("became of", "the result of"),
    ("becomes of", "the result of"),
    ("but for", "except for"),
    ("came of", "the result of"),
    ("come round", "wrap"),
    ("comes round", "wraps"),
    ("everybody", "everyone, all"),
    ("for want of", "for lack of"),
    ("go by", "use, follow"),
    ("goes by", "uses, follows"),
    ("heed", "react to"),
    ("heeds", "reacts to"),
    ("held against", "compared with"),
    ("in silence", "silently"),
    ("in the place of", "instead of"),
    ("in the words of", "with the names of"),
    ("in vain", "unnecessarily"),
    ("lay out", "install, provide"),
    ("lays out", "installs, provides"),
    ("lie in", "are in"),
    ("lies in", "is in"),
    ("lived through", "simulated, survived"),
    ("mended", "repaired, fixed"),
    ("some hundred", "a few hundred"),
    ("some thousand", "a few thousand"),
    ("takes the place of", "replaces"),
    ("tell of", "report"),
    ("tells of", "reports"),
    ("what what", "two clauses"),
];

/// The same for comments in code.
const IN_COMMENTS: &[(&str, &str)] = &[
    ("heeded", "handled, reacted to"),
    ("so many", "this number of, at most `max`"),
    ("those who", "threads that, programs that"),
    ("whom", "which peer, which program"),
];

/// Lines of comments inside the crates that have a slip, and names of functions that are questions or
/// longer than [`NAME_MAX`]. Both may only fall; comments of public items have none.
const COMMENTS_LEFT: usize = 0;
const NAMES_LEFT: usize = 0;
const NAME_MAX: usize = 60;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The slips in a line of text, each with what to write.
fn slips(line: &str, known: &[&[(&str, &str)]]) -> Vec<String> {
    let line = line.to_lowercase();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let stands_alone = |slip: &str| {
        line.match_indices(slip).any(|(at, _)| {
            !line[..at].ends_with(is_part) && !line[at + slip.len()..].starts_with(is_part)
        })
    };
    let found = known.concat();
    let found = found.iter().filter(|(slip, _)| stands_alone(slip));
    let found = found.map(|(slip, better)| format!("{slip:?}; write {better}"));
    found.collect()
}

/// Finds "is no" where "is not a" is meant.
///
/// "There is no", "is no longer", "is no faster" and a sentence that ends in "is no" are as they
/// should be. A line that begins with "is no" may continue "there".
fn is_no(line: &str) -> bool {
    let line = line.to_lowercase();
    line.match_indices(" is no ").any(|(at, found)| {
        let before = line[..at].rsplit(' ').next().unwrap_or_default();
        let after = line[at + found.len()..].split(' ').next();
        let after = after.unwrap_or_default();
        let is_word = |word: &str| word.starts_with(|c: char| c.is_alphabetic());
        // Messages name their subject when they are printed.
        let is_subject = (is_word(before) && !before.ends_with("there")) || before.ends_with('}');
        let compares = after.ends_with("er") || ["more", "less"].contains(&after);
        is_subject && is_word(after) && !compares
    })
}

#[test]
fn is_no_finds_what_is_not_and_nothing_else() {
    assert!(is_no("it is no vulnerability"));
    assert!(is_no("a name that is no option is refused"));
    assert!(is_no("{name:?} is no key of it"));
    for fine in [
        "there is no daemon",
        "it is no longer held",
        "it is no faster alone",
        "the answer is no |",
        "//! is no room",
        "that is no more than a guess",
    ] {
        assert!(!is_no(fine), "{fine}");
    }
}

fn check(what: &str, known: &[&[(&str, &str)]], lines: impl IntoIterator<Item = (String, String)>) {
    let found = lines.into_iter().flat_map(|(place, line)| {
        let mut slips = slips(&line, known);
        if what != "the manual" && is_no(&line) {
            slips.push("\"is no\"; write is not a, or unknown".to_owned());
        }
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

/// The text of pages, without blocks of what a program prints or a user types.
fn without_blocks(page: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut is_in_block = false;
    let mut text = page;
    text.retain(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_in_block ^= is_fence;
        !is_fence && !is_in_block
    });
    text
}

#[test]
fn the_manual_is_plain() {
    let mut manual = lines(&root().join("docs"), "md");
    for page in [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "README.md",
        "SECURITY.md",
    ] {
        let text = fs::read_to_string(root().join(page)).expect("a page of the project");
        manual.extend(text.lines().map(|line| (page.to_owned(), line.to_owned())));
    }
    // The user of that name.
    manual.retain(|(_, line)| !line.contains("`nobody`"));
    check("the manual", &[SLIPS], manual.clone());
    let schemas = lines(&root().join("docs/schemas"), "json");
    check("schemas", &[SLIPS, IN_TEXT], schemas);
    check(
        "the manual's text",
        &[SLIPS, IN_TEXT],
        without_blocks(manual),
    );
}

#[test]
fn fronts_are_plain() {
    for directory in ["crates", "capi", "ferroce", "benches", "interop", "fuzz"] {
        let mut fronts = lines(&root().join(directory), "rs");
        fronts.retain(|(place, line)| {
            let is_source = place.contains("/src/") && !place.contains("/target/");
            is_source && line.starts_with("//!")
        });
        check("fronts", &[SLIPS, IN_TEXT], fronts);
    }
}

/// The numbered lines of the project's Rust.
fn rust() -> Vec<(String, String)> {
    let rooms = [
        "crates", "capi", "ferroce", "benches", "interop", "fuzz", "models",
    ];
    let mut code: Vec<_> = rooms
        .iter()
        .flat_map(|room| lines(&root().join(room), "rs"))
        .collect();
    code.retain(|(place, _)| !place.contains("/target/"));
    code
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") && !line.starts_with("//!")
}

#[test]
fn comments_of_public_items_are_plain() {
    let mut about_public = Vec::new();
    let mut comment = Vec::new();
    for (place, line) in rust() {
        let code = line.trim_start();
        if code.starts_with("///") {
            comment.push((place, line));
        } else if code.starts_with("pub ") {
            about_public.append(&mut comment);
        } else if !code.starts_with("#[") {
            comment.clear();
        }
    }
    let known = [SLIPS, IN_TEXT, IN_COMMENTS].concat();
    check("comments of public items", &[&known], about_public);
}

#[test]
fn comments_and_names_are_plain() {
    let code = rust();
    let known = [SLIPS, IN_TEXT, IN_COMMENTS];
    let has_slip =
        |(_, line): &&(String, String)| is_comment(line) && !slips(line, &known).is_empty();
    let comments: Vec<_> = code.iter().filter(has_slip).collect();
    only_falls("comments", COMMENTS_LEFT, &comments);

    let names: Vec<_> = code
        .iter()
        .filter(|(_, line)| function(line).is_some_and(|name| !is_plain_name(name)))
        .collect();
    only_falls("names", NAMES_LEFT, &names);
}

fn only_falls(what: &str, left: usize, found: &[&(String, String)]) {
    let now = found.len();
    let listed = || {
        let places = found.iter().map(|(place, line)| format!("{place}: {line}"));
        places.collect::<Vec<_>>().join("\n")
    };
    assert!(now <= left, "{what}: {now}, {left} before:\n{}", listed());
    assert!(now >= left, "{what}: lower the count from {left} to {now}");
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_declared = before.split_whitespace().all(|word| {
        word.starts_with("pub") || ["const", "unsafe", "async", "extern"].contains(&word)
    });
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_declared && end > 0).then(|| &rest[..end])
}

fn is_plain_name(name: &str) -> bool {
    let asks = ["who_", "whose_", "what_", "those_"];
    name.len() <= NAME_MAX && !asks.iter().any(|it| name.starts_with(it))
}

#[test]
fn messages_are_plain() {
    for directory in ["ferroce/src", "crates", "capi"] {
        let mut code = lines(&root().join(directory), "rs");
        code.retain(|(place, line)| {
            let is_comment = line.trim_start().starts_with("//");
            let is_shown = place.contains("/src/") && !place.contains("test");
            // Identifiers are not checked.
            is_shown && !is_comment && line.contains(['"', '\\'])
        });
        check("messages", &[SLIPS], code);
    }
}

#[test]
fn help_is_plain() {
    let lab = Lab::new("english");
    check(
        "help",
        &[SLIPS],
        lines(&lab.path().join("prefix/share/man/man1"), "1"),
    );
}

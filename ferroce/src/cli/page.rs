//! docs/commands.md: every noun and verb, as the parser has them.

use std::fs;
use std::path::Path;

use clap::Command;

use super::{command, groups};

const INTRODUCTION: &str = "# Commands

```text
ferroce NOUN VERB [DEV] [KEY VALUE ...] [OPTIONS]
```

There is one grammar, that of iproute2's `rdma`:

- **The noun** says what it is about, **the verb** what to do. `show` is the verb of a noun that has
  one if you leave it out. Both may be shortened as long as they are unique: `ferroce imp cl fr0`.
- **The device** is the first word after the verb, behind the file in `adp apply` and `adp emit`.
  Where there is only one device, leave it out. Commands that show devices show all without it. `dev`
  may stand before it, and `-d DEV` in its place. It is a name (`fr0`), a name with its port (`fr0/1`),
  or a PCI address; commands for registers and profiles take a real card as well (`fwctl0`,
  `0000:1a:00.0`, `/dev/mst/mt4129_pciconf0`).
- **What is set** is `KEY VALUE` or `KEY=VALUE`.
- **`-j`** prints JSON, `-p` breaks it into lines, on every command that prints facts. Both may stand in
  front of the noun as well. `-d` in front of the noun asks for details, like `--details` behind it.
- **`--watch [SECONDS]`** refreshes until interrupted, `--count N` stops after N; `-o` names the output.

`ferroce NOUN VERB --help` has examples and every option. [Completions](running-programs.md) for bash, zsh
and fish know devices, profiles, scenarios and registers.

";

/// Spellings of the previous release, and what to write.
const OLD: &[(&str, &str)] = &[
    ("impair fr0 loss=1%", "impair set fr0 loss=1%"),
    ("impair fr0", "impair show fr0"),
    ("impair fr0 clear", "impair clear fr0"),
    ("stat hist fr0", "stat hist show [DEV]"),
    ("stat hist fr0 -n 2 -t 0", "stat hist set [DEV]"),
    ("stat hist -p fr0", "-d DEV for -p DEV"),
    ("stat clear fr0", "stat hist clear [DEV]"),
    ("stat names", "stat explain"),
    ("reg show MGIR", "reg explain MGIR"),
    ("adp profiles", "adp profile list"),
    ("adp profiles link-flap", "adp profile show link-flap"),
    ("cc watch --count 1", "cc rates [DEV] --watch [SECONDS]"),
    ("res show qp -d", "--details for -d behind the command"),
    ("sweep plan survival --out DIR", "-o DIR for --out DIR"),
];

/// The page as it should be.
fn page() -> String {
    let mut root = command();
    root.build();
    let mut text = INTRODUCTION.to_owned();
    for (heading, names) in groups::all() {
        text += &format!("## {heading}\n\n| command | what it does |\n|---|---|\n");
        for name in names.iter().filter(|it| **it != "help") {
            let command = root.find_subcommand(name).expect("groups name commands");
            rows(command, &mut text);
        }
        text.push('\n');
    }
    text += "## Old spellings\n\nThese work for one more release, and say what to write instead:\n\n\
             | old | new |\n|---|---|\n";
    for (old, new) in OLD {
        text += &format!("| `ferroce {old}` | `{new}` |\n");
    }
    text
}

/// The rows of a command's verbs, or of a command without any.
fn rows(command: &Command, text: &mut String) {
    let is_verb = |it: &&Command| it.get_name() != "help" && !it.is_hide_set();
    let verbs: Vec<_> = command.get_subcommands().filter(is_verb).collect();
    for verb in &verbs {
        rows(verb, text);
    }
    if verbs.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage
            .trim_start_matches("Usage: ")
            .replace("[OPTIONS] ", "");
        let usage = usage
            .lines()
            .next()
            .unwrap_or_default()
            .trim_end_matches(" [OPTIONS]");
        let about = command.get_about().map(ToString::to_string);
        let about = about.unwrap_or_default().replace('|', "\\|");
        *text += &format!("| `{}` | {about} |\n", usage.replace('|', "\\|"));
    }
}

#[test]
fn the_page_of_commands_is_that_of_the_parser() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "run with UPDATE_DOCS=1 to write docs/commands.md"
    );
}

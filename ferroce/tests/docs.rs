//! The manual's examples show what the program prints.
//!
//! Every ```` ```console ```` block of docs/*.md and README.md whose commands all begin with
//! `$ ferroce`, or with variables and then `ferroce`, is run, in order, through a shell, and what follows each command must be its output,
//! standard error included. Commands find `profiles/` beside them and write into a directory of
//! their own; a line that ends in a backslash continues. Blocks that cannot be repeated, because
//! they measure something, are ```` ```text ````.
//!
//! `UPDATE_DOCS=1 cargo test -p ferroce --test all docs::` writes the outputs anew.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::terminal;

#[test]
fn every_example_prints_what_the_manual_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut pages: Vec<PathBuf> = fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .chain([root.join("README.md")])
        .filter(|path| path.exists())
        .collect();
    pages.sort();
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let registry = registry(directory);
    DirBuilder::new().mode(0o700).create(registry).unwrap();
    for shared in ["profiles", "docs"] {
        std::os::unix::fs::symlink(root.join(shared), directory.join(shared)).unwrap();
    }
    let mut stale = Vec::new();
    for page in &pages {
        let old = fs::read_to_string(page).unwrap();
        let new = rewritten(&old, directory);
        assert!(
            !new.contains("note: this is an old spelling"),
            "{}: write what the note says",
            page.display()
        );
        if old == new {
            continue;
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(page, new).unwrap();
            continue;
        }
        for (i, (old, new)) in old.lines().zip(new.lines()).enumerate() {
            if old != new {
                stale.push(format!("{}:{}\n- {old}\n+ {new}", page.display(), i + 1));
                break;
            }
        }
    }
    let stale = stale.join("\n");
    assert!(
        stale.is_empty(),
        "run with UPDATE_DOCS=1 to rewrite:\n{stale}"
    );
}

/// README.md shows the demo as a terminal does: it is the run on the page docs/demo.md.
#[test]
fn the_picture_of_the_demo_is_the_run_on_its_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("demo.md")).unwrap();
    let mut lines = page.lines().skip_while(|line| *line != "$ ferroce demo");
    let command = lines.next().expect("a run on the page");
    let printed: Vec<_> = lines.take_while(|line| *line != "```").collect();
    let picture = terminal::draw(command.trim_start_matches("$ "), &printed);
    let path = docs.join("demo-terminal.svg");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &picture).unwrap();
    }
    let shown = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        shown == picture,
        "run with UPDATE_DOCS=1 to draw {} anew",
        path.display()
    );
}

/// The page with the current outputs.
fn rewritten(page: &str, directory: &Path) -> String {
    let mut text = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        text += &format!("{line}\n");
        if line != "```console" {
            continue;
        }
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        text += &rewritten_block(&block, directory);
        text += "```\n";
    }
    text
}

fn rewritten_block(block: &[&str], directory: &Path) -> String {
    let mut commands: Vec<String> = Vec::new();
    let mut continues = false;
    for line in block {
        match commands.last_mut() {
            Some(command) if continues => *command += &format!("\n{line}"),
            _ if line.starts_with("$ ") => commands.push((*line).to_owned()),
            _ => continue,
        }
        continues = line.ends_with('\\');
    }
    if !commands.iter().all(|command| is_ours(command)) {
        return block.iter().map(|line| format!("{line}\n")).collect();
    }
    commands
        .iter()
        .map(|command| format!("{command}\n{}", output(command, directory)))
        .collect()
}

/// Whether a command is `ferroce`, perhaps after environment variables.
fn is_ours(command: &str) -> bool {
    let is_variable = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let mut words = command.trim_start_matches("$ ").split(' ');
    words.find(|word| !is_variable(word)) == Some("ferroce")
}

/// The devices of the examples.
fn registry(directory: &Path) -> PathBuf {
    directory.join("registry")
}

fn output(command: &str, directory: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_ferroce")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let of_applications = ["NCCL_", "UCX_", "OMPI_MCA_"];
    let mut shell = Command::new("sh");
    for (name, _) in std::env::vars_os() {
        if of_applications
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            shell.env_remove(name);
        }
    }
    let output = shell
        .args([
            "-c",
            &format!("{{ {}\n}} 2>&1", command.trim_start_matches("$ ")),
        ])
        .current_dir(directory)
        .env("PATH", path)
        .env("FERROCE_DIR", registry(directory))
        .env_remove("FERROCE_DEVICES")
        // As a terminal shows it.
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if text.is_empty() || text.ends_with('\n') {
        text
    } else {
        format!("{text}\n")
    }
}

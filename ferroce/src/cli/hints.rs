//! What to write in place of a word or an option that the command line does not have.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use ferroce_base::names::near;
use ferroce_registry::KINDS;

use crate::spelling;

/// Words for verbs that other programs have, or that a newcomer would try.
const MEANT: &[(&str, &str, &str)] = &[
    ("adp", "replay", "adp trace"),
    ("adp", "list", "adp profile list"),
    ("adp", "clear", "adp reset DEV"),
    ("dev", "list", "dev show"),
    ("dev", "remove", "dev del DEV"),
    ("link", "down", "link set DEV down"),
    ("link", "up", "link set DEV up"),
    ("link", "flap", "link set DEV flap NUMBERx DOWN/EVERY"),
    ("impair", "add", "impair set DEV KEY VALUE"),
    ("impair", "del", "impair clear DEV"),
    ("impair", "reset", "impair clear DEV"),
    ("cc", "get", "cc show DEV"),
    ("cc", "clear", "cc reset DEV"),
    ("reg", "read", "reg get DEV REGISTER"),
    ("reg", "write", "reg set DEV REGISTER FIELD VALUE"),
    ("stat", "reset", "stat hist clear DEV"),
    ("sim", "start", "sim run SCENARIO"),
];

/// The complaint with what was probably meant.
pub(super) fn on(mut error: Error, args: &[OsString], root: &Command) -> Error {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
                return error;
            };
            let hint = for_word(word.clone().as_str(), args, root);
            error.remove(ContextKind::SuggestedSubcommand);
            if let Some(hint) = hint {
                suggest(&mut error, hint);
            }
        }
        ErrorKind::UnknownArgument => {
            // clap proposes to pass it on behind --, where no command but `run` takes anything.
            error.remove(ContextKind::TrailingArg);
            error.remove(ContextKind::Suggested);
            let word = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(word)) => word.clone(),
                _ => String::new(),
            };
            if !word.starts_with('-') && !word.is_empty() {
                suggest(&mut error, "a command takes one device".to_owned());
            }
        }
        _ => {}
    }
    error
}

fn suggest(error: &mut Error, hint: String) {
    let hint = ContextValue::StyledStrs(vec![hint.into()]);
    error.insert(ContextKind::Suggested, hint);
}

/// What may have been meant by a word that is no verb.
fn for_word(word: &str, args: &[OsString], root: &Command) -> Option<String> {
    let mut words = args.iter().skip(1).take_while(|it| *it != word);
    let noun = words.find_map(|it| spelling::child(root, it.to_str()?));
    let Some(command) = noun else {
        let near = near(word, root.get_subcommands().map(Command::get_name))?;
        return Some(format!("did you mean: ferroce {near}"));
    };
    let noun = command.get_name();
    if let Some((.., meant)) = MEANT.iter().find(|it| (it.0, it.1) == (noun, word)) {
        return Some(format!("write: ferroce {meant}"));
    }
    if noun == "res" && KINDS.iter().any(|kind| kind.name == word) {
        return Some(format!("write: ferroce res show {word}"));
    }
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    if let Some(near) = near(word, shown.map(Command::get_name)) {
        return Some(format!("did you mean: ferroce {noun} {near}"));
    }
    let takes_device = command.find_subcommand("show").is_some_and(has_device);
    takes_device.then(|| format!("a device is named after the verb: ferroce {noun} show {word}"))
}

fn has_device(command: &Command) -> bool {
    let mut words = command.get_positionals();
    words.any(|it| it.get_value_names().is_some_and(|it| it[0] == "DEV"))
}

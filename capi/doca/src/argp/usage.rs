//! The help text.

use std::fmt::Write as _;

use super::{BUILT_IN, Param};
use crate::log::Level;

/// What `-h` prints.
#[must_use]
pub fn usage(program: &str, params: &[Param]) -> String {
    let mut text = format!("Usage: {program} [DOCA Flags] [Program Flags]\n\nDOCA Flags:\n");
    for it in &BUILT_IN {
        let takes = it.takes.map_or(String::new(), |takes| format!(" {takes}"));
        let mut description = it.description.to_owned();
        if it.takes == Some("<level>") {
            let _ = write!(description, " <{}>", Level::NUMBERS);
        }
        line(&mut text, it.short, Some(it.long), &takes, &description);
    }
    text += "\nProgram Flags:\n";
    for it in params {
        let (short, long) = (it.short.as_deref(), it.long.as_deref());
        line(&mut text, short, long, "", &it.description);
    }
    text
}

fn line(text: &mut String, short: Option<&str>, long: Option<&str>, takes: &str, what: &str) {
    let flags = match (short, long) {
        (Some(short), Some(long)) => format!("-{short}, --{long}{takes}"),
        (Some(short), None) => format!("-{short}{takes}"),
        (None, Some(long)) => format!("--{long}{takes}"),
        (None, None) => String::new(),
    };
    let _ = writeln!(text, "  {flags:<32}  {what}");
}

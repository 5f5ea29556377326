//! The flags from a JSON file:
//!
//! ```json
//! { "doca_general_flags": { "log-level": 60 }, "doca_program_flags": { "pci-addr": "1a:00.0" } }
//! ```
//!
//! Vendors' files begin with a comment, so comments as in C are allowed.

use serde_json::{Map, Value as Json};

use super::{Kind, Param, Run, Value};
use crate::error::{Code, Refusal};
use crate::log::Level;

pub(super) fn parse(params: &[Param], text: &str) -> Result<Run, Refusal> {
    let refused = |what: String| Refusal::new(Code::InvalidValue, what);
    let file: Json = serde_json::from_str(&without_comments(text))
        .map_err(|error| refused(format!("the JSON file cannot be read: {error}")))?;
    let groups = object("the JSON file", &file)?;
    let mut run = Run::default();
    for (group, flags) in groups {
        match group.as_str() {
            "doca_general_flags" => general(&mut run, object(group, flags)?)?,
            "doca_program_flags" => {
                for (key, value) in object(group, flags)? {
                    let is_it = |param: &Param| param.long.as_ref() == Some(key);
                    let index = params.iter().position(is_it).ok_or_else(|| {
                        refused(format!(
                            "{key:?} is not a flag; keys are the long names of -h"
                        ))
                    })?;
                    let kind = params[index].kind.unwrap_or(Kind::String);
                    run.values.push((index, typed(kind, key, value)?));
                }
            }
            _ => {
                let allowed = "doca_general_flags and doca_program_flags";
                return Err(Refusal::value(
                    "a group of flags",
                    format_args!("{group:?}"),
                    allowed,
                ));
            }
        }
    }
    // An object has no order; the program has one.
    run.values.sort_by_key(|(index, _)| *index);
    Ok(run)
}

fn general(run: &mut Run, flags: &Map<String, Json>) -> Result<(), Refusal> {
    for (key, value) in flags {
        let level = || {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            Level::of(number.ok_or_else(|| Refusal::value(key, value, Level::NUMBERS))?)
        };
        match key.as_str() {
            "log-level" => run.level = Some(level()?),
            "sdk-log-level" => run.sdk_level = Some(level()?),
            _ => {
                let allowed = "log-level and sdk-log-level";
                return Err(Refusal::value(
                    "a general flag",
                    format_args!("{key:?}"),
                    allowed,
                ));
            }
        }
    }
    Ok(())
}

fn object<'a>(what: &str, json: &'a Json) -> Result<&'a Map<String, Json>, Refusal> {
    json.as_object()
        .ok_or_else(|| Refusal::value(what, json, "an object with keys and values"))
}

/// Numbers may stand between quotes, as on a command line.
fn typed(kind: Kind, key: &str, json: &Json) -> Result<Value, Refusal> {
    match (kind, json) {
        (_, Json::String(text)) => kind.parse(key, text),
        (Kind::Int | Kind::Double, Json::Number(_)) | (Kind::Boolean, Json::Bool(_)) => {
            kind.parse(key, &json.to_string())
        }
        _ => Err(Refusal::value(key, json, format_args!("a {kind:?}"))),
    }
}

/// The text with blanks in place of its comments, so that errors name the right line.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_string = false;
    while let Some(c) = rest.chars().next() {
        let end = match (is_string, &rest.as_bytes()[..rest.len().min(2)]) {
            (false, b"//") => rest.find('\n').unwrap_or(rest.len()),
            (false, b"/*") => rest[2..].find("*/").map_or(rest.len(), |at| at + 4),
            // What is escaped does not end the string.
            (true, [b'\\', next]) if next.is_ascii() => {
                out.push_str(&rest[..2]);
                rest = &rest[2..];
                continue;
            }
            _ => {
                is_string ^= c == '"';
                out.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
        };
        let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
        out.extend(rest[..end].chars().map(blank));
        rest = &rest[end..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_strings_stay() {
        let text = "/* a\n\"b */ { // c\n \"x//y\\\"/*\": \"*/ü\" } // d";
        let parsed: Json = serde_json::from_str(&without_comments(text)).unwrap();
        assert_eq!(parsed, serde_json::json!({ "x//y\"/*": "*/ü" }));
        assert_eq!(without_comments(text).lines().count(), text.lines().count());
        for odd in ["/*", "//", "\"\\", "/", "\"\\ü", "/*/"] {
            assert!(without_comments(odd).len() <= odd.len());
        }
    }
}

//! The page's questions as JSON, and their answers.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use ferroce_adp::{AckTimeoutFloor, QpTimeouts};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::design::{Design, catalogue};

/// Further problems of a text are not listed.
pub const PROBLEMS_MAX: usize = 50;
/// Characters of a value that a refusal repeats.
const VALUE_MAX: usize = 60;

/// The answer to the question of a name, or why there is none; `None` if no question has that name.
///
/// - `catalogue`: the fields of a profile as JSON Schema, and the built-in profiles. No question.
/// - `design`: what a profile does. `{"text": TEXT}` has it in any form that `ferroce adp import`
///   reads, `{"profile": {...}}` by the keys of a profile file. `timeout` and `retry_cnt` are the
///   QP's, `min_ack_timeout_limit_disabled` is the register's field, `device` stands in commands.
#[must_use]
pub fn answer(name: &str, question: &str) -> Option<Result<String, Refusal>> {
    match name {
        "catalogue" => Some(text(&catalogue())),
        "design" => Some(Question::parse(question).and_then(|it| text(&Design::of(&it)))),
        _ => None,
    }
}

fn text(answer: &impl Serialize) -> Result<String, Refusal> {
    serde_json::to_string(answer).map_err(|error| Refusal {
        field: "answer".to_owned(),
        value: error.to_string(),
        allowed: "JSON".to_owned(),
        next: "report this".to_owned(),
    })
}

/// A profile, and who is to use it.
#[derive(Clone, Debug)]
pub(crate) struct Question<'a> {
    /// In any form.
    pub(crate) text: Cow<'a, str>,
    pub(crate) qp: QpTimeouts,
    pub(crate) floor: AckTimeoutFloor,
    pub(crate) device: String,
}

/// Why a question is not answered, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Refusal {
    /// What was wrong.
    pub field: String,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub allowed: String,
    /// What to do.
    pub next: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            allowed,
            next,
        } = self;
        write!(f, "invalid {field} {value}: must be {allowed}; {next}")
    }
}

impl Refusal {
    /// Something that a body of JSON has, or has not.
    #[must_use]
    pub fn of(field: &str, value: &Value, allowed: &str, next: &str) -> Self {
        let mut value = value.to_string();
        if let Some((end, _)) = value.char_indices().nth(VALUE_MAX) {
            value.truncate(end);
            value += "...";
        }
        Self {
            field: field.to_owned(),
            value,
            allowed: allowed.to_owned(),
            next: next.to_owned(),
        }
    }
}

/// The object in a body, which has no other keys than these.
pub fn object(body: &str, keys: &[&str]) -> Result<Map<String, Value>, Refusal> {
    let all = keys.join(", ");
    let (allowed, next) = ("a JSON object", format!("its keys are {all}"));
    let refusal = |value: &Value| Refusal::of("body", value, allowed, &next);
    let object = match serde_json::from_str(body) {
        Ok(Value::Object(object)) => object,
        Ok(other) => return Err(refusal(&other)),
        Err(error) => return Err(refusal(&error.to_string().into())),
    };
    match object.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(object),
        Some(key) => {
            let key = Value::from(key.as_str());
            Err(Refusal::of(
                "key",
                &key,
                &format!("one of {all}"),
                "leave it out",
            ))
        }
    }
}

impl<'a> Question<'a> {
    fn parse(body: &'a str) -> Result<Self, Refusal> {
        let mut object = object(
            body,
            &["text", "profile", "timeout", "retry_cnt", FLOOR, "device"],
        )?;
        let text = match (object.remove("text"), object.remove("profile")) {
            (Some(Value::String(text)), None) => text,
            (None, Some(Value::Object(profile))) => toml_of(profile),
            (text, profile) => {
                let given = text.or(profile).unwrap_or_default();
                let allowed = "given either as text or as profile, an object";
                return Err(Refusal::of("profile", &given, allowed, "give one of them"));
            }
        };
        let timeout = number(&object, "timeout", 14, 0..=31)?;
        let retry_cnt = number(&object, "retry_cnt", 7, 0..=7)?;
        Ok(Self {
            text: text.into(),
            qp: QpTimeouts { timeout, retry_cnt },
            floor: match flag(&object, FLOOR)? {
                true => AckTimeoutFloor::Disabled,
                false => AckTimeoutFloor::DEFAULT,
            },
            device: device(&object)?,
        })
    }
}

const FLOOR: &str = "min_ack_timeout_limit_disabled";

fn number(
    object: &Map<String, Value>,
    key: &str,
    otherwise: u8,
    allowed: RangeInclusive<u8>,
) -> Result<u8, Refusal> {
    let Some(value) = object.get(key) else {
        return Ok(otherwise);
    };
    let number = value.as_u64().and_then(|it| u8::try_from(it).ok());
    number.filter(|it| allowed.contains(it)).ok_or_else(|| {
        let (low, high) = (allowed.start(), allowed.end());
        let next = format!("write {otherwise} for the commonest QP");
        Refusal::of(key, value, &format!("a number from {low} to {high}"), &next)
    })
}

/// `false` if it is left out.
pub fn flag(object: &Map<String, Value>, key: &str) -> Result<bool, Refusal> {
    match object.get(key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(Refusal::of(
            key,
            other,
            "true or false",
            "leave it out for false",
        )),
    }
}

fn device(object: &Map<String, Value>) -> Result<String, Refusal> {
    const LEN_MAX: usize = 64;
    match object.get("device") {
        None => Ok("DEV".to_owned()),
        Some(Value::String(name)) if name.is_empty() => Ok("DEV".to_owned()),
        Some(Value::String(name))
            if name.len() <= LEN_MAX && !name.chars().any(char::is_control) =>
        {
            Ok(name.clone())
        }
        Some(other) => Err(Refusal::of(
            "device",
            other,
            &format!("a name of up to {LEN_MAX} characters"),
            "write it as the tool names it, for example 0000:3a:00.0 or fr0",
        )),
    }
}

/// The values of a profile as a profile file. What is null is left out; what TOML has no word for is
/// kept as text, so that the file is refused with its key.
fn toml_of(profile: Map<String, Value>) -> String {
    let table: toml::Table = entries(profile).collect();
    toml::to_string(&table).unwrap_or_default()
}

fn entries(object: Map<String, Value>) -> impl Iterator<Item = (String, toml::Value)> {
    let object = object.into_iter();
    object.filter_map(|(key, value)| Some((key, toml_value(value)?)))
}

fn toml_value(value: Value) -> Option<toml::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => flag.into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => integer.into(),
            (None, Some(float)) => float.into(),
            (None, None) => number.to_string().into(),
        },
        Value::String(text) => text.into(),
        Value::Array(items) => {
            let items = items.into_iter().filter_map(toml_value);
            toml::Value::Array(items.collect())
        }
        Value::Object(object) => toml::Value::Table(entries(object).collect()),
    })
}

//! Selects the objects to show.

use std::ops::RangeInclusive;

use ferroce_registry::{Form, KINDS, Key, Kind};
use serde_json::Value;

use crate::output::Failure;

/// The kind that a word is the name of, or the beginning of its name; `None` if there is none.
pub(super) fn kind(word: &str) -> Result<Option<&'static Kind>, Failure> {
    let begins = KINDS.iter().filter(|kind| kind.name.starts_with(word));
    let begins: Vec<_> = begins.collect();
    match begins.as_slice() {
        [] => Ok(None),
        [kind] => Ok(Some(kind)),
        several => {
            let names: Vec<_> = several.iter().map(|kind| kind.name).collect();
            Err(Failure::input(format_args!(
                "{word:?} may be {}; write more of it",
                names.join(" or ")
            )))
        }
    }
}

/// A key and its wanted values; an object must have one of them.
pub(super) struct Filter<'a> {
    key: Key,
    values: Vec<Wanted<'a>>,
}

enum Wanted<'a> {
    Text(&'a str),
    Numbers(RangeInclusive<u64>),
}

impl<'a> Filter<'a> {
    /// A comma-separated list for a key of this kind: texts, or numbers and ranges of numbers.
    pub(super) fn of(kind: &Kind, key: &str, list: &'a str) -> Result<Self, Failure> {
        let Some(key) = kind.keys().find(|known| known.name == key) else {
            let names: Vec<_> = kind.keys().map(|key| key.name).collect();
            return Err(Failure::input(format_args!(
                "{key:?} is not a key of {}; write dev, or {}",
                kind.name,
                names.join(", ")
            )));
        };
        let wanted = |text: &'a str| match key.form {
            Form::Text => Ok(Wanted::Text(text)),
            Form::Number | Form::Hex => range(text).map(Wanted::Numbers).ok_or_else(|| {
                Failure::input(format_args!(
                    "{} is {text:?}; allowed: numbers and ranges of them, comma-separated; for \
                     example {0} 1,7-9,0x100",
                    key.name
                ))
            }),
        };
        let values = list.split(',').map(wanted).collect::<Result<_, _>>()?;
        Ok(Self { key, values })
    }

    /// Whether the object is to be shown. One that does not have the key is not.
    pub(super) fn takes(&self, object: &Value) -> bool {
        self.key.value(object).is_some_and(|value| {
            self.values.iter().any(|wanted| match (wanted, value) {
                (Wanted::Text(text), Value::String(value)) => value.eq_ignore_ascii_case(text),
                (Wanted::Numbers(range), value) => {
                    value.as_u64().is_some_and(|value| range.contains(&value))
                }
                _ => false,
            })
        })
    }
}

fn range(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = number(first)?..=number(last)?;
    (!range.is_empty()).then_some(range)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn takes(key: &str, values: &str) -> bool {
        let kind = kind("qp").unwrap().unwrap();
        let object = json!({ "lqpn": 65552, "state": "RTS" });
        Filter::of(kind, key, values).ok().unwrap().takes(&object)
    }

    #[test]
    fn lists_and_ranges_take_what_is_in_them() {
        for (key, values) in [
            ("lqpn", "65552"),
            ("lqpn", "0x10010"),
            ("lqpn", "1,65536-65600"),
            ("state", "rtr,rts"),
        ] {
            assert!(takes(key, values), "{key} {values}");
        }
        for (key, values) in [("lqpn", "1-7"), ("state", "ERR"), ("rqpn", "0-9")] {
            assert!(!takes(key, values), "{key} {values}");
        }
    }
}

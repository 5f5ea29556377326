//! Selects the objects to show.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::kind::{Form, Key, Object};
use crate::output::Failure;

/// A key and the values that objects must have one of.
pub(super) struct Filter<'a> {
    key: &'static str,
    values: Vec<Wanted<'a>>,
}

enum Wanted<'a> {
    Text(&'a str),
    Numbers(RangeInclusive<u64>),
}

impl<'a> Filter<'a> {
    /// A list with commas; of texts, or of numbers and ranges of them.
    pub(super) fn parse(key: &Key, list: &'a str) -> Result<Self, Failure> {
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
        Ok(Self {
            key: key.name,
            values,
        })
    }

    /// Whether the object is to be shown. One that does not have the key is not.
    pub(super) fn takes(&self, object: &Object) -> bool {
        object.get(self.key).is_some_and(|value| {
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
    use crate::device::res::kind::Kind;

    fn takes(key: &str, values: &str) -> bool {
        let kind = Kind::named("qp").unwrap().unwrap();
        let Value::Object(object) = json!({ "lqpn": 65552, "state": "RTS" }) else {
            panic!("an object");
        };
        kind.filter(key, values).ok().unwrap().takes(&object)
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

    #[test]
    fn what_is_no_key_or_no_value_is_refused_with_what_is() {
        let kind = Kind::named("q").unwrap().unwrap();
        let error = |key, values| kind.filter(key, values).err().unwrap().to_string();
        assert!(error("colour", "red").contains("retries-left"));
        assert!(error("lqpn", "9-7").contains("lqpn 1,7-9"));
        assert!(Kind::named("c").is_err());
        assert!(Kind::named("fr0").unwrap().is_none());
    }
}

//! Whether a document matches its JSON Schema.
//!
//! Supports the part of JSON Schema that the schemas in docs/schemas use, and fails for everything
//! else in them. It is stricter than JSON Schema: a key that a schema does not name is an error,
//! since the program under test is the one that the schemas describe.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

/// Checks every line of a command's output that is a document; returns their number.
#[track_caller]
pub(crate) fn check_output(text: &str) -> usize {
    let is_document = |text: &&str| text.starts_with(r#"{"schema":"#);
    text.lines().filter(is_document).map(check_text).count()
}

#[track_caller]
fn check_text(text: &str) {
    let document: Value = serde_json::from_str(text).unwrap();
    if let Err(error) = check(&document) {
        panic!("{error}\n{text}");
    }
}

/// Checks a document against the schema that it names.
pub(crate) fn check(document: &Value) -> Result<(), String> {
    let name = document["schema"].as_str().ok_or("no schema is named")?;
    let name = name.strip_prefix("ferroce.").ok_or("a schema of another")?;
    let version = &document["version"];
    let file = format!("../docs/schemas/{name}.v{version}.json");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let root: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Schema { root: &root }.takes(&root, document, name)
}

/// A schema and the definitions that its parts refer to.
struct Schema<'a> {
    root: &'a Value,
}

impl Schema<'_> {
    fn takes(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let schema = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(schema) => schema,
            other => return Err(format!("{place}: {other} is not a schema")),
        };
        for (keyword, wanted) in schema {
            let holds = match keyword.as_str() {
                "$schema" | "title" | "description" | "format" | "$defs" => true,
                // With `properties`.
                "additionalProperties" | "required" => true,
                "type" => is_of_type(value, wanted),
                "const" => value == wanted,
                "enum" => wanted.as_array().is_some_and(|all| all.contains(value)),
                "minimum" => value.is_null() || value.as_f64() >= wanted.as_f64(),
                "maximum" => value.is_null() || value.as_f64() <= wanted.as_f64(),
                "minItems" => value
                    .as_array()
                    .is_none_or(|it| it.len() as u64 >= number(wanted)),
                "maxItems" => value
                    .as_array()
                    .is_none_or(|it| it.len() as u64 <= number(wanted)),
                "$ref" => {
                    self.takes(self.referred(wanted, place)?, value, place)?;
                    true
                }
                "anyOf" | "oneOf" => {
                    let all = wanted.as_array().ok_or("a list")?;
                    let tried = all.iter().map(|it| self.takes(it, value, place));
                    let errors: Vec<_> = tried.filter_map(Result::err).collect();
                    if errors.len() == all.len() {
                        return Err(errors.join("; or "));
                    }
                    true
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten();
                    for (at, item) in items.enumerate() {
                        self.takes(wanted, item, &format!("{place}[{at}]"))?;
                    }
                    true
                }
                "properties" => true,
                unknown => return Err(format!("{place}: {unknown} is not looked at")),
            };
            if !holds {
                return Err(format!("{place}: {value} is not {keyword} {wanted}"));
            }
        }
        match value {
            Value::Object(members) => self.takes_members(schema, members, place),
            _ => Ok(()),
        }
    }

    fn takes_members(
        &self,
        schema: &Map<String, Value>,
        members: &Map<String, Value>,
        place: &str,
    ) -> Result<(), String> {
        let required = schema.get("required").and_then(Value::as_array);
        for key in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(key) {
                return Err(format!("{place}: {key} is missing"));
            }
        }
        let is_elsewhere = ["$ref", "anyOf", "oneOf"]
            .iter()
            .any(|it| schema.contains_key(*it));
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, value) in members {
            let place = format!("{place}.{key}");
            let own = properties.and_then(|it| it.get(key));
            match own.or_else(|| schema.get("additionalProperties")) {
                Some(schema) => self.takes(schema, value, &place)?,
                None if is_elsewhere => {}
                None => return Err(format!("{place} is not in the schema")),
            }
        }
        Ok(())
    }

    fn referred(&self, to: &Value, place: &str) -> Result<&Value, String> {
        let pointer = to.as_str().and_then(|to| to.strip_prefix('#'));
        let found = pointer.and_then(|pointer| self.root.pointer(pointer));
        found.ok_or_else(|| format!("{place}: nothing at {to}"))
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn is_of_type(value: &Value, wanted: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => false,
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => false,
    }
}

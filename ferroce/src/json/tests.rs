//! The schemas in docs/schemas are those of the types.

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Map, Value, json};

use super::{DOCUMENTS, generated};

/// `UPDATE_SCHEMAS=1 cargo test -p ferroce --lib json` writes them anew.
#[test]
fn schemas_on_disk_are_those_of_the_types() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas");
    let update = env::var_os("UPDATE_SCHEMAS").is_some();
    let mut stale = Vec::new();
    for (name, version, schema) in generated() {
        let file = directory.join(format!("{name}.v{version}.json"));
        let new = text(name, version, schema.to_value());
        if update {
            fs::write(&file, new).unwrap();
        } else if fs::read_to_string(&file).unwrap_or_default() != new {
            stale.push(file);
        }
    }
    assert_eq!(
        stale,
        Vec::<PathBuf>::new(),
        "run UPDATE_SCHEMAS=1 cargo test -p ferroce --lib json"
    );
    for entry in fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let (document, version) = name.rsplit_once(".v").unwrap();
        let version: u32 = version.strip_suffix(".json").unwrap().parse().unwrap();
        let known = DOCUMENTS.iter().find(|it| it.name == document);
        let known = known.unwrap_or_else(|| panic!("{name} is of no document"));
        assert!(version <= known.version, "{name}");
        assert_eq!(known.version == version, known.file() == name);
    }
}

/// The schema of a document: that of its facts behind its name and version.
fn text(name: &str, version: u32, facts: Value) -> String {
    let Value::Object(facts) = facts else {
        panic!("{name} is an object");
    };
    let mut schema = Map::new();
    // In front, where readers look for them.
    for key in ["$schema", "title", "description"] {
        schema.insert(key.to_owned(), facts[key].clone());
    }
    for (key, value) in facts {
        match (key.as_str(), value) {
            ("title", _) => {
                schema.insert(key, format!("ferroce.{name}, version {version}").into());
            }
            ("properties", Value::Object(own)) => {
                let mut all = Map::new();
                let full_name = format!("ferroce.{name}");
                all.insert("schema".into(), json!({ "const": full_name }));
                all.insert("version".into(), json!({ "const": version }));
                for (key, value) in own {
                    assert!(all.insert(key.clone(), value).is_none(), "{name}: {key}");
                }
                schema.insert(key, all.into());
            }
            ("required", Value::Array(own)) => {
                let first = ["schema", "version"].map(Value::from);
                let all: Vec<_> = first.into_iter().chain(own).collect();
                schema.insert(key, all.into());
            }
            (_, value) => {
                schema.insert(key, value);
            }
        }
    }
    names_are_alike(name, &Value::Object(schema.clone()));
    format!("{:#}\n", Value::Object(schema))
}

/// Keys are in snake case, and all of them are explained.
fn names_are_alike(place: &str, schema: &Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (key, value) in properties {
        let place = format!("{place}.{key}");
        let is_snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(key.chars().all(is_snake), "{place}: not snake case");
        let is_said = ["description", "const", "$ref"];
        let is_said = is_said.iter().any(|it| value.get(it).is_some());
        assert!(is_said, "{place}: no comment");
        names_are_alike(&place, value);
    }
    for (name, part) in schema
        .get("$defs")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        names_are_alike(&format!("{place}: {name}"), part);
    }
}

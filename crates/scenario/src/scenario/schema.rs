//! The JSON Schema of scenario files.

use std::fmt::Write as _;

use ferroce_dcqcn::QUESTIONS;
use ferroce_dcqcn::presets::PRESETS;

use super::keys::{Key, ROOT, Takes};

/// Returns the JSON Schema of a scenario file.
#[must_use]
pub fn json_schema() -> String {
    let mut out = String::from(
        "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \
         \"Ferroce scenario\",\n",
    );
    object(&mut out, "  ", ROOT, &["topology", "job"]);
    out += "\n}\n";
    out
}

/// The members of an object's schema.
fn object(out: &mut String, indent: &str, keys: &[Key], required: &[&str]) {
    let _ = writeln!(out, "{indent}\"type\": \"object\",");
    let _ = writeln!(out, "{indent}\"additionalProperties\": false,");
    if !required.is_empty() {
        let _ = writeln!(out, "{indent}\"required\": {required:?},");
    }
    let _ = writeln!(out, "{indent}\"properties\": {{");
    for (at, key) in keys.iter().enumerate() {
        let _ = writeln!(out, "{indent}  {:?}: {{", key.name);
        let _ = writeln!(out, "{indent}    \"description\": {:?},", key.doc);
        let inner = format!("{indent}    ");
        value(out, &inner, key.takes);
        let comma = if at + 1 < keys.len() { "," } else { "" };
        let _ = write!(out, "\n{indent}  }}{comma}\n");
    }
    let _ = write!(out, "{indent}}}");
}

/// The members of a value's schema.
fn value(out: &mut String, indent: &str, takes: Takes) {
    let text = match takes {
        Takes::Text => r#""type": "string""#,
        Takes::Flag => r#""type": "boolean""#,
        Takes::Count => r#""type": "integer", "minimum": 0"#,
        Takes::Time => r#""type": ["string", "integer"], "examples": ["1.5ms", "300ms", 0]"#,
        Takes::Size => r#""type": ["string", "integer"], "examples": ["64KiB", "400KB", 4096]"#,
        Takes::Rate => r#""type": "string", "examples": ["100Gbit"]"#,
        Takes::Probability => r#""type": ["string", "number"], "examples": ["0.1%", 0.001]"#,
        Takes::Hosts | Takes::Links => {
            r#""type": ["string", "integer", "array"], "examples": ["all", ["leaf0-spine1"], "0-15"]"#
        }
        Takes::Files => r#""type": ["string", "array"], "examples": ["fabric.topo", "lldp/"]"#,
        Takes::Host => r#""type": ["string", "integer"], "examples": [0, "h3"]"#,
        Takes::List => r#""type": "array""#,
        Takes::OnError => r#""examples": ["abort", {"reconnect": "1s"}]"#,
        Takes::TextOr => r#""type": ["string", "object"]"#,
        Takes::Dcqcn => return congestion(out, indent),
        Takes::Words(words) => {
            let _ = write!(out, "{indent}\"enum\": {words:?}");
            return;
        }
        Takes::Table(keys) => return object(out, indent, keys, &[]),
        Takes::Tables(keys) => {
            let _ = writeln!(out, "{indent}\"type\": \"array\",\n{indent}\"items\": {{");
            object(out, &format!("{indent}  "), keys, &[]);
            let _ = write!(out, "\n{indent}}}");
            return;
        }
    };
    let _ = write!(out, "{indent}{text}");
}

/// The members of the schema of `[device.dcqcn]`, which may have parameters by any of their names as well.
fn congestion(out: &mut String, indent: &str) {
    let presets: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
    let _ = writeln!(out, "{indent}\"type\": \"object\",");
    let _ = writeln!(out, "{indent}\"properties\": {{");
    let _ = writeln!(out, "{indent}  \"preset\": {{ \"enum\": {presets:?} }},");
    let _ = writeln!(out, "{indent}  \"enabled\": {{ \"type\": \"boolean\" }},");
    let _ = writeln!(out, "{indent}  \"algorithm\": {{");
    let _ = writeln!(out, "{indent}    \"type\": \"object\",");
    let _ = writeln!(out, "{indent}    \"additionalProperties\": false,");
    let _ = writeln!(out, "{indent}    \"properties\": {{");
    for (at, question) in QUESTIONS.iter().enumerate() {
        let _ = writeln!(out, "{indent}      {:?}: {{", question.name);
        let _ = writeln!(
            out,
            "{indent}        \"description\": {:?},",
            question.doc.trim()
        );
        let values = match question.words {
            ["false", "true"] => "\"type\": \"boolean\"".to_owned(),
            words => format!("\"enum\": {words:?}"),
        };
        let _ = writeln!(out, "{indent}        {values}");
        let comma = if at + 1 < QUESTIONS.len() { "," } else { "" };
        let _ = writeln!(out, "{indent}      }}{comma}");
    }
    let _ = write!(out, "{indent}    }}\n{indent}  }}\n{indent}}}");
}

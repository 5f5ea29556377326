//! The JSON Schema of profile files.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use ferroce_prm::roce_accl;

use super::key::{HEADER, Key, Needed, RANGE, Takes};
use crate::raw::RANGE_NUM_MAX;

/// Returns the JSON Schema of a profile file.
#[must_use]
pub fn json_schema() -> String {
    let mut out = String::from(
        "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \"Ferroce \
         adaptive retransmission profile\",\n",
    );
    object(&mut out, "  ", HEADER, true);
    out += "\n}\n";
    out
}

fn object<F>(out: &mut String, indent: &str, keys: &[Key<F>], is_root: bool) {
    let required: Vec<_> = keys
        .iter()
        .filter(|key| matches!(key.needed, Needed::Always(_) | Needed::UnlessNone(_)))
        .map(|key| format!("\"{}\"", key.name))
        .collect();
    *out += &format!("{indent}\"type\": \"object\",\n");
    *out += &format!("{indent}\"additionalProperties\": false,\n");
    *out += &format!("{indent}\"required\": [{}],\n", required.join(", "));
    if is_root {
        *out += &format!(
            "{indent}\"if\": {{\"properties\": {{\"qp_total_timeout\": {{\"const\": false}}}}}},\n\
             {indent}\"then\": {{\"required\": [\"retx_total_timeout\"]}},\n"
        );
    }
    *out += &format!("{indent}\"properties\": {{\n");
    for (i, key) in keys.iter().enumerate() {
        let doc = key.doc.replace('"', "\\\"");
        *out += &format!(
            "{indent}  \"{}\": {{\n{indent}    \"description\": \"{doc}\",\n",
            key.name
        );
        match key.takes {
            Takes::Boolean => *out += &format!("{indent}    \"type\": \"boolean\"\n"),
            Takes::DecMode => {
                let words = roce_accl::DEC_MODE[0].values().iter();
                let words: Vec<_> = words.map(|(_, word)| format!("\"{word}\"")).collect();
                *out += &format!("{indent}    \"enum\": [{}]\n", words.join(", "));
            }
            Takes::PowerOfTwo => {
                let powers: Vec<_> = (2..16).map(|log2| (1 << log2).to_string()).collect();
                *out += &format!("{indent}    \"enum\": [{}]\n", powers.join(", "));
            }
            Takes::Integer { min, max } => {
                *out += &format!(
                    "{indent}    \"type\": \"integer\",\n{indent}    \"minimum\": {min},\n\
                     {indent}    \"maximum\": {max}\n"
                );
            }
            Takes::Ranges => {
                *out += &format!(
                    "{indent}    \"type\": \"array\",\n{indent}    \"minItems\": 1,\n\
                     {indent}    \"maxItems\": {RANGE_NUM_MAX},\n{indent}    \"items\": {{\n"
                );
                object(out, &format!("{indent}      "), RANGE, false);
                *out += &format!("\n{indent}    }}\n");
            }
        }
        *out += &format!(
            "{indent}  }}{}\n",
            if i + 1 < keys.len() { "," } else { "" }
        );
    }
    *out += &format!("{indent}}}");
}

//! A hash that identifies a scenario.

use std::fmt::Write as _;

use ferroce_base::hash::Fnv;
use toml::{Table, Value};

/// A number that is the same for scenarios of the same keys and values, whatever their order,
/// comments, words for people, or seed. `files` are those the scenario refers to.
pub(super) fn of(mut table: Table, files: &[Vec<u8>]) -> u64 {
    for key in ["title", "question", "answer", "seed"] {
        table.remove(key);
    }
    let mut canonical = String::new();
    write_table(&mut canonical, &table);
    let mut hash = Fnv::of(canonical.as_bytes());
    for file in files {
        hash.add(&[0]);
        hash.add(file);
    }
    hash.value()
}

fn write_table(out: &mut String, table: &Table) {
    let mut keys: Vec<_> = table.iter().collect();
    keys.sort_by_key(|(key, _)| *key);
    out.push('{');
    for (key, value) in keys {
        let _ = write!(out, "{key:?}=");
        write_value(out, value);
        out.push(';');
    }
    out.push('}');
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Table(table) => write_table(out, table),
        Value::Array(array) => {
            out.push('[');
            for value in array {
                write_value(out, value);
                out.push(',');
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn order_comments_and_seed_do_not_count() {
        let of = |text: &str, files: &[Vec<u8>]| super::of(text.parse().unwrap(), files);
        let hash = of(
            "seed = 1\nduration = '1s'\n[switch]\nbuffer = 5\ncut_through = true",
            &[],
        );
        let same = "duration = \"1s\" # one\nseed = 7\n[switch]\ncut_through = true\nbuffer = 5";
        assert_eq!(of(same, &[]), hash);
        assert_ne!(of(&same.replace("1s", "2s"), &[]), hash);
        assert_ne!(of(same, &["file".into()]), hash);
    }
}

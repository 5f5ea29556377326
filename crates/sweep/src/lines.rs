//! Lines of a TOML file by the path of a key, and errors there.

use std::collections::BTreeMap;
use std::fmt;

use toml::de::{DeTable, DeValue};

/// An error in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// What it is, and what to write instead.
    pub text: String,
}

/// The errors in a file, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(|it| it.text.as_str()).collect();
        f.write_str(&texts.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// The line of every key and entry, by its path: `axis[0].field`.
#[derive(Default, Debug)]
pub(crate) struct Lines(BTreeMap<String, usize>);

impl Lines {
    pub(crate) fn of(text: &str) -> Result<Self, Problems> {
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            let text = format!("not TOML: {}", error.message());
            Problems(vec![Problem { line, text }])
        })?;
        let mut lines = Self::default();
        lines.table(text, "", table.get_ref());
        Ok(lines)
    }

    fn table(&mut self, text: &str, path: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = match path {
                "" => name.get_ref().to_string(),
                _ => format!("{path}.{}", name.get_ref()),
            };
            self.0
                .insert(path.clone(), line_of(text, name.span().start));
            self.value(text, &path, value.get_ref());
        }
    }

    fn value(&mut self, text: &str, path: &str, value: &DeValue<'_>) {
        match value {
            DeValue::Table(table) => self.table(text, path, table),
            DeValue::Array(array) => {
                for (at, value) in array.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    self.0
                        .insert(path.clone(), line_of(text, value.span().start));
                    self.value(text, &path, value.get_ref());
                }
            }
            _ => {}
        }
    }

    /// The line of a key, or that of the table in which it is missing.
    pub(crate) fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.0.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.bytes().take(offset);
    1 + before.filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_entries_have_lines() {
        let lines = Lines::of("a = 1\n[[b]]\nc = [\n 1,\n 2]\n[[b]]\nd.e = 3\n").unwrap();
        let expected = [
            ("a", 1),
            ("b[0].c", 3),
            ("b[0].c[1]", 5),
            ("b[1].d.e", 7),
            ("b[1].missing", 6),
            ("b[0].c[1].x", 5),
        ];
        for (path, line) in expected {
            assert_eq!(lines.line(path), Some(line), "{path}");
        }
        assert_eq!(lines.line("missing"), None);
        assert_eq!(Lines::of("a = 1\nb = ").unwrap_err().0[0].line, Some(2));
    }
}

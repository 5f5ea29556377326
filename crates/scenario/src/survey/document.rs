//! YAML documents as trees with lines. JSON is YAML: this reads both.
//!
//! The parser bounds the depth of a document; [`WEIGHT_MAX`] bounds its size, with what its aliases repeat.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};

/// What a document may take in memory, bytes, about; each repetition counts.
const WEIGHT_MAX: usize = 512 << 20;
/// What a value takes beside its text.
const VALUE_WEIGHT: usize = 96;

/// A value of a document.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// The line where it begins, from 1.
    pub(super) line: usize,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A scalar of any type; null is an empty one.
    Text(String),
    List(Vec<Value>),
    /// In the order of the file, with repeated keys.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The line of the key, from 1.
    pub(super) line: usize,
    pub(super) value: Value,
}

/// Why a text is not a document, and the line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Malformed {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Value {
    /// Reads the one document of a text.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        Builder::default().build(text)
    }

    /// The entries of a map; none if it is something else.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key of a map; the first one, if it is repeated.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let entry = self.entries().iter().find(|entry| entry.key == key)?;
        Some(&entry.value)
    }

    /// The values of a list, or the one value that stands in its place; none for null.
    pub(super) fn each(&self) -> &[Self] {
        match &self.content {
            Content::List(values) => values,
            Content::Text(text) if text.is_empty() => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// The text of a scalar that is not empty.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    fn weight(&self) -> usize {
        VALUE_WEIGHT
            + match &self.content {
                Content::Text(text) => text.len(),
                Content::List(values) => values.iter().map(Self::weight).sum(),
                Content::Map(entries) => {
                    let each = entries.iter();
                    each.map(|it| it.key.len() + it.value.weight()).sum()
                }
            }
    }
}

/// A list or map whose end has not come.
struct Open {
    value: Value,
    anchor: usize,
    /// The key whose value comes next, and its line.
    key: Option<(String, usize)>,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Value>,
    root: Option<Value>,
    weight: usize,
}

impl Builder {
    fn build(mut self, text: &str) -> Result<Value, Malformed> {
        let mut line = 1;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| Malformed {
                line: error.marker().line().max(1),
                text: error.info().to_owned(),
            })?;
            line = span.start.line().max(1);
            self.take(event, line)
                .map_err(|text| Malformed { line, text })?;
        }
        self.root.ok_or_else(|| Malformed {
            line,
            text: "is empty".into(),
        })
    }

    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), String> {
        match event {
            Event::SequenceStart(_, anchor, _) => {
                self.begin(line, Content::List(Vec::new()), anchor)
            }
            Event::MappingStart(_, anchor, _) => self.begin(line, Content::Map(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.put(open.value, open.anchor),
                None => Ok(()),
            },
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "~" | "null");
                let text = if is_null { String::new() } else { text.into() };
                self.weigh(VALUE_WEIGHT + text.len())?;
                let content = Content::Text(text);
                self.put(Value { line, content }, anchor)
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor);
                let weight = value.map_or(0, Value::weight);
                self.weigh(weight)?;
                let value = self.anchors.get(&anchor).cloned();
                self.put(value.ok_or("an alias of a value that contains it")?, 0)
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                Err("has several documents: must have one".into())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, line: usize, content: Content, anchor: usize) -> Result<(), String> {
        self.weigh(VALUE_WEIGHT)?;
        self.open.push(Open {
            value: Value { line, content },
            anchor,
            key: None,
        });
        Ok(())
    }

    fn weigh(&mut self, weight: usize) -> Result<(), String> {
        self.weight = self.weight.saturating_add(weight);
        match self.weight > WEIGHT_MAX {
            true => Err(
                "the document becomes too large here; shorten it, or repeat less by aliases".into(),
            ),
            false => Ok(()),
        }
    }

    /// A value is complete.
    fn put(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        if anchor > 0 {
            self.weigh(value.weight())?;
            self.anchors.insert(anchor, value.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(value);
            return Ok(());
        };
        match (&mut open.value.content, open.key.take(), value.content) {
            (Content::Map(entries), Some((key, _)), content) if key == MERGE => {
                let line = value.line;
                let value = Value { line, content };
                let merged = value.each().iter().flat_map(Value::entries);
                entries.extend(merged.cloned());
            }
            (Content::Map(entries), Some((key, line)), content) => {
                let value = Value {
                    content,
                    line: value.line,
                };
                entries.push(Entry { key, line, value });
            }
            (Content::Map(_), None, Content::Text(key)) => open.key = Some((key, value.line)),
            (Content::Map(_), None, _) => return Err("a key must be a word".into()),
            (Content::List(values), _, content) => values.push(Value {
                content,
                line: value.line,
            }),
            (Content::Text(_), ..) => {}
        }
        Ok(())
    }
}

/// The key whose value's entries are those of the map it is in, unless that has them itself.
const MERGE: &str = "<<";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_yaml_are_read_with_lines() {
        let yaml = Value::parse(
            "# a lab\nname: x\nnodes:\n  a: &common\n    kind: linux\n  b:\n  c:\n    <<: *common\n    kind: srl\nlist: [1, ~]\n",
        );
        let yaml = yaml.unwrap();
        let kind = |node| yaml.get("nodes")?.get(node)?.get("kind")?.text();
        assert_eq!([kind("a"), kind("b")], [Some("linux"), None]);
        let c = yaml.get("nodes").unwrap().get("c").unwrap();
        let kinds = c.entries().iter().map(|it| (it.value.text(), it.line));
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [(Some("linux"), 5), (Some("srl"), 9)]
        );
        assert_eq!(yaml.get("list").unwrap().each().len(), 2);
        let json = "{\n\t\"a\": {\"x\": true, \"x\": 2},\n\t\"b\": \"\\ud83d\\ude00\\/\"\n}";
        let json = Value::parse(json).unwrap();
        assert_eq!(json.get("a").unwrap().entries().len(), 2);
        assert_eq!(json.entries()[1].line, 3);
        assert_eq!(json.get("b").unwrap().text(), Some("😀/"));
    }

    #[test]
    fn malformed_documents_are_refused_on_their_line() {
        let error = |text: &str| {
            let error = Value::parse(text).unwrap_err();
            format!("{}: {}", error.line, error.text)
        };
        assert_eq!(error(""), "1: is empty");
        assert_eq!(
            error("a: 1\n---\nb: 2\n"),
            "2: has several documents: must have one"
        );
        assert_eq!(error("? [a]\n: b\n"), "1: a key must be a word");
        assert!(error("{\"a\": 1").starts_with("1: "));
        assert!(error(&"[".repeat(100_000)).contains("recursion"));
        assert!(error(&"- ".repeat(100_000)).contains("recursion"));
    }

    #[test]
    fn aliases_cannot_make_it_grow() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let inner = format!("*a{}, ", level - 1).repeat(10);
            bomb += &format!("a{level}: &a{level} [{inner}]\n");
        }
        let error = Value::parse(&bomb).unwrap_err();
        assert_eq!(
            error.text,
            "the document becomes too large here; shorten it, or repeat less by aliases"
        );
        let long = format!(
            "a: &a {}\nb: [{}]",
            "x".repeat(100_000),
            "*a, ".repeat(100_000)
        );
        assert!(Value::parse(&long).is_err());
    }
}

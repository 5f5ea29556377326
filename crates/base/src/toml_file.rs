//! Strict reading of TOML files: every problem is collected, with its line and what to write instead.
//!
//! A [`Reader`] walks through a file's tables, which are [`Section`]s: each states the keys that it may
//! have. A key that is unknown, missing or out of place, a value of another type or out of range, is a
//! [`Problem`]; the reader goes on, so that a person hears of all of them at once.
//!
//! ```
//! use ferroce_base::toml_file::{Reader, parse};
//!
//! let text = "title = 'Flaps'\nseedz = 20";
//! let table = parse(text).unwrap();
//! let mut reader = Reader::new(text);
//! let root = reader.root(table.get_ref(), &["title", "seeds"]);
//! assert_eq!(reader.string(&root, "title"), Some("Flaps"));
//! let problems = reader.end().unwrap_err();
//! assert_eq!(problems.to_string(), "unknown key seedz; did you mean seeds?");
//! assert_eq!(problems.problems[0].line, Some(2));
//! ```

mod control;
mod plain;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::plain::{plain_table, plain_value, set};
use crate::complaint::printable;
use crate::names::instead;
use crate::time::Span;
use crate::units::{Probability, Quantity, SIZE, TIME};

/// An error in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The line it is on, counted from 1.
    pub line: Option<usize>,
    /// What it is, and what to write instead.
    pub text: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The errors in a file, at least one, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems {
    /// Each of them.
    pub problems: Vec<Problem>,
}

impl Problems {
    /// Creates the error for a file in which one thing is wrong.
    #[must_use]
    pub fn one(line: Option<usize>, text: String) -> Self {
        let problems = vec![Problem { line, text }];
        Self { problems }
    }
}

impl Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.problems.iter().map(|it| it.text.as_str()).collect();
        f.write_str(&texts.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// Parses a file.
///
/// # Errors
/// Returns the line and the parser's message if it is not TOML, and the first control character in a key or a
/// string: its author would control the terminal that shows it.
pub fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Problems> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        Problems::one(line, format!("not TOML: {}", error.message()))
    })?;
    match control::in_table(table.get_ref()) {
        Some((at, character)) => {
            let refusal = format!("control character U+{:04X}; leave it out", character as u32);
            Err(Problems::one(Some(line_of(text, at)), refusal))
        }
        None => Ok(table),
    }
}

/// A key as a table of keys has it.
pub trait Key {
    /// Returns its name.
    fn name(&self) -> &'static str;
}

impl Key for &'static str {
    fn name(&self) -> &'static str {
        self
    }
}

/// What is wrong with the place of a key in a section.
pub type Misplaced = fn(&Section<'_>, &str) -> Option<&'static str>;

/// A value and its place in the file.
pub type Value<'t> = Spanned<DeValue<'t>>;

/// What has been found on the way through a file.
#[derive(Debug)]
pub struct Reader<'t> {
    text: &'t str,
    misplaced: Misplaced,
    problems: Vec<Problem>,
    lines: BTreeMap<String, usize>,
}

/// One table of the file, or none where it may be left out.
#[derive(Clone, Debug)]
pub struct Section<'t> {
    /// What comes before the names of its keys: `switch.ecn.`.
    pub path: String,
    line: Option<usize>,
    table: Option<&'t DeTable<'t>>,
    keys: Vec<&'static str>,
}

impl Section<'_> {
    /// Whether the file has it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// Its path: `switch.ecn`, `job[0]`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.trim_end_matches('.')
    }

    /// Whether it has a key.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(name))
    }
}

impl<'t> Reader<'t> {
    /// Creates the reader of a file with this text.
    #[must_use]
    pub fn new(text: &'t str) -> Self {
        Self {
            text,
            misplaced: |_, _| None,
            problems: Vec::new(),
            lines: BTreeMap::new(),
        }
    }

    /// Says of a key that is not one of its section what is wrong with its place, if it has another one.
    #[must_use]
    pub fn with_misplaced(self, misplaced: Misplaced) -> Self {
        Self { misplaced, ..self }
    }

    /// The whole file as a section.
    pub fn root(&mut self, table: &'t DeTable<'t>, keys: &[impl Key]) -> Section<'t> {
        let section = Section {
            path: String::new(),
            line: None,
            table: Some(table),
            keys: names(keys),
        };
        self.check_keys(&section);
        section
    }

    /// A table below another one.
    pub fn section(&mut self, parent: &Section<'t>, name: &str, keys: &[impl Key]) -> Section<'t> {
        let section = self.open_section(parent, name, keys);
        self.check_keys(&section);
        section
    }

    /// A table below another one that may have other keys than these: the caller reads its
    /// [entries](Self::entries).
    pub fn open_section(
        &mut self,
        parent: &Section<'t>,
        name: &str,
        keys: &[impl Key],
    ) -> Section<'t> {
        let mut section = Section {
            path: format!("{}{name}.", parent.path),
            line: parent.line,
            table: None,
            keys: names(keys),
        };
        let Some(value) = self.value(parent, name) else {
            return section;
        };
        section.line = Some(self.line_of(value));
        match value.get_ref() {
            DeValue::Table(table) => section.table = Some(table),
            _ => self.wrong_type(parent, name, "a table", value),
        }
        section
    }

    /// The keys of a table and their values. Their lines are remembered.
    pub fn entries(&mut self, section: &Section<'t>) -> Vec<(&'t str, &'t Value<'t>)> {
        let entries = section.table.into_iter().flatten();
        let entries: Vec<_> = entries
            .map(|(name, value)| (name.get_ref().as_ref(), value))
            .collect();
        for (name, value) in &entries {
            let path = format!("{}{name}", section.path);
            self.lines.insert(path, self.line_of(value));
        }
        entries
    }

    /// The tables of an array of them: `[[job]]`.
    pub fn sections(
        &mut self,
        parent: &Section<'t>,
        name: &str,
        keys: &[impl Key],
    ) -> Vec<Section<'t>> {
        let Some(value) = self.value(parent, name) else {
            return Vec::new();
        };
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type(parent, name, "[[tables]]", value);
            return Vec::new();
        };
        let mut sections = Vec::with_capacity(array.len());
        for (at, value) in array.iter().enumerate() {
            let DeValue::Table(table) = value.get_ref() else {
                self.wrong_type(parent, name, "tables", value);
                continue;
            };
            let section = Section {
                path: format!("{}{name}[{at}].", parent.path),
                line: Some(self.line_of(value)),
                table: Some(table),
                keys: names(keys),
            };
            self.lines
                .insert(section.name().into(), self.line_of(value));
            self.check_keys(&section);
            sections.push(section);
        }
        sections
    }

    fn check_keys(&mut self, section: &Section<'t>) {
        for (name, _) in section.table.into_iter().flatten() {
            let name: &Spanned<Cow<'_, str>> = name;
            let line = self.line_at(name.span().start);
            let path = format!("{}{}", section.path, name.get_ref());
            if !section.keys.contains(&name.get_ref().as_ref()) {
                let text = match (self.misplaced)(section, name.get_ref()) {
                    Some(place) => format!("{path} {place}"),
                    None => {
                        let instead = instead(name.get_ref(), section.keys.iter().copied());
                        format!("unknown key {path}; {instead}")
                    }
                };
                self.problem(Some(line), text);
            }
            self.lines.insert(path, line);
        }
    }

    /// How many problems there are so far.
    #[must_use]
    pub fn problem_count(&self) -> usize {
        self.problems.len()
    }

    /// The lines of all keys that were seen, by their paths; the problems if there are any.
    ///
    /// # Errors
    /// Returns the problems, in the order of the file.
    pub fn end(mut self) -> Result<BTreeMap<String, usize>, Problems> {
        if self.problems.is_empty() {
            return Ok(self.lines);
        }
        self.problems.sort_by_key(|problem| problem.line);
        let problems = self.problems;
        Err(Problems { problems })
    }

    /// Says what is wrong.
    pub fn problem(&mut self, line: Option<usize>, text: impl Into<String>) {
        self.problems.push(Problem {
            line: line.filter(|line| *line > 0),
            text: printable(&text.into()),
        });
    }

    /// Says what is wrong with a table.
    pub fn refuse(&mut self, section: &Section<'t>, text: impl Display) {
        self.problem(section.line, format!("{}{text}", section.name()));
    }

    /// Says what is wrong with the value of a key.
    pub fn bad(&mut self, section: &Section<'t>, name: &str, text: impl Display) {
        let line = self.line(section, name);
        self.problem(line, format!("{}{name}: {text}", section.path));
    }

    /// Says that a value is not what it must be.
    pub fn invalid(
        &mut self,
        section: &Section<'t>,
        name: &str,
        given: impl Display,
        must: impl Display,
    ) {
        let line = self.line(section, name);
        let path = &section.path;
        self.problem(line, format!("invalid {path}{name} {given}: {must}"));
    }

    /// Says that a key is missing, if it is.
    pub fn require(&mut self, section: &Section<'t>, name: &str, example: &str) {
        if section.has(name) {
            return;
        }
        let path = &section.path;
        self.problem(
            section.line,
            format!("missing {path}{name}; add {name} = {example}"),
        );
    }

    /// Says that a key has no place beside the others.
    pub fn idle(&mut self, section: &Section<'t>, names: &[&str], why: impl Display) {
        for name in names.iter().filter(|name| section.has(name)) {
            self.bad(section, name, format_args!("{why}; leave it out"));
        }
    }

    /// The line of a key, or that of its table.
    #[must_use]
    pub fn line(&self, section: &Section<'t>, name: &str) -> Option<usize> {
        let line = self.lines.get(&format!("{}{name}", section.path)).copied();
        line.or(section.line)
    }

    /// A value of any type.
    #[must_use]
    pub fn value(&self, section: &Section<'t>, name: &str) -> Option<&'t Value<'t>> {
        debug_assert!(
            section.keys.contains(&name),
            "{}{name} is in no table of keys",
            section.path
        );
        section.table?.get(name)
    }

    /// The line of a value; 0 if it is not in the file.
    #[must_use]
    pub fn line_of(&self, value: &Value<'t>) -> usize {
        self.line_at(value.span().start)
    }

    fn line_at(&self, offset: usize) -> usize {
        match offset {
            NOWHERE => 0,
            _ => line_of(self.text, offset),
        }
    }

    /// Says that a value has another type than it must have.
    pub fn wrong_type(
        &mut self,
        section: &Section<'t>,
        name: &str,
        expected: &str,
        value: &Value<'t>,
    ) {
        let line = self.line_of(value);
        let got = type_of(value.get_ref());
        let path = &section.path;
        self.problem(
            Some(line),
            format!("invalid {path}{name}: must be {expected}, not {got}"),
        );
    }

    /// A string.
    pub fn string(&mut self, section: &Section<'t>, name: &str) -> Option<&'t str> {
        let value = self.value(section, name)?;
        match value.get_ref() {
            DeValue::String(text) => Some(text),
            _ => {
                self.wrong_type(section, name, "a string", value);
                None
            }
        }
    }

    /// A boolean.
    pub fn flag(&mut self, section: &Section<'t>, name: &str) -> Option<bool> {
        let value = self.value(section, name)?;
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        self.wrong_type(section, name, "true or false", value);
        None
    }

    /// A whole number within this range.
    pub fn count(
        &mut self,
        section: &Section<'t>,
        name: &str,
        (min, max): (u64, u64),
    ) -> Option<u64> {
        let value = self.value(section, name)?;
        let Some(number) = integer(value.get_ref()) else {
            self.wrong_type(section, name, "a whole number", value);
            return None;
        };
        match u64::try_from(number) {
            Ok(number) if (min..=max).contains(&number) => Some(number),
            _ => {
                let must = format!("must be {min} to {max}");
                self.invalid(section, name, number, must);
                None
            }
        }
    }

    /// A whole number that has 32 bits.
    pub fn count32(&mut self, section: &Section<'t>, name: &str, range: (u32, u32)) -> Option<u32> {
        let count = self.count(section, name, (range.0.into(), range.1.into()));
        count.and_then(|count| u32::try_from(count).ok())
    }

    /// A whole number that has 8 bits.
    pub fn count8(&mut self, section: &Section<'t>, name: &str, range: (u8, u8)) -> Option<u8> {
        let count = self.count(section, name, (range.0.into(), range.1.into()));
        count.and_then(|count| u8::try_from(count).ok())
    }

    /// A number with a unit, within this range of the smallest unit.
    pub fn quantity(
        &mut self,
        section: &Section<'t>,
        name: &str,
        quantity: &Quantity,
        (min, max): (u64, u64),
    ) -> Option<u64> {
        let value = self.value(section, name)?;
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            value @ DeValue::Integer(_) => integer(value).unwrap_or(-1).to_string(),
            _ => {
                self.wrong_type(section, name, "a string with a unit", value);
                return None;
            }
        };
        match quantity.read_in(&text, min..=max) {
            Ok(value) => Some(value),
            Err(error) => {
                self.invalid(section, name, format_args!("{text:?}"), error);
                None
            }
        }
    }

    /// A size in bytes.
    pub fn size(&mut self, section: &Section<'t>, name: &str, range: (u64, u64)) -> Option<u64> {
        self.quantity(section, name, &SIZE, range)
    }

    /// A time of at least `min` nanoseconds.
    pub fn span(&mut self, section: &Section<'t>, name: &str, min: u64) -> Option<Span> {
        let nanos = self.quantity(section, name, &TIME, (min, NANOS_MAX))?;
        Some(Span::from_nanos(nanos))
    }

    /// A probability, with or without a percent sign.
    pub fn probability(&mut self, section: &Section<'t>, name: &str) -> Option<Probability> {
        let value = self.value(section, name)?;
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            value @ DeValue::Integer(_) => integer(value).unwrap_or(-1).to_string(),
            DeValue::Float(digits) => digits.as_str().to_owned(),
            _ => {
                self.wrong_type(section, name, Probability::FORMS, value);
                return None;
            }
        };
        match text.parse() {
            Ok(probability) => Some(probability),
            Err(error) => {
                self.invalid(section, name, format_args!("{text:?}"), error);
                None
            }
        }
    }

    /// One of these words.
    pub fn word<T: Copy>(
        &mut self,
        section: &Section<'t>,
        name: &str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.string(section, name)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let must = instead(text, words.iter().map(|(word, _)| *word));
            self.invalid(section, name, format_args!("{text:?}"), must);
        }
        found.map(|(_, value)| *value)
    }

    /// The values of an array, or the one value that stands in its place.
    #[must_use]
    pub fn list(&self, section: &Section<'t>, name: &str) -> Option<Vec<&'t Value<'t>>> {
        let value = self.value(section, name)?;
        Some(match value.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![value],
        })
    }
}

/// The longest time that a file may have, in nanoseconds: a bit less than what picoseconds can count.
pub const NANOS_MAX: u64 = 86_400_000_000_000;

fn names(keys: &[impl Key]) -> Vec<&'static str> {
    keys.iter().map(Key::name).collect()
}

/// The whole number that a value is; beyond 64 bits, the nearest that they hold.
#[must_use]
pub fn integer(value: &DeValue<'_>) -> Option<i64> {
    let DeValue::Integer(digits) = value else {
        return None;
    };
    let negative = digits.as_str().starts_with('-');
    let beyond = if negative { i64::MIN } else { i64::MAX };
    Some(i64::from_str_radix(digits.as_str(), digits.radix()).unwrap_or(beyond))
}

/// Where the spans of values begin that are not in the file.
const NOWHERE: usize = usize::MAX;

/// The line on which a byte of a text is, counted from 1.
#[must_use]
pub fn line_of(text: &str, offset: usize) -> usize {
    let before = text.bytes().take(offset);
    1 + before.filter(|byte| *byte == b'\n').count()
}

/// What a value is, in words.
#[must_use]
pub const fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::Array(_) => "an array",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Integer(_) => "an integer",
        DeValue::String(_) => "a string",
        DeValue::Table(_) => "a table",
    }
}

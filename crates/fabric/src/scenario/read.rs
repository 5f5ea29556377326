//! Reads values from TOML, and collects errors in them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;

use ferroce_base::names::instead;
use ferroce_base::time::Span;
use ferroce_base::units::{Probability, Quantity, RATE, SIZE, TIME};
use ferroce_dcqcn::Rate;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Problem;
use super::keys::{Key, find};

type Value<'t> = Spanned<DeValue<'t>>;

/// What has been found on the way through a file.
pub(super) struct Reader<'t> {
    text: &'t str,
    pub(super) problems: Vec<Problem>,
    /// The line of each key, by its path.
    pub(super) lines: BTreeMap<String, usize>,
}

/// One table of the file, or none where it may be left out.
#[derive(Clone)]
pub(super) struct Section<'t> {
    /// What comes before the names of its keys: `switch.ecn.`.
    pub(super) path: String,
    line: Option<usize>,
    table: Option<&'t DeTable<'t>>,
    keys: &'static [Key],
}

impl Section<'_> {
    /// Whether the file has it.
    pub(super) fn is_there(&self) -> bool {
        self.table.is_some()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(name))
    }
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            problems: Vec::new(),
            lines: BTreeMap::new(),
        }
    }

    /// The whole file as a section.
    pub(super) fn root(&mut self, table: &'t DeTable<'t>, keys: &'static [Key]) -> Section<'t> {
        let section = Section {
            path: String::new(),
            line: None,
            table: Some(table),
            keys,
        };
        self.check_keys(&section);
        section
    }

    /// A table below another one.
    pub(super) fn section(
        &mut self,
        parent: &Section<'t>,
        name: &str,
        keys: &'static [Key],
    ) -> Section<'t> {
        let mut section = Section {
            path: format!("{}{name}.", parent.path),
            line: parent.line,
            table: None,
            keys,
        };
        let Some(value) = self.value(parent, name) else {
            return section;
        };
        section.line = Some(self.line_of(value));
        match value.get_ref() {
            DeValue::Table(table) => section.table = Some(table),
            _ => self.wrong_type(parent, name, "a table", value),
        }
        self.check_keys(&section);
        section
    }

    /// The tables of an array of them: `[[job]]`.
    pub(super) fn sections(
        &mut self,
        parent: &Section<'t>,
        name: &str,
        keys: &'static [Key],
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
                keys,
            };
            self.lines.insert(
                section.path.trim_end_matches('.').into(),
                self.line_of(value),
            );
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
            if find(section.keys, name.get_ref()).is_none() {
                let names = section.keys.iter().map(|key| key.name);
                let instead = instead(name.get_ref(), names);
                self.problem(Some(line), format!("unknown key {path}; {instead}"));
            }
            self.lines.insert(path, line);
        }
    }

    /// Says what is wrong.
    pub(super) fn problem(&mut self, line: Option<usize>, text: impl Into<String>) {
        self.problems.push(Problem {
            line: line.filter(|line| *line > 0),
            text: text.into(),
        });
    }

    /// Says what is wrong with the value of a key.
    pub(super) fn bad(&mut self, section: &Section<'t>, name: &str, text: impl Display) {
        let line = self.line(section, name);
        self.problem(line, format!("{}{name}: {text}", section.path));
    }

    /// Says that a value is not what it must be.
    pub(super) fn invalid(
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

    /// Says that a key is missing.
    pub(super) fn missing(&mut self, section: &Section<'t>, name: &str, example: &str) {
        let path = &section.path;
        self.problem(
            section.line,
            format!("missing {path}{name}; add {name} = {example}"),
        );
    }

    /// Says that a key has no place beside the others.
    pub(super) fn idle(&mut self, section: &Section<'t>, names: &[&str], why: impl Display) {
        for name in names.iter().filter(|name| section.has(name)) {
            self.bad(section, name, format_args!("{why}; leave it out"));
        }
    }

    /// The line of a key, or that of its table.
    pub(super) fn line(&self, section: &Section<'t>, name: &str) -> Option<usize> {
        let line = self.lines.get(&format!("{}{name}", section.path)).copied();
        line.or(section.line)
    }

    pub(super) fn value(&self, section: &Section<'t>, name: &str) -> Option<&'t Value<'t>> {
        debug_assert!(
            find(section.keys, name).is_some(),
            "{}{name} is in no table of keys",
            section.path
        );
        section.table?.get(name)
    }

    pub(super) fn line_of(&self, value: &Value<'t>) -> usize {
        self.line_at(value.span().start)
    }

    fn line_at(&self, offset: usize) -> usize {
        match offset {
            NOWHERE => 0,
            _ => line_of(self.text, offset),
        }
    }

    pub(super) fn wrong_type(
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

    pub(super) fn string(&mut self, section: &Section<'t>, name: &str) -> Option<&'t str> {
        let value = self.value(section, name)?;
        match value.get_ref() {
            DeValue::String(text) => Some(text),
            _ => {
                self.wrong_type(section, name, "a string", value);
                None
            }
        }
    }

    pub(super) fn flag(&mut self, section: &Section<'t>, name: &str) -> Option<bool> {
        let value = self.value(section, name)?;
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        self.wrong_type(section, name, "true or false", value);
        None
    }

    /// A whole number.
    pub(super) fn count(
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

    /// The same where it has 32 bits.
    pub(super) fn count32(
        &mut self,
        section: &Section<'t>,
        name: &str,
        range: (u32, u32),
    ) -> Option<u32> {
        let count = self.count(section, name, (range.0.into(), range.1.into()));
        count.and_then(|count| u32::try_from(count).ok())
    }

    /// The same where it has 8 bits.
    pub(super) fn count8(
        &mut self,
        section: &Section<'t>,
        name: &str,
        range: (u8, u8),
    ) -> Option<u8> {
        let count = self.count(section, name, (range.0.into(), range.1.into()));
        count.and_then(|count| u8::try_from(count).ok())
    }

    fn quantity(
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

    pub(super) fn size(
        &mut self,
        section: &Section<'t>,
        name: &str,
        range: (u64, u64),
    ) -> Option<u64> {
        self.quantity(section, name, &SIZE, range)
    }

    /// A time of at least so many nanoseconds.
    pub(super) fn span(&mut self, section: &Section<'t>, name: &str, min: u64) -> Option<Span> {
        let nanos = self.quantity(section, name, &TIME, (min, NANOS_MAX))?;
        Some(Span::from_nanos(nanos))
    }

    pub(super) fn rate(&mut self, section: &Section<'t>, name: &str) -> Option<Rate> {
        let range = (crate::topology::RATE_MIN.bps(), Rate::MAX.bps());
        let bps = self.quantity(section, name, &RATE, range)?;
        Some(Rate::from_bps(bps))
    }

    /// A probability, as so many of 2^32.
    pub(super) fn share(&mut self, section: &Section<'t>, name: &str) -> Option<u32> {
        let value = self.probability(section, name)?.as_f64() * 4_294_967_296.0;
        Some(value.round().min(f64::from(u32::MAX)) as u32)
    }

    pub(super) fn probability(&mut self, section: &Section<'t>, name: &str) -> Option<Probability> {
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
    pub(super) fn word<T: Copy>(
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
    pub(super) fn list(&self, section: &Section<'t>, name: &str) -> Option<Vec<&'t Value<'t>>> {
        let value = self.value(section, name)?;
        Some(match value.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![value],
        })
    }
}

/// A bit less than what picoseconds can count.
pub(super) const NANOS_MAX: u64 = 86_400_000_000_000;

/// The whole number that a value is.
pub(super) fn integer(value: &DeValue<'_>) -> Option<i64> {
    let DeValue::Integer(digits) = value else {
        return None;
    };
    let negative = digits.as_str().starts_with('-');
    let beyond = if negative { i64::MIN } else { i64::MAX };
    Some(i64::from_str_radix(digits.as_str(), digits.radix()).unwrap_or(beyond))
}

/// Where the spans of values begin that are not in the file.
pub(super) const NOWHERE: usize = usize::MAX;

pub(super) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.bytes().take(offset);
    1 + before.filter(|byte| *byte == b'\n').count()
}

fn type_of(value: &DeValue<'_>) -> &'static str {
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

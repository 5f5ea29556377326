//! Reads a profile from TOML and collects problems with its form.

use std::borrow::{Cow, ToOwned};
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use ferroce_base::names::instead;
use ferroce_prm::roce_accl;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{HEADER, Header, Key, Needed, RANGE, Takes, is_known};
use super::{Document, FileError, Oversize, Problem, full, line_of};
use crate::raw::RawRange;

/// The profile in a table of TOML that was made of `text`.
pub(super) fn document(text: &str, table: &DeTable<'_>) -> Result<Document, FileError> {
    let mut reader = Reader {
        text,
        problems: Vec::new(),
        document: Document::empty(),
    };
    reader.document(table);
    if reader.problems.is_empty() {
        return Ok(reader.document);
    }
    reader.problems.sort_by_key(Problem::line);
    Err(FileError {
        problems: reader.problems,
    })
}

struct Reader<'a> {
    text: &'a str,
    problems: Vec<Problem>,
    document: Document,
}

impl Reader<'_> {
    fn document(&mut self, table: &DeTable<'_>) {
        let mut tables = None;
        let mut range_num = None;
        for (name, value) in table {
            let Some(key) = self.key(HEADER, name, None) else {
                continue;
            };
            match &key.field {
                Header::Ranges => tables = self.ranges(value),
                Header::RangeNum => {
                    let max = u8::MAX.into();
                    range_num = self.value((key.name, None), key.takes, max, value);
                }
                Header::Field(field) => {
                    let place = (key.name, None);
                    if let Some(value) = self.value(place, key.takes, field.max(), value) {
                        field.set(&mut self.document.raw, value);
                    }
                }
            }
        }
        let own_total = table
            .get("qp_total_timeout")
            .and_then(|value| value.get_ref().as_bool());
        // No range at all is a question of values when the file says so itself.
        let says_none = range_num == Some(0);
        for key in HEADER {
            let example = match key.needed {
                Needed::Always(example) => Some(example),
                Needed::WithoutQpTotal(example) => (own_total == Some(false)).then_some(example),
                Needed::UnlessNone(example) => (!says_none).then_some(example),
                Needed::No => None,
            };
            self.require(table, key.name, example, None, None);
        }
        self.count_ranges(range_num, tables.unwrap_or_else(|| usize::from(!says_none)));
    }

    /// Settles how many ranges are in use, when the file says `range_num` and has so many tables.
    fn count_ranges(&mut self, range_num: Option<u16>, tables: usize) {
        let in_use = range_num.map_or(tables, usize::from);
        self.document.raw.range_num = u8::try_from(in_use).unwrap_or(u8::MAX);
        if in_use > tables {
            let place = ("range_num", None);
            let oversize = self.document.oversize.get(&place);
            let line = self.document.lines.get(&place).copied();
            self.problems.push(Problem::RangeNum {
                range_num: oversize.map_or(in_use as i64, |oversize| oversize.value),
                tables,
                line,
            });
        }
    }

    /// Reads the ranges and returns how many there are.
    fn ranges(&mut self, value: &Spanned<DeValue<'_>>) -> Option<usize> {
        self.note("timeout_range", None, value);
        self.note("range_num", None, value);
        let DeValue::Array(array) = value.get_ref() else {
            let name = "timeout_range".to_owned();
            self.wrong_type(name, "[[timeout_range]] tables", value);
            return None;
        };
        for (i, value) in array.iter().enumerate() {
            let DeValue::Table(table) = value.get_ref() else {
                self.wrong_type(format!("timeout_range[{i}]"), "a table", value);
                continue;
            };
            let line = line_of(self.text, value.span().start);
            let range = self.range(i, line, table);
            // More than four are counted, and refused by the check.
            if let Some(entry) = self.document.raw.timeout_range.get_mut(i) {
                *entry = range;
            }
        }
        Some(array.len())
    }

    fn range(&mut self, i: usize, line: usize, table: &DeTable<'_>) -> RawRange {
        let mut range = RawRange::EMPTY;
        for (name, value) in table {
            let Some(key) = self.key(RANGE, name, Some(i)) else {
                continue;
            };
            let place = (key.name, Some(i));
            if let Some(value) = self.value(place, key.takes, key.field.max(), value) {
                key.field.set(&mut range, value);
            }
        }
        for key in RANGE {
            let example = match key.needed {
                Needed::Always(example) => Some(example),
                _ => None,
            };
            self.require(table, key.name, example, Some(i), Some(line));
        }
        range
    }

    fn key<F>(
        &mut self,
        keys: &'static [Key<F>],
        name: &Spanned<Cow<'_, str>>,
        range: Option<usize>,
    ) -> Option<&'static Key<F>> {
        let found = keys.iter().find(|key| key.name == name.get_ref());
        if found.is_none() {
            let key = full(name.get_ref(), range);
            let line = Some(line_of(self.text, name.span().start));
            self.problems.push(if is_known(name.get_ref()) {
                let place = match range {
                    Some(_) => "the profile; move it above the first [[timeout_range]]",
                    None => "a range; move it below a [[timeout_range]]",
                };
                Problem::Misplaced { key, place, line }
            } else {
                let names = keys.iter().map(|key| key.name);
                let instead = instead(name.get_ref(), names);
                Problem::UnknownKey { key, instead, line }
            });
        }
        found
    }

    /// The value as an integer of at most `max`: booleans are 0 and 1, words their numbers.
    fn value(
        &mut self,
        place: (&'static str, Option<usize>),
        takes: Takes,
        max: u16,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<u16> {
        let (name, range) = place;
        self.note(name, range, value);
        let expected = match (takes, value.get_ref()) {
            (Takes::Boolean, DeValue::Boolean(value)) => return Some((*value).into()),
            (
                Takes::Integer { .. } | Takes::PowerOfTwo | Takes::DecMode,
                DeValue::Integer(digits),
            ) => {
                let negative = digits.as_str().starts_with('-');
                let beyond = if negative { i64::MIN } else { i64::MAX };
                let value = i64::from_str_radix(digits.as_str(), digits.radix()).unwrap_or(beyond);
                let held = value.clamp(0, max.into());
                if held != value {
                    let max = takes.max();
                    let oversize = Oversize { value, max };
                    self.document.oversize.insert(place, oversize);
                }
                return u16::try_from(held).ok();
            }
            (Takes::DecMode, DeValue::String(word)) => return self.dec_mode(place, word, value),
            (Takes::Boolean, _) => "true or false",
            (Takes::DecMode, _) => "\"TO_DIV_4\", \"TO_DIV_2\" or \"TO_LOW_BOUND\"",
            (Takes::Integer { .. } | Takes::PowerOfTwo | Takes::Ranges, _) => "an integer",
        };
        self.wrong_type(full(name, range), expected, value);
        None
    }

    fn dec_mode(
        &mut self,
        (name, range): (&'static str, Option<usize>),
        word: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<u16> {
        let modes = &roce_accl::DEC_MODE[0];
        let number = modes.value_named(word);
        if number.is_none() {
            let words = modes.values().iter().map(|(_, name)| *name);
            self.problems.push(Problem::UnknownValue {
                key: full(name, range),
                value: word.to_string(),
                allowed: words.collect::<Vec<_>>().join(", "),
                line: Some(line_of(self.text, value.span().start)),
            });
        }
        number.and_then(|number| u16::try_from(number).ok())
    }

    fn wrong_type(&mut self, key: String, expected: &'static str, value: &Spanned<DeValue<'_>>) {
        let line = Some(line_of(self.text, value.span().start));
        let got = match value.get_ref() {
            DeValue::Array(_) => "an array",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Integer(_) => "an integer",
            DeValue::String(_) => "a string",
            DeValue::Table(_) => "a table",
        };
        self.problems.push(Problem::WrongType {
            key,
            expected,
            got,
            line,
        });
    }

    fn require(
        &mut self,
        table: &DeTable<'_>,
        name: &'static str,
        example: Option<&str>,
        range: Option<usize>,
        line: Option<usize>,
    ) {
        if let Some(example) = example.filter(|_| !table.contains_key(name)) {
            self.problems.push(Problem::Missing {
                key: full(name, range),
                example: example.to_owned(),
                line,
            });
        }
    }

    fn note(&mut self, name: &'static str, range: Option<usize>, value: &Spanned<DeValue<'_>>) {
        let line = line_of(self.text, value.span().start);
        self.document.lines.entry((name, range)).or_insert(line);
    }
}

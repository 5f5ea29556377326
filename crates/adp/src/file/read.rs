//! Reads a profile from TOML and collects problems with its form.

use std::format;
use std::vec::Vec;

use ferroce_base::toml_file::{Reader, Section, Value, integer, type_of};
use ferroce_prm::roce_accl;
use toml::de::{DeTable, DeValue};

use super::key::{HEADER, Header, Key, Needed, RANGE, Takes, is_known};
use super::{Document, FileError, Oversize, full};
use crate::raw::RawRange;

impl<F> ferroce_base::toml_file::Key for Key<F> {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// The profile in a table of TOML that was made of `text`.
pub(super) fn document(text: &str, table: &DeTable<'_>) -> Result<Document, FileError> {
    let mut reading = Reading {
        reader: Reader::new(text).with_misplaced(misplaced),
        document: Document::empty(),
    };
    reading.document(table);
    let lines = reading.reader.end()?;
    Ok(Document {
        lines,
        ..reading.document
    })
}

fn misplaced(section: &Section<'_>, name: &str) -> Option<&'static str> {
    let place = match section.name() {
        "" => "is a key of a range; move it below a [[timeout_range]]",
        _ => "is a key of the profile; move it above the first [[timeout_range]]",
    };
    is_known(name).then_some(place)
}

struct Reading<'t> {
    reader: Reader<'t>,
    document: Document,
}

impl<'t> Reading<'t> {
    fn document(&mut self, table: &'t DeTable<'t>) {
        let root = self.reader.root(table, HEADER);
        let mut tables = None;
        let mut range_num = None;
        for key in HEADER {
            let Some(value) = self.reader.value(&root, key.name) else {
                continue;
            };
            let place = (key.name, None);
            match &key.field {
                Header::Ranges => tables = self.ranges(&root, value),
                Header::RangeNum => {
                    range_num = self.value(place, key.takes, u8::MAX.into(), value);
                }
                Header::Field(field) => {
                    if let Some(value) = self.value(place, key.takes, field.max(), value) {
                        field.set(&mut self.document.raw, value);
                    }
                }
            }
        }
        let own_total = self.reader.value(&root, "qp_total_timeout");
        let own_total = own_total.and_then(|value| value.get_ref().as_bool());
        // No range at all is a question of values when the file says so itself.
        let says_none = range_num == Some(0);
        for key in HEADER {
            let example = match key.needed {
                Needed::Always(example) => Some(example),
                Needed::WithoutQpTotal(example) => (own_total == Some(false)).then_some(example),
                Needed::UnlessNone(example) => (!says_none).then_some(example),
                Needed::No => None,
            };
            self.require(&root, key.name, example);
        }
        let tables = tables.unwrap_or_else(|| usize::from(!says_none));
        self.count_ranges(&root, range_num, tables);
    }

    /// Settles how many ranges are in use, when the file says `range_num` and has this number of tables.
    fn count_ranges(&mut self, root: &Section<'t>, range_num: Option<u16>, tables: usize) {
        let in_use = range_num.map_or(tables, usize::from);
        self.document.raw.range_num = u8::try_from(in_use).unwrap_or(u8::MAX);
        if in_use > tables {
            let oversize = self.document.oversize.get(&("range_num", None));
            let range_num = oversize.map_or(in_use as i64, |oversize| oversize.value);
            let text = format!(
                "range_num = {range_num}, but there are {tables} [[timeout_range]] tables; leave \
                 range_num out or write {tables}"
            );
            let line = self.reader.line(root, "range_num");
            self.reader.problem(line, text);
        }
    }

    /// Reads the ranges and returns how many there are.
    fn ranges(&mut self, root: &Section<'t>, value: &'t Value<'t>) -> Option<usize> {
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type("timeout_range", "[[timeout_range]] tables", value);
            return None;
        };
        let others = array.iter().enumerate();
        let others: Vec<_> = others.filter(|(_, it)| !it.get_ref().is_table()).collect();
        for (i, value) in &others {
            self.wrong_type(&format!("timeout_range[{i}]"), "a table", value);
        }
        if others.is_empty() {
            let sections = self.reader.sections(root, "timeout_range", RANGE);
            for (i, section) in sections.iter().enumerate() {
                let range = self.range(i, section);
                // More than four are counted, and refused by the check.
                if let Some(entry) = self.document.raw.timeout_range.get_mut(i) {
                    *entry = range;
                }
            }
        }
        Some(array.len())
    }

    fn range(&mut self, i: usize, section: &Section<'t>) -> RawRange {
        let mut range = RawRange::EMPTY;
        for key in RANGE {
            let place = (key.name, Some(i));
            if let Some(value) = self.reader.value(section, key.name)
                && let Some(value) = self.value(place, key.takes, key.field.max(), value)
            {
                key.field.set(&mut range, value);
            }
            let example = match key.needed {
                Needed::Always(example) => Some(example),
                _ => None,
            };
            self.require(section, key.name, example);
        }
        range
    }

    /// The value as an integer of at most `max`: booleans are 0 and 1, words their numbers.
    fn value(
        &mut self,
        place: (&'static str, Option<usize>),
        takes: Takes,
        max: u16,
        value: &Value<'t>,
    ) -> Option<u16> {
        let (name, range) = place;
        let expected = match (takes, value.get_ref()) {
            (Takes::Boolean, DeValue::Boolean(value)) => return Some((*value).into()),
            (
                Takes::Integer { .. } | Takes::PowerOfTwo | Takes::DecMode,
                number @ DeValue::Integer(_),
            ) => {
                let value = integer(number)?;
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
        self.wrong_type(&full(name, range), expected, value);
        None
    }

    fn dec_mode(
        &mut self,
        (name, range): (&'static str, Option<usize>),
        word: &str,
        value: &Value<'t>,
    ) -> Option<u16> {
        let modes = &roce_accl::DEC_MODE[0];
        let number = modes.value_named(word);
        if number.is_none() {
            let words = modes.values().iter().map(|(_, name)| *name);
            let allowed = words.collect::<Vec<_>>().join(", ");
            let key = full(name, range);
            let text = format!("{key} = \"{word}\" is unknown; allowed: {allowed}");
            self.reader.problem(Some(self.reader.line_of(value)), text);
        }
        number.and_then(|number| u16::try_from(number).ok())
    }

    fn wrong_type(&mut self, key: &str, expected: &str, value: &Value<'t>) {
        let got = type_of(value.get_ref());
        let text = format!("{key} takes {expected}, not {got}");
        self.reader.problem(Some(self.reader.line_of(value)), text);
    }

    fn require(&mut self, section: &Section<'t>, name: &str, example: Option<&str>) {
        if let Some(example) = example.filter(|_| !section.has(name)) {
            let text = format!("{}{name} is missing; add {example}", section.path);
            self.reader.problem(self.reader.line(section, name), text);
        }
    }
}

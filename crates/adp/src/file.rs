//! Profiles as TOML files.
//!
//! The keys are the register's own field names. One table of [`KEYS`] drives reading, writing and
//! the JSON Schema. What a file may leave out counts as the register's zero, but for `time_unit`,
//! which is microseconds, and `range_num`, which is the number of `[[timeout_range]]` tables.
//!
//! Writing a profile and reading it back loses nothing: what the register holds beyond `range_num` is written as
//! further tables, with `range_num` in front of them.
//!
//! ```
//! use ferroce_adp::file;
//!
//! let text = "
//!     time_base = 4
//!     qp_total_timeout = true
//!     timeout_init_low_bound = 8
//!     [[timeout_range]]
//!     range_low_bound = 8
//!     range_size = 6
//!     timeout_retry_num = 1
//!     dec_mode = 'TO_LOW_BOUND'
//! ";
//! let document = file::Document::parse(text).unwrap();
//! assert!(document.check().is_valid());
//! let canonical = file::to_toml(document.raw());
//! assert_eq!(file::Document::parse(&canonical).unwrap().raw(), document.raw());
//! ```

use std::borrow::ToOwned;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use ferroce_prm::roce_accl;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::check::{FieldName, Report, Rule, Violation};
use crate::policy::{AckTimeoutFloor, NEVER_NS, QpTimeouts};
use crate::profile::{Profile, RANGE_NUM_MAX, RawProfile, RawRange};
use crate::time::Ns;

/// A profile file that was read: its values, good or bad, and where they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    raw: RawProfile,
    /// Integers that no field of the profile can hold.
    oversize: BTreeMap<Place, i64>,
    lines: BTreeMap<Place, usize>,
}

/// Key and range of a value.
type Place = (&'static str, Option<usize>);

impl Document {
    /// Reads a file. All problems of its form are found at once; what the values mean is not looked
    /// at before [`check`](Self::check).
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            FileError {
                problems: Vec::from([Problem::Syntax {
                    line,
                    message: error.message().to_owned(),
                }]),
            }
        })?;
        let mut reader = Reader {
            text,
            problems: Vec::new(),
            document: Self::empty(),
        };
        reader.document(table.get_ref());
        if reader.problems.is_empty() {
            Ok(reader.document)
        } else {
            reader.problems.sort_by_key(Problem::line);
            Err(FileError {
                problems: reader.problems,
            })
        }
    }

    /// The values. Integers that no field can hold stand here as the nearest one that can be held.
    #[must_use]
    pub const fn raw(&self) -> &RawProfile {
        &self.raw
    }

    /// The line on which a field was written, counted from 1.
    #[must_use]
    pub fn line(&self, field: FieldName) -> Option<usize> {
        self.lines.get(&(field.name, field.range)).copied()
    }

    /// [`RawProfile::check`], with the integers as the file has them.
    #[must_use]
    pub fn check(&self) -> Report {
        self.with_oversize(self.raw.check())
    }

    /// [`RawProfile::check_for`], with the integers as the file has them.
    #[must_use]
    pub fn check_for(&self, qp: QpTimeouts, floor: AckTimeoutFloor) -> Report {
        self.with_oversize(self.raw.check_for(qp, floor))
    }

    /// The profile, if it is valid.
    pub fn profile(&self) -> Result<Profile, Report> {
        let report = self.check();
        match Profile::try_from(self.raw) {
            Ok(profile) if report.is_valid() => Ok(profile),
            _ => Err(report),
        }
    }

    fn empty() -> Self {
        Self {
            raw: RawProfile::EMPTY,
            oversize: BTreeMap::new(),
            lines: BTreeMap::new(),
        }
    }

    fn with_oversize(&self, mut report: Report) -> Report {
        for (&(name, range), &value) in &self.oversize {
            let field = FieldName { name, range };
            if let Some(found) = report
                .violations
                .iter_mut()
                .find(|found| found.field == field)
            {
                found.value = value;
                continue;
            }
            let Some(Kind::Integer { max, .. }) = key_of(name).map(|key| key.kind) else {
                continue;
            };
            let allowed = format!("0 to {max}");
            let instead = format!("{name} = {}", value.clamp(0, max.into()));
            report.violations.push(Violation {
                rule: Rule::Width,
                field,
                value,
                allowed,
                instead,
            });
        }
        if !report.violations.is_empty() {
            report.warnings.clear();
        }
        report
    }
}

/// A file is not a profile, whatever its values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct FileError {
    /// What is wrong, at least one, in the order of the file.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with the form of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A key of a profile stands where it means nothing.
    #[error("{key} is a key of {place}")]
    Misplaced {
        /// The key, with its range.
        key: String,
        /// Where it belongs.
        place: &'static str,
        /// Where it is.
        line: Option<usize>,
    },
    /// A required key is missing.
    #[error("{key} is missing; add {example}")]
    Missing {
        /// The key, with its range.
        key: String,
        /// A line that would do.
        example: String,
        /// Where its table begins.
        line: Option<usize>,
    },
    /// `range_num` promises more tables than there are.
    #[error(
        "range_num = {range_num}, but there are {tables} [[timeout_range]] tables; leave range_num out or write {tables}"
    )]
    RangeNum {
        /// What the file says.
        range_num: i64,
        /// What it has.
        tables: usize,
        /// Where.
        line: Option<usize>,
    },
    /// The file is not TOML.
    #[error("not TOML: {message}")]
    Syntax {
        /// What the parser says.
        message: String,
        /// Where.
        line: Option<usize>,
    },
    /// A key is not one of a profile.
    #[error("unknown key {key}; the nearest key is {nearest}")]
    UnknownKey {
        /// The key, with its range.
        key: String,
        /// The valid key that resembles it most.
        nearest: &'static str,
        /// Where.
        line: Option<usize>,
    },
    /// A word is not one of an enumeration.
    #[error("{key} = \"{value}\" is unknown; allowed are {allowed}")]
    UnknownValue {
        /// The key, with its range.
        key: String,
        /// The word.
        value: String,
        /// The words that are known.
        allowed: String,
        /// Where.
        line: Option<usize>,
    },
    /// A value has the wrong type.
    #[error("{key} takes {expected}, not {got}")]
    WrongType {
        /// The key, with its range.
        key: String,
        /// What it takes.
        expected: &'static str,
        /// What it got.
        got: &'static str,
        /// Where.
        line: Option<usize>,
    },
}

impl Problem {
    /// The line it is on, counted from 1.
    #[must_use]
    pub const fn line(&self) -> Option<usize> {
        match self {
            Self::Misplaced { line, .. }
            | Self::Missing { line, .. }
            | Self::RangeNum { line, .. }
            | Self::Syntax { line, .. }
            | Self::UnknownKey { line, .. }
            | Self::UnknownValue { line, .. }
            | Self::WrongType { line, .. } => *line,
        }
    }
}

/// The profile as a file, with every duration spelt out in a comment.
#[must_use]
pub fn to_toml(raw: &RawProfile) -> String {
    // Durations can only be told where the base is one.
    let base = raw
        .time_base
        .is_power_of_two()
        .then(|| raw.time_base.trailing_zeros());
    let ns = |exponent: u16| match base {
        Some(log2) if log2 + u32::from(exponent) <= 53 => Ns(1000 << (log2 + u32::from(exponent))),
        _ => Ns(NEVER_NS),
    };
    let mut out = Lines {
        text: String::new(),
    };
    out.line("time_base", raw.time_base, "us");
    if raw.time_unit != 1 {
        out.line("time_unit", raw.time_unit, "reserved");
    }
    out.line(
        "qp_total_timeout",
        raw.qp_total_timeout,
        match raw.qp_total_timeout {
            true => "the QP's timeout * retry_cnt",
            false => "retx_total_timeout",
        },
    );
    let total = match raw.qp_total_timeout {
        true => "not used".to_owned(),
        false => ns(raw.retx_total_timeout.into()).to_string(),
    };
    out.line("retx_total_timeout", raw.retx_total_timeout, &total);
    let used = raw
        .timeout_range
        .iter()
        .rposition(|range| *range != RawRange::EMPTY);
    let tables = used
        .map_or(0, |last| last + 1)
        .max(usize::from(raw.range_num))
        .min(RANGE_NUM_MAX);
    if usize::from(raw.range_num) != tables {
        out.line(
            "range_num",
            raw.range_num,
            "further tables are kept, but not used",
        );
    }
    out.line("start_range_index", raw.start_range_index, "");
    let low = u16::from(raw.timeout_init_low_bound);
    out.line("timeout_init_low_bound", low, &ns(low).to_string());
    let size = u16::from(raw.timeout_init_range_size);
    let high = low + size.max(1) - 1;
    out.line(
        "timeout_init_range_size",
        size,
        &format!("drawn up to {}", ns(high)),
    );
    for range in &raw.timeout_range[..tables] {
        out.text += "\n[[timeout_range]]\n";
        let low = u16::from(range.range_low_bound);
        out.line("range_low_bound", low, &ns(low).to_string());
        let size = u16::from(range.range_size);
        out.line("range_size", size, &format!("up to {}", ns(low + size)));
        out.line("timeout_retry_num", range.timeout_retry_num, "");
        match roce_accl::DEC_MODE[0].value_name(range.dec_mode.into()) {
            Some(name) => out.line("dec_mode", format!("\"{name}\""), ""),
            None => out.line("dec_mode", range.dec_mode, "reserved"),
        }
        out.line("prev_range_index", range.prev_range_index, "");
    }
    out.text
}

/// The JSON Schema of a profile file.
#[must_use]
pub fn json_schema() -> String {
    let mut out = String::from(
        "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \"Ferroce \
         adaptive retransmission profile\",\n",
    );
    schema_object(&mut out, "  ", HEADER, true);
    out += "\n}\n";
    out
}

/// The candidate that resembles `word` most.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .min_by_key(|candidate| distance(word, candidate))
}

/// A key of a profile file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key itself.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// A line that shows it, when a file must have the key.
    pub example: Option<&'static str>,
    /// What it means, one sentence.
    pub doc: &'static str,
}

/// What a [`Key`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A `dec_mode` word, or its number.
    DecMode,
    /// An integer that a device can accept.
    Integer {
        /// The smallest.
        min: u16,
        /// The largest.
        max: u16,
    },
    /// The `[[timeout_range]]` tables.
    Ranges,
}

/// Every key outside the ranges, then every key of a range.
pub const KEYS: [&[Key]; 2] = [HEADER, RANGE];

const HEADER: &[Key] = &[
    Key {
        name: "time_base",
        kind: Kind::Integer { min: 4, max: 32768 },
        example: Some("time_base = 4"),
        doc: "Base of all durations in microseconds, a power of two; exponent n means time_base << n.",
    },
    Key {
        name: "time_unit",
        kind: Kind::Integer { min: 1, max: 1 },
        example: None,
        doc: "Unit of time_base; 1 is microseconds, the only one there is.",
    },
    Key {
        name: "qp_total_timeout",
        kind: Kind::Boolean,
        example: Some("qp_total_timeout = true"),
        doc: "Whether the QP's timeout * retry_cnt limits an outage, or retx_total_timeout does.",
    },
    Key {
        name: "retx_total_timeout",
        kind: Kind::Integer { min: 0, max: 255 },
        example: None,
        doc: "Exponent of the longest outage; needed when qp_total_timeout is false.",
    },
    Key {
        name: "range_num",
        kind: Kind::Integer { min: 1, max: 4 },
        example: None,
        doc: "How many [[timeout_range]] tables are in use; all of them when left out.",
    },
    Key {
        name: "start_range_index",
        kind: Kind::Integer { min: 0, max: 3 },
        example: None,
        doc: "The range that follows an initial timeout outside every range.",
    },
    Key {
        name: "timeout_init_low_bound",
        kind: Kind::Integer { min: 0, max: 255 },
        example: Some("timeout_init_low_bound = 8"),
        doc: "The smallest exponent of the initial timeout.",
    },
    Key {
        name: "timeout_init_range_size",
        kind: Kind::Integer { min: 0, max: 255 },
        example: None,
        doc: "How many exponents the initial timeout is drawn from; 0 means 1.",
    },
    Key {
        name: "timeout_range",
        kind: Kind::Ranges,
        example: Some("a [[timeout_range]] table"),
        doc: "The ranges, sorted by range_low_bound.",
    },
];

const RANGE: &[Key] = &[
    Key {
        name: "range_low_bound",
        kind: Kind::Integer { min: 0, max: 255 },
        example: Some("range_low_bound = 8"),
        doc: "The smallest exponent of the range.",
    },
    Key {
        name: "range_size",
        kind: Kind::Integer { min: 0, max: 255 },
        example: None,
        doc: "How far the range reaches above its low bound, in exponents; 0 is a single timeout.",
    },
    Key {
        name: "timeout_retry_num",
        kind: Kind::Integer { min: 0, max: 1023 },
        example: Some("timeout_retry_num = 1"),
        doc: "How many times each timeout is used before it doubles; 0 counts as 1.",
    },
    Key {
        name: "dec_mode",
        kind: Kind::DecMode,
        example: Some("dec_mode = \"TO_LOW_BOUND\""),
        doc: "How the timeout shrinks with progress: to a quarter, to a half, or to the low bound.",
    },
    Key {
        name: "prev_range_index",
        kind: Kind::Integer { min: 0, max: 3 },
        example: None,
        doc: "The range that follows downwards, below the low bound; smaller than the range's own.",
    },
];

/// Reads tables and gathers what is wrong with them.
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
            if key.kind == Kind::Ranges {
                tables = self.ranges(value);
                continue;
            }
            let Some(value) = self.value(key, None, value) else {
                continue;
            };
            let raw = &mut self.document.raw;
            match key.name {
                "time_base" => raw.time_base = half(value),
                "time_unit" => raw.time_unit = byte(value),
                "qp_total_timeout" => raw.qp_total_timeout = value != 0,
                "retx_total_timeout" => raw.retx_total_timeout = byte(value),
                "range_num" => range_num = Some(value),
                "start_range_index" => raw.start_range_index = byte(value),
                "timeout_init_low_bound" => raw.timeout_init_low_bound = byte(value),
                "timeout_init_range_size" => raw.timeout_init_range_size = byte(value),
                name => unreachable!("{name} is in the table of keys"),
            }
        }
        let own_total = table
            .get("qp_total_timeout")
            .and_then(|value| value.get_ref().as_bool());
        let needs_total = own_total == Some(false);
        // No range at all is a question of values when the file says so itself.
        let says_none = range_num == Some(0);
        for key in HEADER {
            let example = match key.name {
                "timeout_range" if says_none => None,
                "retx_total_timeout" if needs_total => Some("retx_total_timeout = 20"),
                _ => key.example,
            };
            self.require(table, key.name, example, None, None);
        }
        let tables = tables.unwrap_or_else(|| usize::from(!says_none));
        self.document.raw.range_num = byte(range_num.unwrap_or_else(|| count(tables)));
        if let Some(range_num) = range_num.filter(|&num| num > count(tables)) {
            let line = self.document.lines.get(&("range_num", None)).copied();
            self.problems.push(Problem::RangeNum {
                range_num,
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
            self.wrong_type(
                "timeout_range".to_owned(),
                "[[timeout_range]] tables",
                value,
            );
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
            let Some(value) = self.value(key, Some(i), value) else {
                continue;
            };
            match key.name {
                "range_low_bound" => range.range_low_bound = byte(value),
                "range_size" => range.range_size = byte(value),
                "timeout_retry_num" => range.timeout_retry_num = half(value),
                "dec_mode" => range.dec_mode = byte(value),
                "prev_range_index" => range.prev_range_index = byte(value),
                name => unreachable!("{name} is in the table of keys"),
            }
        }
        for key in RANGE {
            self.require(table, key.name, key.example, Some(i), Some(line));
        }
        range
    }

    fn key(
        &mut self,
        keys: &'static [Key],
        name: &Spanned<std::borrow::Cow<'_, str>>,
        range: Option<usize>,
    ) -> Option<&'static Key> {
        let found = keys.iter().find(|key| key.name == name.get_ref());
        if found.is_none() {
            let key = full(name.get_ref(), range);
            let line = Some(line_of(self.text, name.span().start));
            self.problems.push(if key_of(name.get_ref()).is_none() {
                let names = keys.iter().map(|key| key.name);
                let nearest = nearest(name.get_ref(), names).unwrap_or_default();
                Problem::UnknownKey { key, nearest, line }
            } else {
                let place = match range {
                    Some(_) => "the profile; move it above the first [[timeout_range]]",
                    None => "a range; move it below a [[timeout_range]]",
                };
                Problem::Misplaced { key, place, line }
            });
        }
        found
    }

    /// The value as an integer: booleans are 0 and 1, words their numbers.
    fn value(
        &mut self,
        key: &'static Key,
        range: Option<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<i64> {
        self.note(key.name, range, value);
        let name = || full(key.name, range);
        match (key.kind, value.get_ref()) {
            (Kind::Boolean, DeValue::Boolean(value)) => Some((*value).into()),
            (Kind::Integer { .. } | Kind::DecMode, DeValue::Integer(digits)) => {
                let negative = digits.as_str().starts_with('-');
                let beyond = if negative { i64::MIN } else { i64::MAX };
                let value = i64::from_str_radix(digits.as_str(), digits.radix()).unwrap_or(beyond);
                let max = match key.name {
                    "time_base" | "timeout_retry_num" => u16::MAX,
                    _ => u8::MAX.into(),
                };
                if !(0..=i64::from(max)).contains(&value) {
                    self.document.oversize.insert((key.name, range), value);
                }
                Some(value.clamp(0, max.into()))
            }
            (Kind::DecMode, DeValue::String(word)) => {
                let number = roce_accl::DEC_MODE[0].value_named(word);
                if number.is_none() {
                    let words = roce_accl::DEC_MODE[0]
                        .values()
                        .iter()
                        .map(|(_, name)| *name);
                    self.problems.push(Problem::UnknownValue {
                        key: name(),
                        value: word.to_string(),
                        allowed: words.collect::<Vec<_>>().join(", "),
                        line: Some(line_of(self.text, value.span().start)),
                    });
                }
                number.map(Into::into)
            }
            (Kind::Boolean, _) => self.wrong_type(name(), "true or false", value),
            (Kind::DecMode, _) => self.wrong_type(
                name(),
                "\"TO_DIV_4\", \"TO_DIV_2\" or \"TO_LOW_BOUND\"",
                value,
            ),
            (Kind::Integer { .. } | Kind::Ranges, _) => {
                self.wrong_type(name(), "an integer", value)
            }
        }
    }

    fn wrong_type(
        &mut self,
        key: String,
        expected: &'static str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<i64> {
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
        None
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
            let example = example.to_owned();
            self.problems.push(Problem::Missing {
                key: full(name, range),
                example,
                line,
            });
        }
    }

    fn note(&mut self, name: &'static str, range: Option<usize>, value: &Spanned<DeValue<'_>>) {
        let line = line_of(self.text, value.span().start);
        self.document.lines.entry((name, range)).or_insert(line);
    }
}

/// Lines of a canonical file.
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, name: &str, value: impl ToString, comment: &str) {
        let assignment = format!("{name} = {}", value.to_string());
        // Writing to a String cannot fail.
        let _ = match comment {
            "" => writeln!(self.text, "{assignment}"),
            _ => writeln!(self.text, "{assignment:<30}# {comment}"),
        };
    }
}

fn schema_object(out: &mut String, indent: &str, keys: &[Key], is_root: bool) {
    let required: Vec<_> = keys
        .iter()
        .filter(|key| key.example.is_some())
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
        match key.kind {
            Kind::Boolean => *out += &format!("{indent}    \"type\": \"boolean\"\n"),
            Kind::DecMode => {
                let words = roce_accl::DEC_MODE[0].values().iter();
                let words: Vec<_> = words.map(|(_, word)| format!("\"{word}\"")).collect();
                *out += &format!("{indent}    \"enum\": [{}]\n", words.join(", "));
            }
            Kind::Integer { .. } if key.name == "time_base" => {
                let powers: Vec<_> = (2..16).map(|log2| (1 << log2).to_string()).collect();
                *out += &format!("{indent}    \"enum\": [{}]\n", powers.join(", "));
            }
            Kind::Integer { min, max } => {
                *out += &format!(
                    "{indent}    \"type\": \"integer\",\n{indent}    \"minimum\": {min},\n\
                     {indent}    \"maximum\": {max}\n"
                );
            }
            Kind::Ranges => {
                *out += &format!(
                    "{indent}    \"type\": \"array\",\n{indent}    \"minItems\": 1,\n\
                     {indent}    \"maxItems\": {RANGE_NUM_MAX},\n{indent}    \"items\": {{\n"
                );
                schema_object(out, &format!("{indent}      "), RANGE, false);
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

fn key_of(name: &str) -> Option<&'static Key> {
    KEYS.into_iter().flatten().find(|key| key.name == name)
}

fn full(name: &str, range: Option<usize>) -> String {
    range.map_or_else(|| name.to_owned(), |i| format!("timeout_range[{i}].{name}"))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|&byte| byte == b'\n')
        .count()
}

fn byte(value: i64) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

fn half(value: i64) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn count(tables: usize) -> i64 {
    i64::try_from(tables).unwrap_or(i64::MAX)
}

/// How many letters must be typed anew, inserted or removed to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

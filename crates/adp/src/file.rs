//! Profiles as TOML files.
//!
//! The keys are the register's own field names. One table of them drives both reading and the JSON
//! Schema. A key that a file may omit counts as the register's zero, except for `time_unit`, which
//! is microseconds, and `range_num`, which is the number of `[[timeout_range]]` tables.
//!
//! Writing a profile and reading it back loses nothing: entries beyond `range_num` are written as
//! further tables, after an explicit `range_num`.
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

pub mod import;
mod key;
mod read;
mod schema;
mod write;

use std::collections::BTreeMap;
use std::format;
use std::string::String;

use ferroce_base::toml_file::{Problems, parse};

pub use self::schema::json_schema;
pub use self::write::to_toml;
use crate::check::Report;
use crate::policy::{AckTimeoutFloor, QpTimeouts};
use crate::profile::Profile;
use crate::raw::RawProfile;
use crate::violation::{FieldName, Rule, Violation};

/// A parsed profile file: its values, valid or not, and their line numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    raw: RawProfile,
    /// Integers too large for any profile field.
    oversize: BTreeMap<Place, Oversize>,
    /// By the paths of their keys.
    lines: BTreeMap<String, usize>,
}

/// Key and range of a value.
type Place = (&'static str, Option<usize>);

/// An integer that its field cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Oversize {
    value: i64,
    /// The largest value that a device accepts.
    max: u16,
}

impl Document {
    /// Parses a file. All problems of its form are reported at once; [`check`](Self::check) checks
    /// the values.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        read::document(text, parse(text)?.get_ref())
    }

    /// Returns the values. Integers that do not fit are replaced by the nearest value that does.
    #[must_use]
    pub const fn raw(&self) -> &RawProfile {
        &self.raw
    }

    /// Returns the line of a field, counted from 1.
    #[must_use]
    pub fn line(&self, field: FieldName) -> Option<usize> {
        let line = self.lines.get(&full(field.name, field.range));
        // What a file leaves out is the number of its tables.
        let line = line.or_else(|| {
            self.lines
                .get("timeout_range")
                .filter(|_| field.name == "range_num")
        });
        line.copied()
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

    /// Returns the profile, if it is valid.
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
        for (&(name, range), &Oversize { value, max }) in &self.oversize {
            let field = FieldName { name, range };
            if let Some(found) = report
                .violations
                .iter_mut()
                .find(|found| found.field == field)
            {
                found.value = value;
                continue;
            }
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
            report.notes.clear();
        }
        report
    }
}

/// The error for a file that is not a profile, regardless of its values.
pub type FileError = Problems;

fn full(name: &str, range: Option<usize>) -> String {
    range.map_or_else(|| name.into(), |i| format!("timeout_range[{i}].{name}"))
}

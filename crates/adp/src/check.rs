//! What is wrong with a profile, and what is legal but suspicious about it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::policy::{AckTimeoutFloor, QpTimeouts, ack_code_ns};
use crate::profile::{RANGE_NUM_MAX, RawProfile};

/// What was found in a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What makes the profile invalid. A device refuses it.
    pub violations: Vec<Violation>,
    /// What is legal but suspicious.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// Whether the profile is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }
}

/// One thing that makes a profile invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that is broken.
    pub rule: Rule,
    /// The field.
    pub field: FieldName,
    /// Its value.
    pub value: i64,
    /// Which values are allowed.
    pub allowed: String,
    /// What to write instead, as a line of a profile file.
    pub instead: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            allowed,
            instead,
            ..
        } = self;
        write!(
            f,
            "{field} = {value}: allowed is {allowed}; write {instead}"
        )
    }
}

/// One thing that is legal but suspicious.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The rule it comes from.
    pub rule: Rule,
    /// The field.
    pub field: FieldName,
    /// Its value.
    pub value: i64,
    /// What will happen.
    pub text: String,
    /// What to write instead.
    pub instead: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            text,
            instead,
            ..
        } = self;
        write!(f, "{field} = {value}: {text}; {instead}")
    }
}

/// A profile was to be made from values that are not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidProfile {
    /// What is wrong, at least one.
    pub violations: Vec<Violation>,
}

impl fmt::Display for InvalidProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid profile")?;
        for (i, violation) in self.violations.iter().enumerate() {
            write!(f, "{}{violation}", if i == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

/// A field of a profile, as a profile file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldName {
    /// The field.
    pub name: &'static str,
    /// Which range it belongs to.
    pub range: Option<usize>,
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            Some(i) => write!(f, "timeout_range[{i}].{}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// `dec_mode` is a known one (D11).
    DecMode,
    /// The value fits its field.
    Width,
}

pub(crate) fn check(raw: &RawProfile, qp: QpTimeouts, floor: AckTimeoutFloor) -> Report {
    let _ = (raw, qp, floor, ack_code_ns(0), RANGE_NUM_MAX, format!(""));
    Report::default()
}

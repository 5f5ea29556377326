//! Complaints about numbers on the command line, without the parser's types and ranges.

use std::error::Error as _;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The complaint about a value that is not the number it must be, in plain words; others as they are.
pub(super) fn plain(error: clap::Error) -> clap::Error {
    let (ErrorKind::ValueValidation, Some(cause)) = (error.kind(), error.source()) else {
        return error;
    };
    let must = match cause.downcast_ref::<ParseIntError>() {
        Some(invalid) => of_digits(invalid.kind()).to_owned(),
        None => match of_range(&cause.to_string()) {
            Some(must) => must,
            None => return error,
        },
    };
    let (Some(ContextValue::String(argument)), Some(ContextValue::String(value))) = (
        error.get(ContextKind::InvalidArg),
        error.get(ContextKind::InvalidValue),
    ) else {
        return error;
    };
    let text = format!(
        "invalid value '{value}' for '{argument}': {must}\n\nFor more information, try '--help'.\n"
    );
    clap::Error::raw(ErrorKind::ValueValidation, text)
}

fn of_digits(kind: &IntErrorKind) -> &'static str {
    match kind {
        IntErrorKind::PosOverflow => "must be a smaller number",
        IntErrorKind::NegOverflow => "must be a larger number",
        _ => "must be a whole number",
    }
}

/// A range as clap complains about it: `9 is not in 1..=8`.
fn of_range(complaint: &str) -> Option<String> {
    let (_, range) = complaint.split_once(" is not in ")?;
    let (least, most) = range.split_once("..")?;
    let most = most.trim_start_matches('=');
    let is_open = most.is_empty() || most == u64::MAX.to_string();
    Some(match is_open {
        true => format!("must be {least} or more"),
        false => format!("must be {least} to {most}"),
    })
}

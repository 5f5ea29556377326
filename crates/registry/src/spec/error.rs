//! Errors of a device's description.

use ferroce_base::complaint::plain;
use ferroce_base::toml_file::line_of;
use thiserror::Error;

/// Why a text does not describe a device.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A value outside what a device can have.
    #[error("{field} is {value:?}; allowed: {allowed}")]
    BadValue {
        /// Name of the field.
        field: &'static str,
        /// Value given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The file cannot be read as TOML of this form.
    #[error("line {line}: {what}")]
    Toml {
        /// Line of the file, counted from 1.
        line: usize,
        /// What stands there, if something does, and what is wrong with it.
        what: String,
    },
}

/// Where a device's file is wrong, and what stands there.
pub(super) fn refused(text: &str, error: &toml::de::Error) -> SpecError {
    let line = line_of(text, error.span().map_or(0, |span| span.start));
    let what = plain(error.message());
    let setting = text.lines().nth(line - 1).unwrap_or_default().trim();
    SpecError::Toml {
        line,
        what: match setting {
            "" => what,
            setting => format!("{setting}: {what}"),
        },
    }
}

/// Has files spell a value as [`ToString`] and [`FromStr`](std::str::FromStr) do.
macro_rules! is_text {
    ($value:ty) => {
        impl TryFrom<String> for $value {
            type Error = SpecError;

            fn try_from(text: String) -> Result<Self, SpecError> {
                text.parse()
            }
        }

        impl From<$value> for String {
            fn from(value: $value) -> Self {
                value.to_string()
            }
        }
    };
}

pub(super) use is_text;

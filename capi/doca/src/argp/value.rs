//! Values of parameters.

use crate::error::Refusal;

/// `enum doca_argp_type`: what a parameter's value is. Devices as values are not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the name is the value")]
pub enum Kind {
    String,
    Int,
    Boolean,
    Double,
}

impl Kind {
    /// The kind of a number of `enum doca_argp_type`.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::String),
            2 => Some(Self::Int),
            3 => Some(Self::Boolean),
            6 => Some(Self::Double),
            _ => None,
        }
    }

    /// A value of this kind; `option` is whose value it is.
    pub(super) fn parse(self, option: &str, text: &str) -> Result<Value, Refusal> {
        let wrong = |allowed| Refusal::value(option, format_args!("{text:?}"), allowed);
        match self {
            Self::String => Ok(Value::String(text.to_owned())),
            Self::Int => int(text).map(Value::Int).ok_or_else(|| {
                wrong("a number from -2147483648 to 2147483647, also hexadecimal as 0x10")
            }),
            Self::Boolean => match text {
                "true" => Ok(Value::Boolean(true)),
                "false" => Ok(Value::Boolean(false)),
                _ => Err(wrong("true or false; without a value it is true")),
            },
            Self::Double => match text.parse() {
                Ok(number) => Ok(Value::Double(number)),
                Err(_) => Err(wrong("a number, for example 0.5")),
            },
        }
    }
}

fn int(text: &str) -> Option<i32> {
    match text.strip_prefix("0x") {
        // A sign behind the prefix is no digit.
        Some(hex) if !hex.starts_with(['+', '-']) => i32::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// The value of a parameter.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the kinds of values")]
pub enum Value {
    String(String),
    Int(i32),
    Boolean(bool),
    Double(f64),
}

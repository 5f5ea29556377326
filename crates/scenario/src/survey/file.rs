//! Files about a fabric, and what is wrong in them.

use std::fmt;

/// The maximum size of a file, bytes.
pub const FILE_BYTES_MAX: usize = 64 << 20;

/// A file that was read.
#[derive(Clone, Copy, Debug)]
pub struct SurveyFile<'a> {
    /// Its name, for messages; with [`Tool::Lldp`](super::Tool::Lldp), also that of the system that it was written on.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// What is wrong in a file: the reason why it is refused, or something that is left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The name of the file.
    pub file: String,
    /// The line, from 1, if it is about one.
    pub line: Option<usize>,
    /// What it is, and what to do about it.
    pub text: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, text } = self;
        match line {
            Some(line) => write!(f, "{file}:{line}: {text}"),
            None => write!(f, "{file}: {text}"),
        }
    }
}

impl std::error::Error for Notice {}

//! Words and numbers of text files that other programs wrote.

use std::fmt::Display;
use std::str::FromStr;

/// The reason why a text could not be read, and its line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ReadError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and which values are valid.
    pub message: String,
}

impl ReadError {
    /// Creates the error for this line.
    pub fn new(line: usize, message: impl Display) -> Self {
        Self {
            line,
            message: message.to_string(),
        }
    }

    /// Creates the error for a value that is not what it must be; of a long one, it shows the beginning.
    pub fn invalid(line: usize, what: &str, value: &str, must: impl Display) -> Self {
        // A line of a megabyte is of no use in a message.
        const SHOWN: usize = 40;
        let shown: String = value.chars().take(SHOWN).collect();
        let dots = if shown.len() < value.len() { "..." } else { "" };
        Self::new(
            line,
            format!("invalid {what} \"{shown}{dots}\": must be {must}"),
        )
    }
}

/// The words of a text, with the lines they are on.
#[derive(Clone)]
pub(crate) struct Words<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    line: usize,
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            lines: text.lines().enumerate(),
            line: 1,
            words: "".split_whitespace(),
        }
    }

    /// The line of the last word.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// The next word, which is something.
    pub(crate) fn next(&mut self, what: &str) -> Result<&'a str, ReadError> {
        loop {
            if let Some(word) = self.words.next() {
                return Ok(word);
            }
            let Some((at, line)) = self.lines.next() else {
                let message = format!("the file ends where {what} was expected");
                return Err(ReadError::new(self.line, message));
            };
            self.line = at + 1;
            self.words = line.split_whitespace();
        }
    }

    /// The next word, which is an integer from `min` to `max`.
    pub(crate) fn integer<T>(&mut self, what: &str, min: T, max: T) -> Result<T, ReadError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let word = self.next(what)?;
        integer(self.line, what, word, min, max)
    }
}

/// Reads a word, on this line, as an integer from `min` to `max`.
///
/// # Errors
/// Returns an error that says what `what` must be, if it is something else.
pub fn integer<T>(line: usize, what: &str, word: &str, min: T, max: T) -> Result<T, ReadError>
where
    T: FromStr + PartialOrd + Display,
{
    match word.parse() {
        Ok(number) if number >= min && number <= max => Ok(number),
        _ => {
            let must = format!("an integer from {min} to {max}");
            Err(ReadError::invalid(line, what, word, must))
        }
    }
}

//! Commands as tests write them, and what their output must contain.

use std::fmt;

/// A command: a line as it is typed, or its words.
pub trait Words: fmt::Debug {
    /// Each word.
    fn words(&self) -> Vec<&str>;
}

impl Words for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl Words for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl Words for Vec<&str> {
    fn words(&self) -> Vec<&str> {
        self.clone()
    }
}

impl<T: Words + ?Sized> Words for &T {
    fn words(&self) -> Vec<&str> {
        T::words(self)
    }
}

/// Checks that a text contains each of these parts.
///
/// # Panics
///
/// Panics with the text if one is missing.
#[track_caller]
pub fn has(text: &str, parts: impl IntoIterator<Item = impl AsRef<str>>) {
    for part in parts {
        let part = part.as_ref();
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

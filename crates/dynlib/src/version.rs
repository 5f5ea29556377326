//! Versions of libraries.

use std::fmt;

/// A version of a library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl Version {
    /// The version of a text such as 2.27.7. The number of a package that was built again, as in
    /// 1.15.0.post2, does not count: the library in it is the same.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut number = || parts.next()?.parse().ok();
        let version = Self {
            major: number()?,
            minor: number()?,
            patch: number()?,
        };
        let is_rebuild = |part: &str| part.starts_with("post");
        parts.all(is_rebuild).then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_three_numbers() {
        let read = |text| Version::parse(text).map(|it| it.to_string());
        assert_eq!(read("2.27.7").unwrap(), "2.27.7");
        assert_eq!(read("1.15.0.post2").unwrap(), "1.15.0");
        for text in ["2.27", "2.27.7.1", "2.27.x", ""] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}

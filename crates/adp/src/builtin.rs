//! The built-in profiles, by name.

use std::string::String;
use std::sync::LazyLock;
use std::vec::Vec;

use crate::file::Document;
use crate::profile::Profile;

/// A profile with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name: `link-flap`.
    pub name: &'static str,
    /// Its purpose, in one sentence.
    pub about: String,
    /// The profile file.
    pub toml: &'static str,
    /// The parsed profile.
    pub profile: Profile,
}

macro_rules! files {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../../profiles/", $name, ".toml")))),*]
    };
}

/// Name and file, sorted by name.
const FILES: &[(&str, &str)] = files![
    "backoff",
    "fast-recovery",
    "link-flap",
    "nvidia-ranges",
    "patient"
];

/// Returns all built-in profiles, sorted by name.
#[must_use]
pub fn all() -> &'static [BuiltIn] {
    static ALL: LazyLock<Vec<BuiltIn>> =
        LazyLock::new(|| FILES.iter().copied().map(built_in).collect());
    &ALL
}

/// Returns the built-in profile with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static BuiltIn> {
    all().iter().find(|built_in| built_in.name == name)
}

fn built_in((name, toml): (&'static str, &'static str)) -> BuiltIn {
    let profile = Document::parse(toml).ok().and_then(|it| it.profile().ok());
    BuiltIn {
        name,
        about: about(toml),
        toml,
        profile: profile.expect("a test reads every profile"),
    }
}

/// The first line of a file is a comment, and a sentence about it.
fn about(toml: &str) -> String {
    let first = toml.lines().next().unwrap_or_default();
    first.trim_start_matches(['#', ' ']).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_is_valid_and_says_what_it_is_for() {
        assert_eq!(all().len(), FILES.len());
        for built_in in all() {
            assert!(built_in.about.ends_with('.'), "{}", built_in.about);
            assert!(built_in.about.len() <= 64, "{}", built_in.about);
            assert_eq!(named(built_in.name), Some(built_in));
        }
        assert!(all().is_sorted_by_key(|built_in| built_in.name));
        assert_eq!(named("link-flop"), None);
    }

    #[test]
    fn every_file_has_a_name() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles");
        let files = std::fs::read_dir(directory).unwrap().count();
        assert_eq!(files, all().len());
    }
}

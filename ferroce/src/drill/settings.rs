//! A library's variables, in all combinations that are asked for.

use std::env;

use clap::ValueEnum;

use crate::output::Failure;

/// A combination of variables, and of what an option for the library chooses.
#[derive(Clone, Debug)]
pub(super) struct Settings<Mode> {
    /// What tells it from others.
    pub(super) name: String,
    pub(super) mode: Option<Mode>,
    given: Vec<(String, String)>,
}

impl<Mode: ValueEnum + Clone> Settings<Mode> {
    /// Every combination of the values that are given, which are like the example. Names of variables
    /// are shown without these prefixes.
    pub(super) fn all(
        given: &[String],
        modes: &[Mode],
        prefixes: &[&str],
        example: &str,
    ) -> Result<Vec<Self>, Failure> {
        let mut names: Vec<(String, Vec<String>)> = Vec::new();
        for text in given {
            let (name, value) = text
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| {
                    Failure::input(format_args!(
                        "invalid variable {text:?}: write NAME=VALUE, as in {example}"
                    ))
                })?;
            match names.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(value.to_owned()),
                None => names.push((name.to_owned(), vec![value.to_owned()])),
            }
        }
        let mut all = match modes {
            [] => vec![Self::of(None)],
            modes => modes.iter().cloned().map(Some).map(Self::of).collect(),
        };
        for (name, values) in &names {
            let short = prefixes.iter().fold(name.as_str(), |name, prefix| {
                name.strip_prefix(prefix).unwrap_or(name)
            });
            let with = |settings: &Self, value: &String| {
                let mut settings = settings.clone();
                settings.given.push((name.clone(), value.clone()));
                if values.len() > 1 {
                    settings.add_name(&format!("{short}={value}"));
                }
                settings
            };
            all = all
                .iter()
                .flat_map(|settings| values.iter().map(|value| with(settings, value)))
                .collect();
        }
        Ok(all)
    }

    pub(super) fn of(mode: Option<Mode>) -> Self {
        Self {
            name: mode.as_ref().map_or_else(String::new, name_of),
            mode,
            given: Vec::new(),
        }
    }

    fn add_name(&mut self, name: &str) {
        if !self.name.is_empty() {
            self.name += " ";
        }
        self.name += name;
    }
}

impl<Mode> Settings<Mode> {
    /// All variables that a drill sets: these defaults, unless the user's environment has another value,
    /// what the mode asks for, and what is given.
    pub(super) fn variables(
        &self,
        defaults: &[(&str, &str)],
        of_mode: &[(&str, &str)],
    ) -> Vec<(String, String)> {
        let is_set = |name: &str| env::var_os(name).is_some();
        let defaults = defaults.iter().filter(|(name, _)| !is_set(name));
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut all: Vec<_> = defaults.chain(of_mode).map(owned).collect();
        all.extend(self.given.iter().cloned());
        all
    }

    /// The value of a variable that is given.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        let given = self.given.iter().rfind(|(known, _)| known == name);
        given.map(|(_, value)| value.as_str())
    }
}

/// What a value of an option is called.
pub(super) fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |it| it.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, ValueEnum)]
    enum Mode {
        Off,
        On,
    }

    fn names(given: &[&str], modes: &[Mode]) -> Vec<String> {
        let given: Vec<_> = given.iter().map(|it| (*it).to_owned()).collect();
        let all = Settings::all(&given, modes, &["NCCL_", "IB_"], "").unwrap();
        all.into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn several_values_are_several_settings() {
        assert_eq!(names(&[], &[]), [""]);
        assert_eq!(names(&["NCCL_IB_TIMEOUT=14"], &[]), [""]);
        let twice = ["NCCL_IB_TIMEOUT=14", "NCCL_IB_TIMEOUT=20"];
        assert_eq!(names(&twice, &[]), ["TIMEOUT=14", "TIMEOUT=20"]);
        let all = names(&twice, &[Mode::Off, Mode::On]);
        assert_eq!(all[0], "off TIMEOUT=14");
        assert_eq!(all[3], "on TIMEOUT=20");
    }
}

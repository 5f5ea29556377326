//! The variables with which a program finds Ferroce's devices.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::library;

/// How a variable is combined with the value that it already has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keep {
    /// In front of it: Ferroce's value has priority, except over what the user put there.
    Before,
    /// Behind it, separated by this: Ferroce's value is looked at first.
    After(char),
    /// Not at all.
    Nothing,
}

/// A value and how it is combined with the old one.
type Value = (String, Keep);

/// The variables, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Environment(BTreeMap<&'static str, Value>);

impl Environment {
    /// The variables that make programs load the libraries of this directory.
    pub(crate) fn loading(directory: &Path, with_fwctl: bool) -> Self {
        let mut environment = Self::default();
        let preload = library::preload(directory, with_fwctl);
        // Some libraries insist on being the first to be preloaded, the sanitizers' for example.
        environment.put("LD_PRELOAD", preload, Keep::Before);
        let path = directory.display().to_string();
        environment.put("LD_LIBRARY_PATH", path, Keep::After(':'));
        environment.let_debuggers_in(directory);
        environment
    }

    /// Options of sanitizers and valgrind; those of the user come later and win.
    fn let_debuggers_in(&mut self, directory: &Path) {
        let suppressions = |name| format!("suppressions={}", directory.join(name).display());
        // The address sanitizer requires its library to be the first one. The program that is
        // started does not show which further programs are built with it, and none of Ferroce's
        // libraries replaces its functions.
        let order = "verify_asan_link_order=0".to_owned();
        self.put("ASAN_OPTIONS", order, Keep::After(':'));
        let tsan = suppressions(library::TSAN);
        self.put("TSAN_OPTIONS", tsan, Keep::After(':'));
        let valgrind = format!("--{}", suppressions(library::VALGRIND));
        self.put("VALGRIND_OPTS", valgrind, Keep::After(' '));
    }

    /// Sets a variable, whatever it was.
    pub(crate) fn set(&mut self, name: &'static str, value: impl fmt::Display) {
        self.put(name, value.to_string(), Keep::Nothing);
    }

    fn put(&mut self, name: &'static str, value: String, keep: Keep) {
        self.0.insert(name, (value, keep));
    }

    /// The variables as they are to be, given what they were.
    pub(crate) fn over(
        &self,
        old: impl Fn(&str) -> Option<String>,
    ) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().map(move |(name, (value, keep))| {
            let old = old(name).filter(|old| !old.is_empty());
            let value = match (keep, old) {
                (Keep::Before, Some(old)) => format!("{old}:{value}"),
                (Keep::After(separator), Some(old)) => format!("{value}{separator}{old}"),
                _ => value.clone(),
            };
            (*name, value)
        })
    }
}

/// Lines for a shell, which keep what the variables hold when they are run.
impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, (value, keep)) in &self.0 {
            let value = quoted(value);
            match keep {
                Keep::Before => writeln!(f, "export {name}=\"${{{name}:+${name}:}}\"{value}")?,
                Keep::After(separator) => {
                    writeln!(
                        f,
                        "export {name}={value}\"${{{name}:+{separator}${name}}}\""
                    )?;
                }
                Keep::Nothing => writeln!(f, "export {name}={value}")?,
            }
        }
        Ok(())
    }
}

/// The text as one word of a shell's line.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:,@%+=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn example() -> Environment {
        let mut environment = Environment::loading(Path::new("/d"), false);
        environment.set("FERROCE_PCAP", "/tmp/it's here.pcapng");
        environment
    }

    #[test]
    fn user_settings_are_kept() {
        let old = |name: &str| match name {
            "LD_PRELOAD" => Some("libasan.so".to_owned()),
            "LD_LIBRARY_PATH" => Some("/opt/lib".to_owned()),
            _ => Some("old".to_owned()),
        };
        let values: BTreeMap<_, _> = example().over(old).collect();
        assert!(values["LD_PRELOAD"].starts_with("libasan.so:/d/libibverbs.so.1:/d/librdmacm"));
        assert!(!values["LD_PRELOAD"].contains("fwctl"));
        assert_eq!(values["LD_LIBRARY_PATH"], "/d:/opt/lib");
        assert_eq!(values["FERROCE_PCAP"], "/tmp/it's here.pcapng");
        assert_eq!(values["ASAN_OPTIONS"], "verify_asan_link_order=0:old");
        assert_eq!(values["TSAN_OPTIONS"], "suppressions=/d/tsan.supp:old");
        assert_eq!(
            values["VALGRIND_OPTS"],
            "--suppressions=/d/valgrind.supp old"
        );
        let values: BTreeMap<_, _> = example().over(|_| Some(String::new())).collect();
        assert_eq!(values["LD_LIBRARY_PATH"], "/d");
    }

    #[test]
    fn a_shell_comes_to_the_same() {
        let names = [
            "LD_LIBRARY_PATH",
            "FERROCE_PCAP",
            "LD_PRELOAD",
            "VALGRIND_OPTS",
        ];
        let show = "printf '%s\\n' \"$LD_LIBRARY_PATH\" \"$FERROCE_PCAP\" \"$LD_PRELOAD\" \"$VALGRIND_OPTS\"";
        for old in [None, Some("/o")] {
            let expected: BTreeMap<_, _> = example().over(|_| old.map(str::to_owned)).collect();
            // The dynamic linker must not see these: the shell sets them itself.
            let set = |name: &&str| old.map(|old| format!("{name}={old}\n"));
            let before: String = names.iter().filter_map(set).collect();
            let script = format!("{before}{}{show}", example());
            let mut shell = Command::new("sh");
            for name in names {
                shell.env_remove(name);
            }
            let output = shell.args(["-c", &script]).output().unwrap();
            let lines = names.map(|name| format!("{}\n", expected[name])).concat();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), lines);
        }
    }
}

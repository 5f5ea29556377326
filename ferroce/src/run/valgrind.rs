//! Valgrind in front of a program. An old one is refused, because it has not been tried whether
//! programs run on the libraries under it.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::program::refused;
use crate::output::Failure;

/// The oldest version under which programs were seen to run on the libraries.
const OLDEST: Version = Version(3, 16);

/// Major and minor number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Version(u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Refuses a valgrind that is too old. What is none, or does not tell its version, passes.
pub(super) fn check(program: &Path) -> Result<(), Failure> {
    if program.file_name().is_none_or(|name| name != "valgrind") {
        return Ok(());
    }
    judge(program, version(program))
}

fn judge(program: &Path, version: Option<Version>) -> Result<(), Failure> {
    match version {
        Some(version) if version < OLDEST => Err(refused(format_args!(
            "{} is version {version}, and programs run on Ferroce under valgrind {OLDEST} or newer; \
             install a newer one",
            program.display()
        ))),
        _ => Ok(()),
    }
}

fn version(program: &Path) -> Option<Version> {
    let asked = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    parse(&String::from_utf8(asked.ok()?.stdout).ok()?)
}

/// Of a line such as `valgrind-3.19.0`.
fn parse(line: &str) -> Option<Version> {
    let mut numbers = line.trim().strip_prefix("valgrind-")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some(Version(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_valgrind_is_refused_and_what_is_none_passes() {
        let outcome = |says: &str| judge(Path::new("/usr/bin/valgrind"), parse(says));
        for old in ["valgrind-3.15.0", "valgrind-3.9.0.SVN\n", "valgrind-2.4.1"] {
            let failure = outcome(old).unwrap_err();
            assert_eq!(failure.exit_code(), 126, "{old}");
            let error = failure.to_string();
            assert!(error.contains("valgrind 3.16 or newer"), "{error}");
        }
        for usable in [
            "valgrind-3.16.1\n",
            "valgrind-3.27.0.GIT",
            "valgrind-4.0",
            "",
        ] {
            outcome(usable).unwrap();
        }
        check(Path::new("/usr/bin/notes")).unwrap();
    }
}

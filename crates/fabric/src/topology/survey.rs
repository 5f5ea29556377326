//! Topologies of fabrics that exist, from what other tools write about them.
//!
//! | module | reads |
//! |---|---|
//! | `ibnetdiscover` | the text that ibnetdiscover prints |
//! | `containerlab` | a containerlab topology file (YAML) |
//! | `lldp` | `lldpcli show neighbors -f json` of several systems |
//! | `document` | YAML and JSON, with lines |
//! | `sheet` | what has been read: nodes, ports and links, each with its line |
//! | `layout` | which nodes are hosts, what they are called, and the topology |
//!
//! The files are untrusted: [`FILE_BYTES_MAX`] bounds their size, and `document` their depth and what
//! aliases repeat.

mod containerlab;
mod document;
mod ibnetdiscover;
mod layout;
mod lldp;
mod sheet;

use std::fmt;

use ferroce_device::Pairing;

use self::sheet::Sheet;
use super::{CableSpec, Topology};

/// The maximum size of a file, bytes.
pub const FILE_BYTES_MAX: usize = 64 << 20;

/// What a file is, by the tool that writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// `ibnetdiscover`, as it prints without options or with `-g` or `-f`.
    IbNetDiscover,
    /// containerlab: its topology file.
    Containerlab,
    /// lldpd: `lldpcli show neighbors -f json` or `-f json0`, a file for each system.
    Lldp,
}

/// What the files do not say.
#[derive(Clone, PartialEq, Debug)]
pub struct SurveyOptions {
    /// Nodes that are hosts, whatever the file says. A `*` stands for any characters.
    pub hosts: Vec<String>,
    /// Nodes that are switches, whatever the file says, in the same form.
    pub switches: Vec<String>,
    /// Nodes to leave out with their links, and ports (`node:port`), in the same form.
    pub left_out: Vec<String>,
    /// What the second link of a host is. Without it, each link of a host is a host of its own.
    pub pairing: Option<Pairing>,
    /// Cables of hosts. A rate that the file has goes before this one.
    pub host_cable: CableSpec,
    /// Cables between switches, in the same way.
    pub fabric_cable: CableSpec,
}

/// A file that was read.
#[derive(Clone, Copy, Debug)]
pub struct SurveyFile<'a> {
    /// Its name, for messages; with [`Tool::Lldp`], also that of the system that it was written on.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// A topology that was read from files.
#[derive(Clone, PartialEq, Debug)]
pub struct Survey {
    /// The topology, checked. Hosts and switches are each in the natural order of their names.
    pub topology: Topology,
    /// What was left out, or not understood.
    pub notices: Vec<Notice>,
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

impl Survey {
    /// Reads the files that a tool has written: one, or with [`Tool::Lldp`] one for each system.
    ///
    /// # Errors
    /// Returns the first error: a file that the tool would not write, links that contradict each other or
    /// lead nowhere, or a topology that cannot be simulated (see [`Topology::check`]).
    pub fn read(
        tool: Tool,
        files: &[SurveyFile<'_>],
        options: &SurveyOptions,
    ) -> Result<Self, Notice> {
        let mut sheet = Sheet::new(files);
        for (at, file) in files.iter().enumerate() {
            if file.text.len() > FILE_BYTES_MAX {
                let size = file.text.len() >> 20;
                let limit = FILE_BYTES_MAX >> 20;
                return Err(sheet.error(
                    (at, 0),
                    format!("has {size} MiB: must be at most {limit} MiB"),
                ));
            }
        }
        match tool {
            Tool::IbNetDiscover => ibnetdiscover::read(&mut sheet, files)?,
            Tool::Containerlab => containerlab::read(&mut sheet, files)?,
            Tool::Lldp => lldp::read(&mut sheet, files, &options.left_out)?,
        }
        layout::of(sheet, options)
    }
}

/// Whether a text is what a pattern says, in which a `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        let found = [
            ("leaf1", "leaf1"),
            ("*", ""),
            ("leaf*", "leaf1"),
            ("*:eth0", "h1:eth0"),
            ("l*f*-*1", "leaf-a-11"),
            ("a**", "a"),
        ];
        assert!(found.iter().all(|(pattern, text)| matches(pattern, text)));
        let missed = [
            ("leaf1", "leaf11"),
            ("leaf*", "aleaf"),
            ("a*a", "a"),
            ("*x", "y"),
            ("", "a"),
        ];
        assert!(!missed.iter().any(|(pattern, text)| matches(pattern, text)));
    }
}

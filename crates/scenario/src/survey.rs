//! Topologies of fabrics that exist, from what other tools write about them.
//!
//! | module | reads |
//! |---|---|
//! | `ibnetdiscover` | the text that ibnetdiscover prints |
//! | `containerlab` | a containerlab topology file (YAML) |
//! | `lldp` | `lldpcli show neighbors -f json` of several systems |
//! | `document` | YAML and JSON, with lines |
//! | `file`, `options` | what is read, what is wrong in it, and what it does not say |
//! | `sheet` | what has been read: nodes, ports and links, each with its line |
//! | `layout` | which nodes are hosts, what they are called, and the topology |
//!
//! The files are untrusted: [`FILE_BYTES_MAX`] bounds their size, and `document` their depth and what
//! aliases repeat.

mod containerlab;
mod document;
mod file;
mod ibnetdiscover;
mod layout;
mod lldp;
mod options;
mod sheet;

use ferroce_fabric::Topology;

pub use self::file::{FILE_BYTES_MAX, Notice, SurveyFile};
pub use self::options::SurveyOptions;
use self::sheet::Sheet;

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

/// A topology that was read from files.
#[derive(Clone, PartialEq, Debug)]
pub struct Survey {
    /// The topology, checked. Hosts and switches are each in the natural order of their names.
    pub topology: Topology,
    /// What was left out, or not understood.
    pub notices: Vec<Notice>,
}

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
        let (topology, notices) = layout::of(sheet, options)?;
        Ok(Self { topology, notices })
    }
}

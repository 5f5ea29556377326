//! `[topology]` from what a tool has written about a fabric.

use ferroce_base::toml_file::{Reader, Section};
use ferroce_device::Pairing;
use ferroce_fabric::topology::CableSpec;

use super::keys::TopologyKind as Kind;
use super::topology::{Found, words};
use crate::files::{Resolver, resolve_text};
use crate::survey::{Survey, SurveyFile, SurveyOptions, Tool};

/// The tool whose files a kind of topology reads.
pub(super) const fn tool(kind: Kind) -> Option<Tool> {
    match kind {
        Kind::IbNetDiscover => Some(Tool::IbNetDiscover),
        Kind::Containerlab => Some(Tool::Containerlab),
        Kind::Lldp => Some(Tool::Lldp),
        _ => None,
    }
}

/// The files that a tool has written about a fabric.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    tool: Tool,
    (host_cable, fabric_cable): (CableSpec, CableSpec),
    pairing: Option<Pairing>,
    resolve: &mut Resolver<'_>,
) -> Result<Found, String> {
    let mut names = Vec::new();
    for name in words(reader, section, "file") {
        if !name.ends_with('/') {
            names.push(name);
            continue;
        }
        let listing =
            resolve_text(resolve, &name).map_err(|error| format!("cannot list {name}: {error}"))?;
        if listing.is_empty() {
            return Err(format!("{name} has no files; write one for each system"));
        }
        names.extend(listing.lines().map(|file| format!("{name}{file}")));
    }
    let mut texts = Vec::new();
    for name in &names {
        texts.push(
            resolve_text(resolve, name).map_err(|error| format!("cannot read {name}: {error}"))?,
        );
    }
    if texts.is_empty() || texts.len() > 1 && tool != Tool::Lldp {
        return Err(format!("{} files: must be one file", texts.len()));
    }
    let files = names.iter().zip(&texts);
    let files: Vec<_> = files
        .map(|(name, text)| SurveyFile { name, text })
        .collect();
    let options = SurveyOptions {
        hosts: words(reader, section, "host_names"),
        switches: words(reader, section, "switch_names"),
        left_out: words(reader, section, "leave_out"),
        pairing,
        host_cable,
        fabric_cable,
    };
    let survey = Survey::read(tool, &files, &options).map_err(|error| error.to_string())?;
    Ok(Found {
        topology: survey.topology,
        notices: survey.notices,
        ..Found::default()
    })
}

//! `[topology]`.

use ferroce_dcqcn::Rate;
use ferroce_time::Span;

use super::keys;
use super::read::{Reader, Section};
use crate::topology::{CableSpec, Dumbbell, FatTree, LeafSpine, Topology, TopologyError};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pair,
    Star,
    Dumbbell,
    LeafSpine,
    FatTree,
}

const KINDS: &[(&str, Kind)] = &[
    ("pair", Kind::Pair),
    ("star", Kind::Star),
    ("dumbbell", Kind::Dumbbell),
    ("leaf-spine", Kind::LeafSpine),
    ("fat-tree", Kind::FatTree),
];

/// The counts that each kind needs.
const COUNTS: &[(Kind, &[&str])] = &[
    (Kind::Star, &["hosts"]),
    (Kind::Dumbbell, &["left_hosts", "right_hosts"]),
    (Kind::LeafSpine, &["leaves", "spines", "hosts_per_leaf"]),
];

pub(super) fn read<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Option<Topology> {
    let section = reader.section(root, "topology", keys::TOPOLOGY);
    if !section.is_there() {
        reader.problem(
            None,
            "missing [topology]; add it with kind = \"star\" and hosts = 16, for example",
        );
        return None;
    }
    if !section.has("kind") {
        reader.missing(&section, "kind", "\"leaf-spine\"");
    }
    let kind = reader.word(&section, "kind", KINDS);
    let cables = cables(reader, &section);
    let kind = kind?;
    for name in needed(kind, &section) {
        if !section.has(name) {
            reader.missing(&section, name, "2");
        }
    }
    reader.idle(
        &section,
        &idle(kind, &section),
        "has no meaning for this kind",
    );
    let before = reader.problems.len();
    let built = build(reader, &section, kind, cables);
    match built {
        _ if reader.problems.len() > before => None,
        Ok(topology) => Some(topology),
        Err(error) => {
            reader.bad(&section, "kind", error);
            None
        }
    }
}

/// From hosts, and between switches.
fn cables<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> (CableSpec, CableSpec) {
    let rate = reader.rate(section, "rate");
    let rate = rate.unwrap_or(Rate::from_mbps(100_000));
    let delay = reader.span(section, "delay", 0);
    let delay = delay.unwrap_or(Span::from_micros(1));
    let fabric_rate = reader.rate(section, "fabric_rate").unwrap_or(rate);
    let fabric_delay = reader.span(section, "fabric_delay", 0).unwrap_or(delay);
    let fabric = CableSpec::new(fabric_rate, fabric_delay);
    (CableSpec::new(rate, delay), fabric)
}

fn needed(kind: Kind, section: &Section<'_>) -> Vec<&'static str> {
    if kind == Kind::FatTree {
        return match section.has("k") {
            true => vec!["k"],
            false => [FAT_TREE, &["hosts_per_leaf"]].concat(),
        };
    }
    let counts = COUNTS.iter().find(|(it, _)| *it == kind);
    counts.map_or(Vec::new(), |(_, names)| names.to_vec())
}

const FAT_TREE: &[&str] = &[
    "pods",
    "leaves_per_pod",
    "spines_per_pod",
    "cores_per_spine",
];

/// Keys that mean nothing for a kind.
fn idle(kind: Kind, section: &Section<'_>) -> Vec<&'static str> {
    let needed = needed(kind, section);
    let always = ["kind", "rate", "delay"];
    let may = |name: &str| match name {
        "cables_per_spine" => kind == Kind::LeafSpine,
        "fabric_rate" | "fabric_delay" => !matches!(kind, Kind::Pair | Kind::Star),
        _ => always.contains(&name) || needed.contains(&name),
    };
    let names = keys::TOPOLOGY.iter().map(|key| key.name);
    names.filter(|name| !may(name)).collect()
}

fn build<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    kind: Kind,
    (host_cable, fabric): (CableSpec, CableSpec),
) -> Result<Topology, TopologyError> {
    let mut count = |name| {
        let count = reader.count32(section, name, (1, u32::MAX));
        count.unwrap_or(1)
    };
    match kind {
        Kind::Pair => Topology::pair(host_cable),
        Kind::Star => Topology::star(count("hosts"), host_cable),
        Kind::Dumbbell => Dumbbell {
            left_hosts: count("left_hosts"),
            right_hosts: count("right_hosts"),
            host_cable,
            middle_cable: fabric,
        }
        .build(),
        Kind::LeafSpine => LeafSpine {
            leaves: count("leaves"),
            spines: count("spines"),
            hosts_per_leaf: count("hosts_per_leaf"),
            cables_per_spine: count("cables_per_spine"),
            host_cable,
            spine_cable: fabric,
        }
        .build(),
        Kind::FatTree if section.has("k") => FatTree {
            spine_cable: fabric,
            core_cable: fabric,
            ..FatTree::k_ary(count("k"), host_cable)?
        }
        .build(),
        Kind::FatTree => FatTree {
            pods: count("pods"),
            leaves_per_pod: count("leaves_per_pod"),
            spines_per_pod: count("spines_per_pod"),
            cores_per_spine: count("cores_per_spine"),
            hosts_per_leaf: count("hosts_per_leaf"),
            host_cable,
            spine_cable: fabric,
            core_cable: fabric,
        }
        .build(),
    }
}

//! `[topology]`.

use ferroce_base::time::Span;
use ferroce_base::toml_file::{NANOS_MAX, Reader, Section};
use ferroce_base::units::{Probability, Quantity, RATE, TIME};
use ferroce_dcqcn::Rate;
use ferroce_device::Pairing;
use ferroce_fabric::topology::{
    CableSpec, Dumbbell, FatTree, HpccTopology, LeafSpine, NamedCable, NodeId, RATE_MIN, RailPod,
    Topology, TopologyError,
};
use toml::de::DeValue;

use super::keys::{self, HostLinks, TopologyKind as Kind};
use super::survey;
use crate::files::{Resolver, resolve_text};
use crate::survey::Notice;

/// The counts that each kind needs.
const COUNTS: &[(Kind, &[&str])] = &[
    (Kind::Star, &["hosts"]),
    (Kind::Dumbbell, &["left_hosts", "right_hosts"]),
    (Kind::LeafSpine, &["leaves", "spines", "hosts_per_leaf"]),
    (Kind::RailPod, &["servers", "nics", "spines"]),
    (Kind::List, &["host_names", "switch_names", "cables"]),
    (Kind::Hpcc, &["file"]),
    (Kind::IbNetDiscover, &["file"]),
    (Kind::Containerlab, &["file"]),
    (Kind::Lldp, &["file"]),
];

/// A topology that was read.
#[derive(Default)]
pub(super) struct Found {
    pub(super) topology: Topology,
    /// What the nodes of a file have become that has numbers of its own.
    pub(super) nodes: Option<Vec<NodeId>>,
    /// What of a file was left out, or not understood.
    pub(super) notices: Vec<Notice>,
}

impl Found {
    /// The host of a number in a list of flows.
    pub(super) fn host(&self, number: u32) -> Option<u32> {
        let node = match &self.nodes {
            Some(nodes) => *nodes.get(number as usize)?,
            None => NodeId(number),
        };
        self.topology.is_host(node).then_some(node.0)
    }
}

pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    resolve: &mut Resolver<'_>,
) -> Option<Found> {
    let section = reader.section(root, "topology", keys::TOPOLOGY);
    if !section.is_there() {
        reader.problem(
            None,
            "missing [topology]; add it with kind = \"star\" and hosts = 16, for example",
        );
        return None;
    }
    reader.require(&section, "kind", "\"leaf-spine\"");
    let kind = reader.word(&section, "kind", Kind::ALL);
    let cables = cables(reader, &section);
    let pairing = pairing(reader, &section);
    let kind = kind?;
    for name in needed(kind, &section) {
        reader.require(&section, name, example(name));
    }
    reader.idle(
        &section,
        &idle(kind, &section),
        "has no meaning for this kind",
    );
    let before = reader.problem_count();
    let found = match (kind, survey::tool(kind)) {
        (_, Some(tool)) => survey::read(reader, &section, tool, cables, pairing, resolve),
        (Kind::Hpcc, _) => hpcc(reader, &section, pairing, resolve),
        (Kind::List, _) => list(reader, &section, cables.0, pairing),
        _ => build(reader, &section, kind, cables)
            .and_then(|topology| match pairing {
                Some(pairing) => topology.with_second_links(pairing),
                None => Ok(topology),
            })
            .map(|topology| Found {
                topology,
                ..Found::default()
            })
            .map_err(|error| error.to_string()),
    };
    match found {
        _ if reader.problem_count() > before => None,
        Ok(found) => Some(found),
        Err(error) => {
            let key = if section.has("file") { "file" } else { "kind" };
            reader.bad(&section, key, error);
            None
        }
    }
}

fn example(name: &str) -> &'static str {
    match name {
        "host_names" => "[\"h0\", \"h1\"]",
        "switch_names" => "[\"tor0\"]",
        "cables" => "[[\"h0\", \"tor0\"], [\"h1\", \"tor0\"]]",
        "file" => "\"fabric.txt\"",
        _ => "2",
    }
}

fn hpcc<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    pairing: Option<Pairing>,
    resolve: &mut Resolver<'_>,
) -> Result<Found, String> {
    let name = reader.string(section, "file").unwrap_or_default();
    let text =
        resolve_text(resolve, name).map_err(|error| format!("cannot read {name}: {error}"))?;
    let read = HpccTopology::read(&text).map_err(|error| format!("{name}: {error}"));
    let mut read = read?;
    read.topology.pairing = pairing;
    let checked = read.topology.check();
    checked.map_err(|error| format!("{name}: {error}"))?;
    Ok(Found {
        topology: read.topology,
        nodes: Some(read.nodes),
        ..Found::default()
    })
}

/// The words of a list, or the one in its place.
pub(super) fn words<'t>(reader: &mut Reader<'t>, section: &Section<'t>, name: &str) -> Vec<String> {
    let values = reader.list(section, name).unwrap_or_default();
    let mut words = Vec::new();
    for value in values {
        match value.get_ref().as_str() {
            Some(word) => words.push(word.to_owned()),
            None => reader.wrong_type(section, name, "a string or a list of strings", value),
        }
    }
    words
}

/// Hosts, switches and cables by their names.
fn list<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    otherwise: CableSpec,
    pairing: Option<Pairing>,
) -> Result<Found, String> {
    let [hosts, switches] = ["host_names", "switch_names"].map(|key| words(reader, section, key));
    let mut cables = Vec::new();
    for value in reader.list(section, "cables").unwrap_or_default() {
        match cable(value.get_ref(), otherwise) {
            Some(cable) => cables.push(cable),
            None => {
                let line = Some(reader.line_of(value));
                let text = "invalid topology.cables: must be a list of two names, and a rate and a delay if you \
                            like, for example [\"h0\", \"tor0\", \"100Gbit\", \"1us\"]";
                reader.problem(line, text);
                break;
            }
        }
    }
    let topology = Topology::from_list(hosts, switches, &cables, pairing);
    let topology = topology.map_err(|error| error.to_string())?;
    Ok(Found {
        topology,
        ..Found::default()
    })
}

fn cable(value: &DeValue<'_>, otherwise: CableSpec) -> Option<NamedCable> {
    let DeValue::Array(values) = value else {
        return None;
    };
    let words: Option<Vec<&str>> = values.iter().map(|it| it.get_ref().as_str()).collect();
    let words = words?;
    let quantity = |at: usize, kind: &Quantity| words.get(at).map(|text| kind.read(text).ok());
    let mut spec = otherwise;
    if let Some(bps) = quantity(2, &RATE) {
        spec.rate = Rate::from_bps(bps?);
    }
    if let Some(nanos) = quantity(3, &TIME) {
        spec.delay = Span::from_nanos(nanos?.min(NANOS_MAX));
    }
    let [a, b] = words.get(..2)? else {
        return None;
    };
    (words.len() <= 4).then(|| NamedCable {
        ends: [a, b].map(|name| (*name).to_owned()),
        spec,
        loss: Probability::ZERO,
    })
}

/// What the second link of each host is.
fn pairing<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Pairing> {
    let links = reader.word(section, "host_links", HostLinks::ALL)?;
    Some(match links {
        HostLinks::TwoPorts => Pairing::Ports,
        HostLinks::Bond => Pairing::Bond,
    })
}

/// From hosts, and between switches.
fn cables<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> (CableSpec, CableSpec) {
    let rate = read_rate(reader, section, "rate");
    let rate = rate.unwrap_or(Rate::from_mbps(100_000));
    let delay = reader.span(section, "delay", 0);
    let delay = delay.unwrap_or(Span::from_micros(1));
    let fabric_rate = read_rate(reader, section, "fabric_rate").unwrap_or(rate);
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
    let is_surveyed = survey::tool(kind).is_some();
    let may = |name: &str| match name {
        "host_names" | "switch_names" => is_surveyed || kind == Kind::List,
        "leave_out" => is_surveyed,
        "cables_per_spine" => matches!(kind, Kind::LeafSpine | Kind::RailPod),
        "servers_per_unit" => kind == Kind::RailPod,
        "fabric_rate" | "fabric_delay" => {
            !matches!(kind, Kind::Pair | Kind::Star | Kind::List | Kind::Hpcc)
        }
        "rate" | "delay" => kind != Kind::Hpcc,
        "host_links" => !matches!(kind, Kind::Pair | Kind::Dumbbell),
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
    let mut count = |name| count_of(reader, section, name);
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
        Kind::RailPod => {
            let servers = count("servers");
            RailPod {
                servers,
                nics: count("nics"),
                servers_per_unit: reader
                    .count32(section, "servers_per_unit", (1, u32::MAX))
                    .unwrap_or(servers),
                spines: count_of(reader, section, "spines"),
                cables_per_spine: count_of(reader, section, "cables_per_spine"),
                host_cable,
                spine_cable: fabric,
            }
            .build()
        }
        // Read elsewhere.
        Kind::List | Kind::Hpcc | Kind::IbNetDiscover | Kind::Containerlab | Kind::Lldp => {
            Topology::pair(host_cable)
        }
    }
}

fn count_of<'t>(reader: &mut Reader<'t>, section: &Section<'t>, name: &str) -> u32 {
    let count = reader.count32(section, name, (1, u32::MAX));
    count.unwrap_or(1)
}

/// A rate that a port may have.
pub(super) fn read_rate<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
) -> Option<Rate> {
    let range = (RATE_MIN.bps(), Rate::MAX.bps());
    let bps = reader.quantity(section, name, &RATE, range)?;
    Some(Rate::from_bps(bps))
}

//! Hosts and cables by name.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use ferroce_base::names::near;
use ferroce_base::toml_file::{Reader, Section, integer};
use ferroce_fabric::{NodeId, Topology};
use toml::de::DeValue;

/// One host: its name or number.
pub(super) fn read_host<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
    topology: &Topology,
) -> Option<u32> {
    let value = reader.value(section, name)?;
    let (given, found) = match value.get_ref() {
        DeValue::String(text) => (format!("{text:?}"), host_named(text, topology)),
        value @ DeValue::Integer(_) => {
            let number = integer(value).unwrap_or(-1);
            let found = u32::try_from(number).ok();
            (
                number.to_string(),
                found.filter(|host| *host < topology.hosts),
            )
        }
        _ => {
            reader.wrong_type(section, name, "the name or number of a host", value);
            return None;
        }
    };
    if found.is_none() {
        reader.invalid(section, name, given, hosts_there_are(topology));
    }
    found
}

/// Some hosts: `all`, names, numbers and ranges of numbers (`0-15`), or a list of these.
pub(super) fn read_hosts<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
    topology: &Topology,
) -> Option<Vec<u32>> {
    let mut hosts = Vec::new();
    let mut is_good = true;
    for value in reader.list(section, name)? {
        let given = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            value @ DeValue::Integer(_) => integer(value).unwrap_or(-1).to_string(),
            _ => {
                reader.wrong_type(section, name, "names or numbers of hosts", value);
                return None;
            }
        };
        let all = || (given == "all").then(|| 0..=topology.hosts.saturating_sub(1));
        let one = || host_named(&given, topology).map(|host| host..=host);
        match all().or_else(one).or_else(|| range(&given, topology)) {
            Some(range) => hosts.extend(range),
            None => {
                let must = hosts_there_are(topology);
                reader.invalid(section, name, format_args!("{given:?}"), must);
                is_good = false;
            }
        }
    }
    is_good.then_some(hosts)
}

/// Some cables, in the order of their numbers.
pub(super) fn read_links<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
    topology: &Topology,
) -> Option<Vec<usize>> {
    let mut cables = Vec::new();
    for value in reader.list(section, name)? {
        let DeValue::String(text) = value.get_ref() else {
            reader.wrong_type(
                section,
                name,
                "names of links, for example \"leaf0-spine1\"",
                value,
            );
            return None;
        };
        match links_named(text, topology) {
            Ok(found) => cables.extend(found),
            Err(must) => {
                reader.invalid(section, name, format_args!("{text:?}"), must);
                return None;
            }
        }
    }
    cables.sort_unstable();
    cables.dedup();
    Some(cables)
}
fn host_named(text: &str, topology: &Topology) -> Option<u32> {
    let named = topology.find(text).filter(|node| topology.is_host(*node));
    let number = || text.parse().ok().filter(|host| *host < topology.hosts);
    named.map(|NodeId(host)| host).or_else(number)
}

fn range(text: &str, topology: &Topology) -> Option<RangeInclusive<u32>> {
    let (from, to) = text.split_once('-')?;
    let number = |text: &str| text.strip_prefix('h').unwrap_or(text).parse::<u32>().ok();
    let (from, to) = (number(from)?, number(to)?);
    (from <= to && to < topology.hosts).then_some(from..=to)
}

fn hosts_there_are(topology: &Topology) -> String {
    let last = topology.hosts.saturating_sub(1);
    format!(
        "the topology has hosts 0 to {last}; write a number, a range such as 0-{last}, a name or all"
    )
}

/// The cables that a name stands for; else what there is.
fn links_named(text: &str, topology: &Topology) -> Result<Vec<usize>, String> {
    let cables = || topology.cables.iter().enumerate();
    let is_of_host = |[a, b]: [NodeId; 2]| topology.is_host(a) || topology.is_host(b);
    let found: Vec<usize> = match text {
        "all" => cables().map(|(at, _)| at).collect(),
        "hosts" => of(cables().filter(|(_, it)| is_of_host(it.ends))),
        "fabric" => of(cables().filter(|(_, it)| !is_of_host(it.ends))),
        _ => {
            let (ends, which) = match text.split_once('#') {
                None => (text, None),
                Some((ends, which)) => (ends, Some(which)),
            };
            let parallel = parallel(ends, topology).ok_or_else(|| unknown(text, topology))?;
            match which {
                None => parallel,
                Some(which) => {
                    let which = which.parse::<usize>().ok();
                    let one = which.and_then(|which| parallel.get(which).copied());
                    let last = parallel.len().saturating_sub(1);
                    return one.map(|one| vec![one]).ok_or_else(|| {
                        format!("parallel links are numbered {ends}#0 to {ends}#{last}")
                    });
                }
            }
        }
    };
    match found.is_empty() {
        true => Err("the topology has no such link".into()),
        false => Ok(found),
    }
}

fn of<T>(cables: impl Iterator<Item = (usize, T)>) -> Vec<usize> {
    cables.map(|(at, _)| at).collect()
}

/// The cables between two nodes or ports, those of one host, or that of one port.
fn parallel(text: &str, topology: &Topology) -> Option<Vec<usize>> {
    let (one, other) = ends_named(text, topology)?;
    let touches = |cable: usize, ends: [NodeId; 2]| {
        let is_at = |name: &EndName<'_>, end: usize| {
            let is_port = |port: &str| {
                let ports = topology.port_names.get(cable);
                ports.is_some_and(|ports| ports[end] == port)
            };
            ends[end] == name.node && name.port.is_none_or(is_port)
        };
        (0..2)
            .any(|end| is_at(&one, end) && other.as_ref().is_none_or(|other| is_at(other, 1 - end)))
    };
    let cables = topology.cables.iter().enumerate();
    let found = of(cables.filter(|(cable, it)| touches(*cable, it.ends)));
    (!found.is_empty()).then_some(found)
}

/// A node, or one of its ports.
struct EndName<'t> {
    node: NodeId,
    port: Option<&'t str>,
}

fn end_named<'t>(text: &'t str, topology: &Topology) -> Option<EndName<'t>> {
    if let Some(node) = topology.find(text) {
        return Some(EndName { node, port: None });
    }
    let (node, port) = text.split_once(':')?;
    let node = topology.find(node)?;
    let port = Some(port);
    Some(EndName { node, port })
}

/// A host or a port, or two nodes or ports with a hyphen between them. Their names may have hyphens themselves.
fn ends_named<'t>(
    text: &'t str,
    topology: &Topology,
) -> Option<(EndName<'t>, Option<EndName<'t>>)> {
    if let Some(end) = topology.find(text) {
        let is_host = topology.is_host(end);
        return is_host.then_some((
            EndName {
                node: end,
                port: None,
            },
            None,
        ));
    }
    let both = text.match_indices('-').find_map(|(at, _)| {
        let one = end_named(&text[..at], topology)?;
        Some((one, Some(end_named(&text[at + 1..], topology)?)))
    });
    both.or_else(|| Some((end_named(text, topology)?, None)))
}

/// The cable of a port, and which of its ends the port is; else what there is.
pub(super) fn port_named(text: &str, topology: &Topology) -> Result<(usize, usize), String> {
    let (ends, which) = match text.split_once('#') {
        None => (text, None),
        Some((ends, which)) => (ends, Some(which)),
    };
    let none = || {
        let such_as = such_as(text, topology);
        format!(
            "no such port; write the names of a link's ends, first that of the one whose port it is, \
             or a host's name{such_as}"
        )
    };
    let (from, _) = ends_named(ends, topology).ok_or_else(none)?;
    let cables = parallel(ends, topology).ok_or_else(none)?;
    let which = match which {
        None if cables.len() == 1 => Some(0),
        None => None,
        Some(which) => which.parse::<usize>().ok(),
    };
    let cable = which.and_then(|which| cables.get(which).copied());
    let last = cables.len() - 1;
    let cable =
        cable.ok_or_else(|| format!("parallel links are numbered {ends}#0 to {ends}#{last}"))?;
    Ok((
        cable,
        usize::from(topology.cables[cable].ends[0] != from.node),
    ))
}

/// The link that was probably meant, or one as an example, for a complaint.
fn such_as(text: &str, topology: &Topology) -> String {
    let names = topology.cables.iter().take(10_000).map(|it| {
        let [a, b] = it.ends.map(|node| topology.name(node));
        format!("{a}-{b}")
    });
    let names: Vec<_> = names.collect();
    let near = near(text, names.iter().map(String::as_str));
    match (near, names.first()) {
        (Some(near), _) => format!("; did you mean {near}?"),
        (None, Some(first)) => format!(", for example {first}"),
        (None, None) => String::new(),
    }
}

fn unknown(text: &str, topology: &Topology) -> String {
    let such_as = such_as(text, topology);
    format!(
        "no such link; write the names of its ends, a host's name for its link, all, hosts or \
         fabric{such_as}"
    )
}

/// The name of every cable: its ends; where several are parallel, with the names of their ports or numbered.
pub(super) fn link_names(topology: &Topology) -> Vec<String> {
    let mut seen: HashMap<[NodeId; 2], u32> = HashMap::new();
    let mut count = |ends| {
        let count = seen.entry(ends).or_insert(0);
        *count += 1;
        *count - 1
    };
    let numbers: Vec<_> = topology.cables.iter().map(|it| count(it.ends)).collect();
    let name = |(cable, number): (usize, u32)| {
        let ends = topology.cables[cable].ends;
        let [a, b] = ends.map(|node| topology.name(node));
        match seen[&ends] {
            1 => format!("{a}-{b}"),
            _ if topology.port_names.is_empty() => format!("{a}-{b}#{number}"),
            _ => [0, 1].map(|end| topology.port_name(cable, end)).join("-"),
        }
    };
    numbers.into_iter().enumerate().map(name).collect()
}

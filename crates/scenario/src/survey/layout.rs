//! From nodes and links as files have them to a topology: which nodes are hosts, and what all are called.

use std::cmp::Ordering;
use std::collections::HashMap;

use ferroce_fabric::topology::{Cable, CableSpec, NodeId, Topology, TopologyError};

use super::file::Notice;
use super::options::{SurveyOptions, matches};
use super::sheet::{End, Link, Node, Role, Sheet};

/// A node of the topology: a switch, a host, or one link of a host with several.
struct Place {
    is_host: bool,
    /// Its names, the shortest first.
    names: Vec<String>,
    /// Which of them it has.
    name: usize,
    /// Its links, and which end of each is here.
    links: Vec<(usize, usize)>,
}

/// The topology of what was read, and what was left out or not understood.
pub(super) fn of(
    mut sheet: Sheet<'_>,
    options: &SurveyOptions,
) -> Result<(Topology, Vec<Notice>), Notice> {
    let links = std::mem::take(&mut sheet.links);
    let links = kept(&mut sheet, links, options);
    let mut places = places(&mut sheet, &links, options)?;
    name(&mut places);
    places.sort_by(|a, b| {
        b.is_host
            .cmp(&a.is_host)
            .then_with(|| natural(a.name(), b.name()))
    });
    let topology = assemble(&places, &links, options);
    if let Err(error) = topology.check() {
        let next = match error {
            TopologyError::Disconnected { .. } => {
                "; a node that was taken for a host and forwards belongs in switch_names, one that does not belong to \
                 the fabric in leave_out"
            }
            TopologyError::Count { field: "hosts", .. } => "; name the hosts in host_names",
            _ => "",
        };
        return Err(sheet.error((0, 0), format!("{error}{next}")));
    }
    let notices = sheet.notices();
    Ok((topology, notices))
}

impl Place {
    fn name(&self) -> &str {
        &self.names[self.name]
    }
}

/// Whether one of these patterns is a name of a node.
fn is_named(node: &Node, patterns: &[String]) -> bool {
    let names = || node.names.iter().chain([&node.key]);
    patterns
        .iter()
        .any(|pattern| names().any(|name| matches(pattern, name)))
}

/// The links that no pattern leaves out.
fn kept(sheet: &mut Sheet<'_>, links: Vec<Link>, options: &SurveyOptions) -> Vec<Link> {
    let is_out = |end: &End| {
        let node = &sheet.nodes[end.node];
        let names = node.names.iter().chain([&node.key]);
        let mut ports = names.map(|name| format!("{name}:{}", end.port));
        is_named(node, &options.left_out)
            || ports.any(|port| options.left_out.iter().any(|it| matches(it, &port)))
    };
    let kept = links.into_iter();
    kept.filter(|link| !link.ends.iter().any(is_out)).collect()
}

/// The nodes of the topology.
fn places(
    sheet: &mut Sheet<'_>,
    all: &[Link],
    options: &SurveyOptions,
) -> Result<Vec<Place>, Notice> {
    let mut of_node = vec![Vec::new(); sheet.nodes.len()];
    for (at, link) in all.iter().enumerate() {
        for (here, end) in link.ends.iter().enumerate() {
            of_node[end.node].push((at, here));
        }
    }
    let mut places = Vec::new();
    let mut cards: HashMap<String, usize> = HashMap::new();
    for (index, links) in of_node.into_iter().enumerate() {
        let node = sheet.nodes[index].clone();
        if links.is_empty() {
            if is_named(&node, &options.left_out) {
                continue;
            }
            if node.role == Some(Role::Host) || is_named(&node, &options.hosts) {
                let text = format!(
                    "host {} has no link; connect it to a switch or add it to leave_out",
                    node.names[0]
                );
                return Err(sheet.error(node.at, text));
            }
            sheet.notice(
                node.at,
                format!("{} has no link and is left out", node.names[0]),
            );
            continue;
        }
        let is_host = is_host(&node, links.len(), options);
        let mut place = |names, links| {
            places.push(Place {
                is_host,
                names,
                name: 0,
                links,
            });
            places.len() - 1
        };
        if !is_host || links.len() == 1 && options.pairing.is_none() {
            place(node.names, links);
        } else if options.pairing.is_none() {
            for (at, here) in links {
                let port = &all[at].ends[here].port;
                let of_port = node.names.iter().map(|name| format!("{name}-{port}"));
                place(of_port.collect(), vec![(at, here)]);
            }
        } else {
            let card = node.card.unwrap_or(node.key);
            match cards.get(&card) {
                Some(&first) => places[first].links.extend(links),
                None => {
                    cards.insert(card, place(node.names, links));
                }
            }
        }
    }
    Ok(places)
}

/// Whether a node is a host: as the options say, or the file, or by its links.
fn is_host(node: &Node, links: usize, options: &SurveyOptions) -> bool {
    let links_max = if options.pairing.is_some() { 2 } else { 1 };
    match node.role {
        _ if is_named(node, &options.switches) => false,
        _ if is_named(node, &options.hosts) => true,
        Some(Role::Host) => true,
        Some(Role::Switch) => false,
        Some(Role::Linux) => links <= links_max,
        None => links == 1,
    }
}

/// Gives each the shortest of its names that no other one has.
fn name(places: &mut [Place]) {
    loop {
        let mut count: HashMap<&str, u32> = HashMap::new();
        for place in places.iter() {
            *count.entry(place.name()).or_default() += 1;
        }
        let is_shared: Vec<bool> = places.iter().map(|it| count[it.name()] > 1).collect();
        let mut has_changed = false;
        for (place, _) in places.iter_mut().zip(is_shared).filter(|it| it.1) {
            if place.name + 1 < place.names.len() {
                place.name += 1;
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    // Files may repeat even the last ones.
    let mut count: HashMap<String, u32> = HashMap::new();
    for place in places.iter_mut() {
        let base = place.name().to_owned();
        let number = count.entry(base.clone()).or_default();
        *number += 1;
        if *number > 1 {
            place.names.push(format!("{base}~{number}"));
            place.name = place.names.len() - 1;
        }
    }
}

fn assemble(places: &[Place], links: &[Link], options: &SurveyOptions) -> Topology {
    let mut topology = Topology {
        // Too many are found by the check.
        hosts: places.iter().filter(|it| it.is_host).count() as u32,
        pairing: options.pairing,
        ..Topology::default()
    };
    let mut ends = vec![[NodeId(0); 2]; links.len()];
    for (id, place) in (0..).map(NodeId).zip(places) {
        topology.names.push(place.name().to_owned());
        for &(link, here) in &place.links {
            ends[link][here] = id;
        }
    }
    for (link, [a, b]) in links.iter().zip(ends) {
        let otherwise = match topology.is_host(a) || topology.is_host(b) {
            true => options.host_cable,
            false => options.fabric_cable,
        };
        let spec = CableSpec {
            rate: link.rate.unwrap_or(otherwise.rate),
            delay: link.delay.unwrap_or(otherwise.delay),
        };
        topology.cables.push(Cable::new(a, b, spec));
        let ports = link.ends.each_ref().map(|end| end.port.clone());
        topology.port_names.push(ports);
    }
    topology
}

/// The order of names in which numbers count as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while let (Some(one), Some(other)) = (left.chars().next(), right.chars().next()) {
        let order = match (one.is_ascii_digit(), other.is_ascii_digit()) {
            (true, true) => {
                let [x, y] = [&mut left, &mut right].map(take_number);
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            }
            _ => {
                left = &left[one.len_utf8()..];
                right = &right[other.len_utf8()..];
                one.cmp(&other)
            }
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// Takes the digits at the beginning of a text; returns them without leading zeros.
fn take_number<'a>(text: &mut &'a str) -> &'a str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    *text = rest;
    digits.trim_start_matches('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_in_their_order() {
        let mut names = [
            "node10", "node9", "a", "node", "node09b", "node009a", "b2-10", "b2-9", "ö",
        ];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(
            names,
            [
                "a", "b2-9", "b2-10", "node", "node9", "node009a", "node09b", "node10", "ö"
            ]
        );
    }
}

//! The text that ibnetdiscover prints: a section for each switch and channel adapter, with its links.
//!
//! ```text
//! vendid=0x2c9
//! devid=0xd2f0
//! sysimgguid=0xb83fd20300c00040
//! switchguid=0xb83fd20300c00040(b83fd20300c00040)
//! Switch  41 "S-b83fd20300c00040"  # "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 2 lmc 0
//! [1]  "H-b83fd20300a00010"[1](b83fd20300a00010)  # "node1 mlx5_0" lid 11 4xHDR
//! ```
//!
//! ibsim's networks have the same form, with `Hca` for `Ca` and without comments.

use std::collections::BTreeMap;

use ferroce_dcqcn::Rate;
use ferroce_fabric::text::{ReadError, integer};

use super::file::{Notice, SurveyFile};
use super::sheet::{At, End, Link, Node, Role, Sheet};

/// What a lane carries by the name of its speed, Mb/s: data, without the line code (8b/10b up to QDR,
/// 64b/66b from FDR10 on), as InfiniBand's rates are named.
const LANE_MBPS: &[(&str, u32)] = &[
    ("SDR", 2_000),
    ("DDR", 4_000),
    ("QDR", 8_000),
    ("FDR10", 10_000),
    ("FDR", 13_636),
    ("EDR", 25_000),
    ("HDR", 50_000),
    ("NDR", 100_000),
    ("XDR", 200_000),
];
/// The lanes that a link may have.
const WIDTHS: [u32; 5] = [1, 2, 4, 8, 12];
/// The fields of a section's head.
const FIELDS: &[&str] = &[
    "vendid",
    "devid",
    "sysimgguid",
    "switchguid",
    "caguid",
    "rtguid",
];
/// What the names of the nodes that switches have for SHARP have in common.
const AGGREGATION: &str = "Aggregation Node";

/// A section: a node, unless that is left out, and the number of its ports.
struct Section {
    node: Option<usize>,
    ports: u32,
}

/// A link as one end reports it.
struct Told<'t> {
    at: At,
    node: usize,
    port: u32,
    peer: &'t str,
    peer_port: u32,
    rate: Option<Rate>,
}

pub(super) fn read(sheet: &mut Sheet<'_>, files: &[SurveyFile<'_>]) -> Result<(), Notice> {
    for (index, file) in files.iter().enumerate() {
        File {
            sheet: &mut *sheet,
            index,
            image: None,
            sections: BTreeMap::new(),
            section: None,
            told: Vec::new(),
            left_out: BTreeMap::new(),
        }
        .read(file.text)?;
    }
    Ok(())
}

struct File<'s, 'f, 't> {
    sheet: &'s mut Sheet<'f>,
    index: usize,
    /// The card that the next section is of.
    image: Option<&'t str>,
    /// By what the file calls their nodes.
    sections: BTreeMap<&'t str, Section>,
    section: Option<&'t str>,
    told: Vec<Told<'t>>,
    /// Nodes that are no part of the topology, by kind: where the first one is, and how many.
    left_out: BTreeMap<&'static str, (At, usize)>,
}

impl<'t> File<'_, '_, 't> {
    fn read(mut self, text: &'t str) -> Result<(), Notice> {
        for (line, number) in text.lines().zip(1..) {
            let at = (self.index, number);
            let line = line.trim();
            let is_heading = ["#", "Chassis ", "Non-Chassis Nodes", "Hostname: "];
            if line.is_empty() || is_heading.iter().any(|it| line.starts_with(it)) {
                continue;
            }
            let read = match line.split_once(char::is_whitespace) {
                _ if line.starts_with('[') => self.port(at, line),
                Some((kind @ ("Switch" | "Ca" | "Hca" | "Rt"), rest)) => {
                    self.node(at, kind, rest.trim())
                }
                _ => {
                    self.field(at, line);
                    Ok(())
                }
            };
            read.map_err(|error| match error {
                Wrong::Word(error) => self.sheet.error(at, error.message),
                Wrong::Link(notice) => notice,
            })?;
        }
        if self.sections.is_empty() {
            let text = "has no line that begins with Switch or Ca; write it with `ibnetdiscover > FILE`, without \
                        -p, -l or -H";
            return Err(self.sheet.error((self.index, 0), text));
        }
        self.links()?;
        for (kind, (at, count)) in self.left_out {
            let text = match count {
                1 => format!("1 {kind} is left out"),
                _ => format!("{count} {kind}s are left out"),
            };
            self.sheet.notice(at, text);
        }
        Ok(())
    }

    /// A line of a section's head.
    fn field(&mut self, at: At, line: &'t str) {
        let Some((name, value)) = line.split_once('=') else {
            let shown: String = line.chars().take(40).collect();
            let first = shown.split_whitespace().next().unwrap_or_default();
            self.sheet.unknown(at, format!("unknown line {first:?}"));
            return;
        };
        match FIELDS.contains(&name) {
            true if name == "sysimgguid" => {
                self.image = value.split_whitespace().next();
            }
            true => {}
            false => self.sheet.unknown(at, format!("unknown field {name:?}")),
        }
    }

    /// The line of a node: its ports, its name in the file, and in quotes its name for people.
    fn node(&mut self, at: At, kind: &str, rest: &'t str) -> Result<(), Wrong> {
        let (ports, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let ports = integer(at.1, "number of ports", ports, 0, 254)?;
        let (key, rest) = quoted(rest).ok_or_else(|| {
            let must = "a name in quotes, for example \"S-0002c902004a1b30\"";
            ReadError::invalid(at.1, "node", rest, must)
        })?;
        let description = description(rest).map_or("", |(text, _)| text);
        let is_aggregation = description.contains(AGGREGATION);
        let out = match kind {
            "Rt" => Some("router"),
            "Ca" | "Hca" if is_aggregation => Some("aggregation node"),
            _ => None,
        };
        if let Some(kind) = out {
            self.left_out.entry(kind).or_insert((at, 0)).1 += 1;
        }
        let role = match kind {
            "Switch" => Role::Switch,
            _ => Role::Host,
        };
        let card = self.image.take().map(str::to_owned);
        let node = match out {
            Some(_) => None,
            None => Some(self.sheet.add(Node {
                key: key.to_owned(),
                names: names(role, key, description),
                role: Some(role),
                card,
                at,
            })?),
        };
        self.sections.insert(key, Section { node, ports });
        self.section = Some(key);
        Ok(())
    }

    /// A line for a port: its number, and the port that it is connected to.
    fn port(&mut self, at: At, line: &'t str) -> Result<(), Wrong> {
        let Some(section) = self.section.and_then(|key| self.sections.get(key)) else {
            let text =
                "a port before the first node; the file must begin with its Switch or Ca line";
            return Err(ReadError::new(at.1, text).into());
        };
        let malformed = || {
            let must = "[PORT], the node at the other end in quotes, and its [PORT]";
            ReadError::invalid(at.1, "line of a port", line, must)
        };
        let (port, rest) = bracketed(line).ok_or_else(malformed)?;
        let (before, _) = rest.split_once('"').ok_or_else(malformed)?;
        let (peer, rest) = quoted(&rest[before.len()..]).ok_or_else(malformed)?;
        let (peer_port, rest) = bracketed(rest.trim_start()).ok_or_else(malformed)?;
        let port = integer(at.1, "port", port, 1, section.ports.max(1))?;
        let peer_port = integer(at.1, "port", peer_port, 1, 254)?;
        let node = section.node;
        let comment = rest.split_once('#').map_or("", |(_, comment)| comment);
        let rate = self.rate(at, comment);
        if let Some(node) = node {
            self.told.push(Told {
                at,
                node,
                port,
                peer,
                peer_port,
                rate,
            });
        }
        Ok(())
    }

    /// The rate of a link, which the comment of a port's line ends with: `lid 11 4xHDR`.
    fn rate(&mut self, at: At, comment: &str) -> Option<Rate> {
        let after = description(comment).map_or(comment, |(_, after)| after);
        let mut rate = None;
        let mut words = after.split_whitespace();
        while let Some(word) = words.next() {
            let is_flag = |flag| word.strip_prefix(flag).is_some_and(is_number);
            match rate_of(word) {
                _ if ["lid", "lmc", "slot"].contains(&word) => {
                    words.next();
                }
                Some(it) => rate = Some(it),
                None if word == "(scp)" || ["s=", "w=", "v="].into_iter().any(is_flag) => {}
                None => {
                    let kind = format!("unknown link width or speed {word:?}");
                    self.sheet.unknown(at, kind);
                }
            }
        }
        rate
    }

    /// All links, when all nodes are known.
    fn links(&mut self) -> Result<(), Notice> {
        let mut first_link = self.sheet.links.len();
        for told in std::mem::take(&mut self.told) {
            let Some(peer) = self.sections.get(told.peer) else {
                let text = format!(
                    "port {} leads to {}, which the file does not have: must be a node with a section of its own; \
                     run ibnetdiscover again",
                    told.port, told.peer
                );
                return Err(self.sheet.error(told.at, text));
            };
            let Some(peer_node) = peer.node else {
                continue;
            };
            if told.peer_port > peer.ports {
                let text = format!(
                    "port {} leads to port {} of {}, which has ports 1 to {}; run ibnetdiscover again",
                    told.port, told.peer_port, told.peer, peer.ports
                );
                return Err(self.sheet.error(told.at, text));
            }
            let end = |node, port: u32| End {
                node,
                port: port.to_string(),
            };
            self.sheet.tell(Link {
                ends: [end(told.node, told.port), end(peer_node, told.peer_port)],
                told: [true, false],
                rate: told.rate,
                delay: None,
                at: told.at,
            })?;
        }
        while let Some(link) = self.sheet.links.get(first_link) {
            if link.told != [true; 2] {
                let [from, to] = &link.ends;
                let text = format!(
                    "{} leads to {}, but the section of {} has no such port; run ibnetdiscover again",
                    self.sheet.name_of(from),
                    self.sheet.name_of(to),
                    self.sheet.nodes[to.node].key
                );
                return Err(self.sheet.error(link.at, text));
            }
            first_link += 1;
        }
        Ok(())
    }
}

/// What is wrong in a line.
enum Wrong {
    Word(ReadError),
    Link(Notice),
}

impl From<ReadError> for Wrong {
    fn from(error: ReadError) -> Self {
        Self::Word(error)
    }
}

impl From<Notice> for Wrong {
    fn from(notice: Notice) -> Self {
        Self::Link(notice)
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}

/// What is between the quotes that a text begins with, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('"')?.split_once('"')
}

/// The number between the brackets that a text begins with, and the rest.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.split_once(']')
}

/// A node's description, which may have quotes itself, and what comes after it.
fn description(comment: &str) -> Option<(&str, &str)> {
    let (from, to) = (comment.find('"')?, comment.rfind('"')?);
    (from < to).then(|| (&comment[from + 1..to], &comment[to + 1..]))
}

/// The names of a node. Hosts' cards are described as `node1 mlx5_0`, managed switches as
/// `MF0;leaf1:MQM8700/U1` or in a chassis as `MF0;core:MCS7520/L13/U1`, others by their model.
fn names(role: Role, key: &str, description: &str) -> Vec<String> {
    let managed = description.split_once(';').and_then(|(_, name)| {
        let (name, model) = name.split_once(':')?;
        let parts = model.split_once('/').map_or("", |(_, parts)| parts);
        Some((name, parts))
    });
    let guid = key.split_once('-').map_or(key, |(_, guid)| guid);
    let first = description.split_whitespace().next();
    match (role, managed, first) {
        (Role::Switch, Some((name, parts)), _) => {
            let parts = parts.replace('/', "-");
            [
                name.into(),
                format!("{name}-{parts}"),
                format!("{name}-{guid}"),
            ]
            .into()
        }
        (_, _, None) => vec![key.to_owned()],
        (_, _, Some(first)) => {
            let all = description.split_whitespace().collect::<Vec<_>>().join("_");
            [first.into(), all, format!("{first}-{guid}")].into()
        }
    }
}

/// The rate of a width and a speed: `4xEDR`.
fn rate_of(word: &str) -> Option<Rate> {
    let (width, speed) = word.split_once('x')?;
    let width = width.parse().ok().filter(|it| WIDTHS.contains(it))?;
    let (_, mbps) = LANE_MBPS.iter().find(|(name, _)| *name == speed)?;
    Some(Rate::from_mbps(width * mbps))
}

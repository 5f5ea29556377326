//! What has been read from files: nodes, ports and links, each with where it was read.

use std::collections::{BTreeMap, HashMap};

use ferroce_base::complaint::printable;
use ferroce_base::time::Span;
use ferroce_dcqcn::Rate;

use super::file::{Notice, SurveyFile};

/// A file, by its index, and a line of it from 1; 0 for the whole file.
pub(super) type At = (usize, usize);

/// What a node is, if the file says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Host,
    Switch,
    /// Runs any program, a router's too: a host if it has no more links than hosts may have.
    Linux,
}

/// A node of the files.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// What the files call it.
    pub(super) key: String,
    /// Names for people, the shortest first; the last one no other node has.
    pub(super) names: Vec<String>,
    pub(super) role: Option<Role>,
    /// The card that it is part of, if hosts may have several links: nodes of one card are one host.
    pub(super) card: Option<String>,
    pub(super) at: At,
}

/// A port of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct End {
    /// The index of the node.
    pub(super) node: usize,
    pub(super) port: String,
}

/// A link between two ports.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) ends: [End; 2],
    /// Which ends have reported it.
    pub(super) told: [bool; 2],
    pub(super) rate: Option<Rate>,
    pub(super) delay: Option<Span>,
    pub(super) at: At,
}

/// What has been read so far.
pub(super) struct Sheet<'a> {
    files: Vec<&'a str>,
    pub(super) nodes: Vec<Node>,
    by_key: HashMap<String, usize>,
    pub(super) links: Vec<Link>,
    /// The link of each port.
    by_end: HashMap<End, usize>,
    /// Things of one kind that were not understood: where first, and how many.
    unknown: BTreeMap<String, (At, usize)>,
    notices: Vec<(At, String)>,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(files: &[SurveyFile<'a>]) -> Self {
        Self {
            files: files.iter().map(|file| file.name).collect(),
            nodes: Vec::new(),
            by_key: HashMap::new(),
            links: Vec::new(),
            by_end: HashMap::new(),
            unknown: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    pub(super) fn error(&self, (file, line): At, text: impl Into<String>) -> Notice {
        Notice {
            file: self.files.get(file).copied().unwrap_or_default().to_owned(),
            line: (line > 0).then_some(line),
            text: printable(&text.into()),
        }
    }

    /// Says that something is left out.
    pub(super) fn notice(&mut self, at: At, text: String) {
        self.notices.push((at, text));
    }

    /// Counts something that is not understood: `unknown field "x" of a node`.
    pub(super) fn unknown(&mut self, at: At, kind: String) {
        self.unknown.entry(kind).or_insert((at, 0)).1 += 1;
    }

    /// All that was said, in the order of the files.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let unknown = self.unknown.iter().map(|(kind, (at, count))| match count {
            1 => (*at, format!("{kind}, which is ignored")),
            _ => (*at, format!("{kind}, which is ignored, {count} times")),
        });
        let mut all: Vec<_> = self.notices.iter().cloned().chain(unknown).collect();
        all.sort();
        all.into_iter()
            .map(|(at, text)| self.error(at, text))
            .collect()
    }

    /// A line as messages refer to it: with its file, if that is another one.
    pub(super) fn place(&self, (file, line): At, from: At) -> String {
        match (file == from.0, line) {
            (true, _) => format!("line {line}"),
            (false, 0) => self.files[file].to_owned(),
            (false, _) => format!("{}:{line}", self.files[file]),
        }
    }

    /// Adds a node; its names become such as can be written in a scenario.
    pub(super) fn add(&mut self, mut node: Node) -> Result<usize, Notice> {
        node.names.iter_mut().for_each(|name| *name = plain(name));
        if let Some(first) = self.find(&node.key) {
            let first = self.place(self.nodes[first].at, node.at);
            let text = format!("{} is there twice, first on {first}; remove one", node.key);
            return Err(self.error(node.at, text));
        }
        self.by_key.insert(node.key.clone(), self.nodes.len());
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    pub(super) fn find(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// The words for a port in messages.
    pub(super) fn name_of(&self, end: &End) -> String {
        format!("{}:{}", self.nodes[end.node].key, end.port)
    }

    /// Adds a link that its first end reports, or confirms one that the other end has reported.
    pub(super) fn tell(&mut self, link: Link) -> Result<(), Notice> {
        let [a, b] = &link.ends;
        if a.node == b.node {
            let text = format!(
                "{} leads to {}, which is the same node; connect it to another one or leave it out",
                self.name_of(a),
                self.name_of(b)
            );
            return Err(self.error(link.at, text));
        }
        match [a, b].map(|end| self.by_end.get(end).copied()) {
            [None, None] => {
                for end in &link.ends {
                    self.by_end.insert(end.clone(), self.links.len());
                }
                self.links.push(link);
                Ok(())
            }
            [Some(one), Some(other)] if one == other && self.is_news(one, &link) => {
                self.confirm(one, &link);
                Ok(())
            }
            [one, other] => {
                // The port that is known to lead elsewhere, or that reports the same link twice.
                let (end, known) = match (one, other) {
                    (Some(known), _) => (a, known),
                    (None, known) => (b, known.unwrap_or_default()),
                };
                let known = &self.links[known];
                let far = &known.ends[usize::from(known.ends[0] == *end)];
                let text = format!(
                    "{} leads to {}, but {} leads to {} on {}; a port has one link: correct one of them",
                    self.name_of(a),
                    self.name_of(b),
                    self.name_of(end),
                    self.name_of(far),
                    self.place(known.at, link.at)
                );
                Err(self.error(link.at, text))
            }
        }
    }

    /// Whether the end that reports a link has not done so before.
    fn is_news(&self, known: usize, link: &Link) -> bool {
        let known = &self.links[known];
        (0..2).any(|end| known.ends[end] == link.ends[0] && !known.told[end])
    }

    fn confirm(&mut self, known: usize, link: &Link) {
        let it = &mut self.links[known];
        it.told = [true; 2];
        if let (Some(one), Some(other)) = (it.rate, link.rate)
            && one != other
        {
            it.rate = Some(one.min(other));
            let (first, at) = (it.at, link.at);
            let text = format!(
                "{} has {other} here and {one} on {}: the lower rate is taken",
                self.name_of(&link.ends[0]),
                self.place(first, at)
            );
            self.notice(at, text);
        }
    }
}

/// A name as it can be written in a scenario: without spaces, and without what separates names there.
pub(super) fn plain(name: &str) -> String {
    let is_special = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | ':' | '=');
    let parts = name.split(is_special).filter(|part| !part.is_empty());
    let plain = parts.collect::<Vec<_>>().join("_");
    match plain.is_empty() {
        true => "unnamed".into(),
        false => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_written_in_scenarios() {
        let names = ["node1 HCA-1", "a#b", "  ", "MF0;sw:X", "a\tb "];
        assert_eq!(
            names.map(plain),
            ["node1_HCA-1", "a_b", "unnamed", "MF0;sw_X", "a_b"]
        );
    }
}

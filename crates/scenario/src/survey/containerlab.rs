//! Topology files of containerlab.
//!
//! ```yaml
//! topology:
//!   nodes:
//!     leaf1: {kind: nokia_srlinux}
//!     h1: {kind: linux}
//!   links:
//!     - endpoints: ["leaf1:e1-1", "h1:eth1"]
//!     - type: veth
//!       endpoints: [{node: leaf1, interface: e1-2}, {node: leaf2, interface: e1-1}]
//! ```
//!
//! A link has a rate and a delay if its `labels` or `vars` have them (`rate: 100Gbit`).

use std::ops::RangeInclusive;

use ferroce_base::time::Span;
use ferroce_base::units::{Quantity, RATE, TIME};
use ferroce_dcqcn::Rate;
use ferroce_fabric::topology::{DELAY_MAX, RATE_MIN};

use super::document::{Content, Entry, Value};
use super::file::{Notice, SurveyFile};
use super::sheet::{At, End, Link, Node, Role, Sheet, plain};

/// Keys that a file may have, with what is in them; only some of them say something about the fabric.
const ROOT: &[&str] = &["name", "prefix", "mgmt", "topology", "settings", "debug"];
const TOPOLOGY: &[&str] = &["nodes", "groups", "kinds", "defaults", "links"];
const NODE: &[&str] = &[
    "aliases",
    "auto-remove",
    "binds",
    "cap-add",
    "certificate",
    "cgroup-parent",
    "cgroupns-mode",
    "cmd",
    "components",
    "config",
    "cpu",
    "cpu-set",
    "credentials",
    "devices",
    "dns",
    "enforce-startup-config",
    "entrypoint",
    "env",
    "env-files",
    "exec",
    "extras",
    "group",
    "healthcheck",
    "hostname",
    "image",
    "image-pull-policy",
    "kind",
    "labels",
    "license",
    "link-apply-mode",
    "memory",
    "mgmt-ipv4",
    "mgmt-ipv6",
    "network-mode",
    "pid-mode",
    "ports",
    "privileged",
    "restart-policy",
    "runtime",
    "security-opts",
    "shm-size",
    "stages",
    "startup-config",
    "startup-delay",
    "suppress-startup-config",
    "sysctls",
    "tmpfs",
    "type",
    "user",
    "volumes",
];
const LINK: &[&str] = &[
    "dst-port",
    "endpoint",
    "endpoints",
    "host-interface",
    "ipv4",
    "ipv6",
    "labels",
    "mode",
    "mtu",
    "remote",
    "src-port",
    "type",
    "vars",
    "vni",
];
const ENDPOINT: &[&str] = &["node", "interface", "mac", "ipv4", "ipv6", "vars"];
/// In place of a node in a brief link: what is outside of the lab.
const OUTSIDE: &[&str] = &[
    "host",
    "mgmt-net",
    "macvlan",
    "dummy",
    "vxlan",
    "vxlan-stitch",
];
/// The types of links that have two nodes.
const BETWEEN_NODES: &[&str] = &["veth", "veth-stitch"];
/// The kind of nodes that run any program.
const LINUX: &str = "linux";
/// The kinds of nodes that are switches of the host that the lab runs on.
const BRIDGES: &[&str] = &["bridge", "ovs-bridge"];

pub(super) fn read(sheet: &mut Sheet<'_>, files: &[SurveyFile<'_>]) -> Result<(), Notice> {
    for (index, file) in files.iter().enumerate() {
        let root = Value::parse(file.text).map_err(|mut error| {
            if file.text.contains("{{") {
                error.text += "; a template must be rendered first";
            }
            sheet.error((index, error.line), error.text)
        })?;
        File {
            sheet: &mut *sheet,
            index,
        }
        .read(&root)?;
    }
    Ok(())
}

struct File<'s, 'f> {
    sheet: &'s mut Sheet<'f>,
    index: usize,
}

impl File<'_, '_> {
    fn read(&mut self, root: &Value) -> Result<(), Notice> {
        self.look(root, ROOT, "the file");
        let Some(topology) = root.get("topology") else {
            let text = "has no topology; a containerlab file has topology.nodes and topology.links";
            return Err(self.sheet.error((self.index, 0), text));
        };
        self.look(topology, TOPOLOGY, "topology");
        for entry in entries(topology, "nodes") {
            self.node(topology, entry)?;
        }
        let links = topology.get("links").map_or(&[][..], Value::each);
        links.iter().try_for_each(|link| self.link(link))
    }

    /// Counts the keys of a map that are not known.
    fn look(&mut self, map: &Value, known: &[&str], of: &str) {
        for entry in map.entries() {
            if !known.contains(&entry.key.as_str()) {
                let kind = format!("unknown field {:?} of {of}", entry.key);
                self.sheet.unknown((self.index, entry.line), kind);
            }
        }
    }

    fn node(&mut self, topology: &Value, entry: &Entry) -> Result<(), Notice> {
        let (name, node) = (&entry.key, &entry.value);
        self.look(node, NODE, "a node");
        self.sheet.add(Node {
            key: name.clone(),
            names: vec![name.clone()],
            role: match kind(topology, node) {
                Some(LINUX) => Some(Role::Linux),
                Some(kind) if BRIDGES.contains(&kind) => Some(Role::Switch),
                _ => None,
            },
            card: None,
            at: (self.index, entry.line),
        })?;
        Ok(())
    }

    fn link(&mut self, link: &Value) -> Result<(), Notice> {
        let at = (self.index, link.line);
        self.look(link, LINK, "a link");
        let kind = link.get("type").and_then(Value::text).unwrap_or("veth");
        if !BETWEEN_NODES.contains(&kind) {
            let text = format!("a link of type {kind} leads out of the lab and is left out");
            self.sheet.notice(at, text);
            return Ok(());
        }
        let endpoints = link.get("endpoints").map_or(&[][..], Value::each);
        let [one, other] = endpoints else {
            let text = format!(
                "a link with {} endpoints: must have 2, for example endpoints: [\"leaf1:e1-1\", \"h1:eth1\"]",
                endpoints.len()
            );
            return Err(self.sheet.error(at, text));
        };
        let (Some(a), Some(b)) = (self.end(one)?, self.end(other)?) else {
            let text = "a link to the host that the lab runs on is left out";
            self.sheet.notice(at, text.into());
            return Ok(());
        };
        let rate = self.quantity(link, "rate", &RATE, RATE_MIN.bps()..=Rate::MAX.bps())?;
        let delay = self.quantity(link, "delay", &TIME, 0..=DELAY_MAX.as_nanos())?;
        self.sheet.tell(Link {
            ends: [a, b],
            // A file has each link once.
            told: [true; 2],
            rate: rate.map(Rate::from_bps),
            delay: delay.map(Span::from_nanos),
            at,
        })
    }

    /// An end of a link; `None` if that is outside of the lab.
    fn end(&mut self, value: &Value) -> Result<Option<End>, Notice> {
        let at: At = (self.index, value.line);
        let pair = match &value.content {
            Content::Map(_) => {
                self.look(value, ENDPOINT, "an endpoint");
                let word = |key| value.get(key).and_then(Value::text);
                word("node").zip(word("interface"))
            }
            _ => value.text().and_then(|text| text.split_once(':')),
        };
        let Some((node, port)) = pair else {
            let given = value.text().unwrap_or_default();
            let text = format!(
                "invalid endpoint {given:?}: must be a node and its interface, for example \"leaf1:e1-1\""
            );
            return Err(self.sheet.error(at, text));
        };
        match self.sheet.find(node) {
            Some(node) => Ok(Some(End {
                node,
                port: plain(port),
            })),
            None if OUTSIDE.contains(&node) => Ok(None),
            None => {
                let names = self.sheet.nodes.iter().map(|node| node.key.as_str());
                let meant = match ferroce_base::names::near(node, names) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "add it to topology.nodes or correct the name".into(),
                };
                let text = format!("a link to the unknown node {node:?}; {meant}");
                Err(self.sheet.error(at, text))
            }
        }
    }

    /// A quantity that the labels or variables of a link have.
    fn quantity(
        &self,
        link: &Value,
        name: &str,
        quantity: &Quantity,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Notice> {
        let of = |key| link.get(key).and_then(|it| it.get(name));
        let Some(value) = of("labels").or_else(|| of("vars")) else {
            return Ok(None);
        };
        let given = value.text().unwrap_or_default();
        let read = quantity.read_in(given, range);
        let error = |error| {
            let text = format!("invalid {name} {given:?} of a link: {error}");
            self.sheet.error((self.index, value.line), text)
        };
        read.map(Some).map_err(error)
    }
}

fn entries<'v>(value: &'v Value, key: &str) -> &'v [Entry] {
    value.get(key).map_or(&[], Value::entries)
}

/// The kind of a node: its own, that of its group, or the default one.
fn kind<'v>(topology: &'v Value, node: &'v Value) -> Option<&'v str> {
    let word = |value: &'v Value, key| value.get(key).and_then(Value::text);
    let defaults = topology.get("defaults");
    let own = word(node, "kind");
    let group = word(node, "group").or_else(|| word(defaults?, "group"));
    let of_group = || word(topology.get("groups")?.get(group?)?, "kind");
    own.or_else(of_group).or_else(|| word(defaults?, "kind"))
}

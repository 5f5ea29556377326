//! What lldpd knows of the neighbours of each system: `lldpcli show neighbors -f json` or `-f json0`.
//!
//! ```json
//! {"lldp": {"interface": [{"Ethernet0": {
//!     "chassis": {"h1": {"capability": [{"type": "Station", "enabled": true}]}},
//!     "port": {"id": {"type": "ifname", "value": "eth0"}, "descr": "eth0"}}}]}}
//! ```
//!
//! The system that a file is from is the file's name, without directory and ending. A file may also be an
//! object of several systems by their names. Both ends of a link report it if both have files; each names the
//! other's port by its identifier, which may be a MAC address, or by its description.

use std::collections::{BTreeMap, HashMap, HashSet};

use ferroce_dcqcn::Rate;

use super::document::{Entry, Value};
use super::file::{Notice, SurveyFile};
use super::options::matches;
use super::sheet::{At, End, Link, Node, Role, Sheet, plain};

/// The fields that entries may have.
const INTERFACE: &[&str] = &[
    "age",
    "chassis",
    "lldp-med",
    "name",
    "pi",
    "port",
    "ppvid",
    "rid",
    "ttl",
    "unknown-tlvs",
    "via",
    "vlan",
];
const CHASSIS: &[&str] = &[
    "capability",
    "descr",
    "id",
    "mgmt-iface",
    "mgmt-ip",
    "name",
    "ttl",
];
const PORT: &[&str] = &[
    "aggregation",
    "auto-negotiation",
    "descr",
    "id",
    "mfs",
    "power",
    "ttl",
];
/// The capabilities of systems that forward.
const FORWARDING: &[&str] = &["Bridge", "Router"];

/// What a system reports about one of its interfaces.
struct Told {
    system: String,
    port: String,
    /// The neighbour, and what its port may be called there, the best name first.
    neighbour: String,
    far_ports: Vec<String>,
    rate: Option<Rate>,
    at: At,
    /// It is one of the links that have been added.
    is_used: bool,
}

pub(super) fn read(
    sheet: &mut Sheet<'_>,
    files: &[SurveyFile<'_>],
    left_out: &[String],
) -> Result<(), Notice> {
    let mut reader = Reader {
        sheet,
        left_out,
        systems: BTreeMap::new(),
        told: Vec::new(),
        roles: HashMap::new(),
    };
    for (index, file) in files.iter().enumerate() {
        reader.file(index, file)?;
    }
    reader.same_names();
    reader.nodes()?;
    reader.links()
}

struct Reader<'s, 'f, 'o> {
    sheet: &'s mut Sheet<'f>,
    left_out: &'o [String],
    /// Systems that have reported their neighbours.
    systems: BTreeMap<String, At>,
    told: Vec<Told>,
    /// Whether systems forward, as their neighbours report.
    roles: HashMap<String, bool>,
}

impl Reader<'_, '_, '_> {
    fn file(&mut self, index: usize, file: &SurveyFile<'_>) -> Result<(), Notice> {
        let root = Value::parse(file.text)
            .map_err(|error| self.sheet.error((index, error.line), error.text))?;
        if let Some(lldp) = root.get("lldp") {
            let name = file.name.rsplit('/').next().unwrap_or_default();
            let system = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
            return self.system((index, 0), system, lldp);
        }
        let mut is_empty = true;
        for Entry { key, line, value } in root.entries() {
            if let Some(lldp) = value.get("lldp") {
                self.system((index, *line), key, lldp)?;
                is_empty = false;
            }
        }
        if is_empty {
            let text =
                "has no \"lldp\"; write it with `lldpcli show neighbors -f json > HOSTNAME.json`";
            return Err(self.sheet.error((index, 0), text));
        }
        Ok(())
    }

    /// What one system reports.
    fn system(&mut self, at: At, system: &str, lldp: &Value) -> Result<(), Notice> {
        if let Some(first) = self.systems.insert(system.to_owned(), at) {
            let first = self.sheet.place(first, at);
            let text = format!("{system} is there twice, first in {first}; keep one");
            return Err(self.sheet.error(at, text));
        }
        let interfaces = lldp.each().iter().flat_map(Value::entries);
        for entry in interfaces {
            if entry.key != "interface" {
                let kind = format!("unknown field {:?} of \"lldp\"", entry.key);
                self.sheet.unknown((at.0, entry.line), kind);
                continue;
            }
            for value in entry.value.each() {
                // json0 has the name as a field; json has it as the key, one or several to an object.
                if let Some(name) = value.get("name").and_then(Value::text) {
                    self.interface((at.0, value.line), system, name, value)?;
                    continue;
                }
                for Entry { key, line, value } in value.entries() {
                    self.interface((at.0, *line), system, key, value)?;
                }
            }
        }
        Ok(())
    }

    fn interface(&mut self, at: At, system: &str, port: &str, value: &Value) -> Result<(), Notice> {
        let port = plain(port);
        self.look(at.0, value, INTERFACE, "an interface");
        if let Some(via) = value
            .get("via")
            .and_then(Value::text)
            .filter(|via| *via != "LLDP")
        {
            self.sheet.unknown(at, format!("neighbour found by {via}"));
            return Ok(());
        }
        let Some((name, chassis)) = value.get("chassis").and_then(chassis) else {
            let text = format!("{system}:{port} has a neighbour without chassis and is left out");
            self.sheet.notice(at, text);
            return Ok(());
        };
        self.look(at.0, chassis, CHASSIS, "a chassis");
        let far = value.get("port").and_then(|it| it.each().first());
        if let Some(far) = far {
            self.look(at.0, far, PORT, "a port");
        }
        if self.is_left_out(system, &port) || self.left_out.iter().any(|it| matches(it, name)) {
            return Ok(());
        }
        if let Some(forwards) = forwards(chassis) {
            *self.roles.entry(name.to_owned()).or_default() |= forwards;
        }
        self.told.push(Told {
            system: system.to_owned(),
            port,
            neighbour: name.to_owned(),
            far_ports: far.map_or(Vec::new(), ports),
            rate: far.and_then(rate),
            at,
            is_used: false,
        });
        Ok(())
    }

    fn is_left_out(&self, system: &str, port: &str) -> bool {
        let both = format!("{system}:{port}");
        let mut patterns = self.left_out.iter();
        patterns.any(|it| matches(it, system) || matches(it, &both))
    }

    /// Counts the keys of a map that are not known.
    fn look(&mut self, file: usize, map: &Value, known: &[&str], of: &str) {
        for entry in map.entries() {
            if !known.contains(&entry.key.as_str()) {
                let kind = format!("unknown field {:?} of {of}", entry.key);
                self.sheet.unknown((file, entry.line), kind);
            }
        }
    }

    /// Has neighbours called as their files are: a file may lack the domain that the system has in its name.
    fn same_names(&mut self) {
        let known = |name: &str| match self.systems.contains_key(name) {
            true => None,
            false => {
                let short = short(name);
                self.systems.contains_key(short).then(|| short.to_owned())
            }
        };
        for told in &mut self.told {
            if let Some(name) = known(&told.neighbour) {
                told.neighbour = name;
            }
        }
        let roles = std::mem::take(&mut self.roles);
        for (name, forwards) in roles {
            let name = known(&name).unwrap_or(name);
            *self.roles.entry(name).or_default() |= forwards;
        }
    }

    fn nodes(&mut self) -> Result<(), Notice> {
        let mut seen = HashSet::new();
        let systems = self.systems.iter();
        let mut nodes: Vec<(String, At)> = systems.map(|(name, at)| (name.clone(), *at)).collect();
        nodes.extend(self.told.iter().map(|it| (it.neighbour.clone(), it.at)));
        for (name, at) in nodes {
            if !seen.insert(name.clone()) || self.left_out.iter().any(|it| matches(it, &name)) {
                continue;
            }
            let ends = self.roles.get(&name) == Some(&false);
            self.sheet.add(Node {
                names: vec![short(&name).to_owned(), name.clone()],
                role: ends.then_some(Role::Host),
                card: None,
                key: name,
                at,
            })?;
        }
        Ok(())
    }

    fn links(&mut self) -> Result<(), Notice> {
        let mut by_port: HashMap<(String, String), usize> = HashMap::new();
        for (at, told) in self.told.iter().enumerate() {
            let port = (told.system.clone(), told.port.clone());
            if let Some(first) = by_port.insert(port, at) {
                let first = &self.told[first];
                let text = format!(
                    "{}:{} has two neighbours, {} and {}; add the one that is not on the link to leave_out",
                    told.system, told.port, first.neighbour, told.neighbour
                );
                return Err(self.sheet.error(told.at, text));
            }
        }
        let mut between: HashMap<(String, String), Vec<usize>> = HashMap::new();
        for (at, told) in self.told.iter().enumerate() {
            let ends = (told.system.clone(), told.neighbour.clone());
            between.entry(ends).or_default().push(at);
        }
        for at in 0..self.told.len() {
            if self.told[at].is_used {
                continue;
            }
            let far = match self.systems.contains_key(&self.told[at].neighbour) {
                true => Some(self.far_end(at, &by_port, &between)?),
                false => None,
            };
            self.told[at].is_used = true;
            let mut told = [true, false];
            let one = &self.told[at];
            let mut rate = one.rate;
            let far_port = match far {
                Some(far) => {
                    told[1] = true;
                    self.told[far].is_used = true;
                    rate = rate.or(self.told[far].rate);
                    self.told[far].port.clone()
                }
                None => self.told[at].far_ports.first().cloned().unwrap_or_default(),
            };
            let one = &self.told[at];
            let end =
                |name: &str, port: String| self.sheet.find(name).map(|node| End { node, port });
            let ends = end(&one.system, one.port.clone()).zip(end(&one.neighbour, far_port));
            let Some((a, b)) = ends else {
                continue;
            };
            let at = one.at;
            self.sheet.tell(Link {
                ends: [a, b],
                told,
                rate,
                delay: None,
                at,
            })?;
        }
        Ok(())
    }

    /// What the other end of a link tells, whose system has a file.
    fn far_end(
        &self,
        at: usize,
        by_port: &HashMap<(String, String), usize>,
        between: &HashMap<(String, String), Vec<usize>>,
    ) -> Result<usize, Notice> {
        let told = &self.told[at];
        let named = |it: &Told| {
            let of = |port: &String| by_port.get(&(it.neighbour.clone(), port.clone()));
            it.far_ports.iter().find_map(of).copied()
        };
        let back = (told.neighbour.clone(), told.system.clone());
        let candidates = between.get(&back).map_or(&[][..], Vec::as_slice);
        let is_back = |far: &&usize| {
            let far = &self.told[**far];
            !far.is_used && far.far_ports.contains(&told.port)
        };
        let far = named(told).or_else(|| candidates.iter().find(is_back).copied());
        let Some(far) = far else {
            let port = told
                .far_ports
                .first()
                .map_or("an unknown port", String::as_str);
            let known = self.told.iter().filter(|it| it.system == told.neighbour);
            let known: Vec<_> = known.map(|it| it.port.as_str()).take(8).collect();
            let text = format!(
                "{}:{} leads to {port} of {}, whose file has no such interface: it has {}; run lldpcli on both again, \
                 or add one of them to leave_out",
                told.system,
                told.port,
                told.neighbour,
                if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                }
            );
            return Err(self.sheet.error(told.at, text));
        };
        let other = &self.told[far];
        // The port of this system that the other one names, if it names one by an interface.
        let returned = named(other);
        if other.neighbour == told.system && !other.is_used && returned.is_none_or(|it| it == at) {
            return Ok(far);
        }
        let known = returned.map(|it| self.told[it].port.as_str());
        let text = format!(
            "{}:{} leads to {}:{}, but that leads to {}:{} on {}; correct one of the files, or run lldpcli on both \
             again",
            told.system,
            told.port,
            other.system,
            other.port,
            other.neighbour,
            known
                .or_else(|| other.far_ports.first().map(String::as_str))
                .unwrap_or("?"),
            self.sheet.place(other.at, told.at)
        );
        Err(self.sheet.error(told.at, text))
    }
}

/// A name without its domain; that of an address is the address.
fn short(name: &str) -> &str {
    match name.split_once('.') {
        Some((first, _)) if first.contains(|c: char| c.is_ascii_alphabetic()) => first,
        _ => name,
    }
}

/// A chassis: its name, or its identifier if it has none, and its fields. In json the name is the key, if there
/// is one.
fn chassis(value: &Value) -> Option<(&str, &Value)> {
    let value = value.each().first()?;
    let (name, fields) = match value.get("id") {
        Some(_) => (value.get("name").and_then(scalar), value),
        None => {
            let entry = value.entries().first()?;
            (Some(entry.key.as_str()), &entry.value)
        }
    };
    let name = name.or_else(|| scalar(fields.get("id")?))?;
    Some((name, fields))
}

/// The text of a scalar, or of the `value` of an object, or of the first of a list of these.
fn scalar(value: &Value) -> Option<&str> {
    let value = value.each().first()?;
    value.text().or_else(|| value.get("value")?.text())
}

/// Whether a system forwards, if its neighbour knows.
fn forwards(chassis: &Value) -> Option<bool> {
    let capabilities = chassis.get("capability")?.each();
    let is_on = |it: &&Value| it.get("enabled").and_then(Value::text) == Some("true");
    let on = capabilities.iter().filter(is_on);
    let kinds: Vec<_> = on.filter_map(|it| it.get("type")?.text()).collect();
    (!kinds.is_empty()).then(|| kinds.iter().any(|kind| FORWARDING.contains(kind)))
}

/// What a port may be called on its system: its identifier, unless that is an address, and its description.
fn ports(port: &Value) -> Vec<String> {
    let id = port.get("id").and_then(|it| it.each().first());
    let is_mac = id.and_then(|it| it.get("type")?.text()) == Some("mac");
    let id = id.and_then(scalar);
    let descr = port.get("descr").and_then(scalar);
    let names = match is_mac {
        true => [descr, id],
        false => [id, descr],
    };
    names.into_iter().flatten().map(plain).collect()
}

/// The rate of a port that has negotiated one: `100GbaseCR4 - ...`, `1000BaseTFD - ...`.
fn rate(port: &Value) -> Option<Rate> {
    let current = scalar(
        port.get("auto-negotiation")?
            .each()
            .first()?
            .get("current")?,
    )?;
    let end = current.find(|c: char| !c.is_ascii_digit())?;
    let number: u32 = current[..end].parse().ok()?;
    let unit = current[end..].to_ascii_lowercase();
    let mbps = match unit {
        _ if unit.starts_with("gbase") || unit.starts_with("gig") => number.checked_mul(1_000)?,
        _ if unit.starts_with("base") => number,
        _ => return None,
    };
    (mbps > 0).then(|| Rate::from_mbps(mbps))
}

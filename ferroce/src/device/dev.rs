//! `ferroce dev`: the devices themselves.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, Subcommand};
use ferroce_device::{Card, Function, Qos, Trust};
use ferroce_os::Interface;
use ferroce_registry::{
    DeviceSpec, Inquiry, LinkSetting, PeerLink, PeerRow, Query, Registry, ResourceRow, SpecError,
};
use ferroce_sysfs::guid;
use toml::{Table, Value};

use super::ask::{Replies, ask_on};
use super::cards;
use super::format::{Format, Row, print};
use crate::json::device as json;
use crate::naming::{self, DeviceArg, EachDevice, at_pci, devices, each, observe, registry};
use crate::output::{Failure, Output};
use crate::registers::is_card_name;

/// How long processes may take to say what carries packets to their peers, all together: one does in
/// a millisecond, unless it is stopped.
const PATIENCE: Duration = Duration::from_millis(500);

/// Show, add, remove and change devices
///
/// A device is an address of this host, on which programs of one user send and receive. fr0 on
/// 127.0.0.1 is there without being added.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES, infer_subcommands = true)]
pub(crate) struct Dev {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show devices, and what carries packets to the peers of programs that use them; what `ferroce
    /// dev` alone does
    #[command(alias = "list")]
    Show(EachDevice),
    /// Add a device
    Add {
        /// Its name: letters, digits, _ and -; some programs expect mlx5_0
        #[arg(value_name = "NAME")]
        name: String,
        /// Its address, one of this host; all of 127.0.0.0/8 are
        #[arg(value_name = "ADDRESS")]
        address: IpAddr,
        /// The card that it is: cx5, cx6dx, cx7, cx8 or bf3, with the newest firmware or the one behind
        /// a colon, as cx7:28.46.1006. `ferroce dev cards` lists what they have [default: cx7]
        #[arg(long, value_name = "CARD")]
        card: Option<Card>,
        /// Virtual functions of the card, which are devices as well: NAMEv0 on the next address,
        /// and so on; 0 to 127
        #[arg(long, value_name = "N")]
        vfs: Option<u8>,
        /// Ports of the card, 1 or 2: the second has the next address, or second_address
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
        ports: Option<u8>,
        /// Two ports that are bonded (LACP): programs see one, with the device's address, and a link may
        /// go down without their noticing
        #[arg(long, conflicts_with = "ports")]
        bond: bool,
        /// What carries packets: auto (shared memory to processes of the same user on this host, else
        /// UDP), udp, or shm (shared memory alone; packets to others are dropped) [default: auto]
        #[arg(long, value_name = "LINK")]
        link: Option<LinkSetting>,
        /// Settings: node_guid, pci, card, vendor_part_id, hw_ver, fw_ver, board_id, packet_lifetime,
        /// ca_ack_delay, speed (25G), window (auto, 256KiB), link (auto, udp, shm), trust (dscp, pcp),
        /// vlan (100, none), seed, vfs, vf_address, second_address, bond, personality.adaptive and others,
        /// nvconfig.RPG_AI_RATE and others
        #[arg(value_name = "KEY VALUE")]
        settings: Vec<String>,
    },
    /// List the cards that --card names: their numbers, and the first firmware with each feature
    Cards,
    /// Remove a device that no program has open, with its virtual functions
    #[command(aliases = ["delete", "remove"])]
    Del {
        /// The device, by its name
        #[arg(value_name = "DEV")]
        name: String,
        /// Even while programs have it open, as if its card were pulled out: they get
        /// IBV_EVENT_DEVICE_FATAL and RDMA_CM_EVENT_DEVICE_REMOVAL, and their calls fail
        #[arg(long)]
        force: bool,
    },
    /// Restart the firmware of a device: its registers, its histogram and the parameters of congestion
    /// control return to power-on values. Queue pairs stay, and adopt the new timeouts. `ferroce adp
    /// reset` keeps all but ROCE_ACCL
    Reset(DeviceArg),
    /// Change settings of a device; programs that have it open see the personality change at once
    /// (personality.adaptive and slow_restart are what a reset does to ROCE_ACCL), nvconfig after
    /// `ferroce dev reset`, as mlxconfig's parameters on a card, the rest when they open the device anew
    #[command(override_usage = "ferroce dev set [OPTIONS] [DEV] KEY VALUE...")]
    Set {
        #[command(flatten)]
        device: DeviceArg,
        /// The settings of `dev add`, and address
        #[arg(value_name = "KEY VALUE")]
        settings: Vec<String>,
    },
}

impl Dev {
    pub(crate) fn run(self, details: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        let (registry, format) = (registry(to)?, self.format.with(details));
        match self.verb {
            None => show(&registry, None, format, to),
            Some(Verb::Show(device)) => show(&registry, device.named()?.as_deref(), format, to),
            Some(Verb::Add {
                name,
                address,
                card,
                vfs,
                ports,
                bond,
                link,
                settings,
            }) => {
                if is_card_name(&name) {
                    return Err(Failure::input(format_args!(
                        "{name} is a name of a card, and commands would look for one; choose \
                         another, for example fr1"
                    )));
                }
                let mut spec = DeviceSpec::new(&name, address).as_card(card.unwrap_or_default());
                spec.vfs = vfs.unwrap_or(0);
                spec.link = link.unwrap_or_default();
                if bond || ports == Some(2) {
                    spec.second_address = spec.next_address();
                    spec.bond = bond;
                }
                let spec = changed(&spec, &settings)?;
                registry.add(&spec)?;
                warn_of_addresses(&registry, &name, to)?;
                warn_of_tags(Qos::default(), &spec, to)?;
                changed_to(&registry, &name, format, to)
            }
            Some(Verb::Cards) => cards::show(format, to),
            Some(Verb::Del { name, force }) => {
                let functions = functions(&registry, &name)?;
                match force {
                    true => registry.remove_by_force(&name)?,
                    false => registry.remove(&name)?,
                }
                match format.json {
                    true => to.document(&json::Removed { removed: functions }),
                    false => Ok(()),
                }
            }
            Some(Verb::Reset(device)) => {
                let name = reset(&registry, device.named()?.as_deref())?;
                changed_to(&registry, &name, format, to)
            }
            Some(Verb::Set { device, settings }) => {
                let (name, settings) = device.before(settings, is_setting);
                let spec = naming::find(&registry, name.as_deref())?;
                if spec.vf.is_some() {
                    registry.card(&spec.name)?; // says that it is a VF
                }
                if settings.is_empty() {
                    return Err(Failure::input(format_args!(
                        "no setting given; write KEY VALUE with a KEY of {CARD}, {}",
                        DeviceSpec::KEYS.join(", ")
                    )));
                }
                let old = spec.qos();
                let spec = changed(&spec, &settings)?;
                registry.replace(&spec)?;
                warn_of_addresses(&registry, &spec.name, to)?;
                warn_of_tags(old, &spec, to)?;
                changed_to(&registry, &spec.name, format, to)
            }
        }
    }
}

/// Warns of addresses that no interface of this host has: programs cannot open devices there.
fn warn_of_addresses(registry: &Registry, name: &str, to: &mut Output<'_>) -> Result<(), Failure> {
    for function in functions(registry, name)? {
        let spec = registry.device(&function)?;
        for address in spec.links().map(|link| link.address) {
            if Interface::name_of(address).is_none() {
                to.remark(format_args!(
                    "warning: no interface of this host has {address}; programs cannot open {function} \
                     until one has: `ip address` lists its addresses"
                ))?;
            }
        }
    }
    Ok(())
}

/// Where a VLAN tag acts.
pub(super) const TAGS_REACH: &str = "in captures and between processes of this host that use shared \
                                     memory: a UDP socket sends no VLAN tag";

/// Warns of priorities that packets cannot carry, if a device has other settings than before.
fn warn_of_tags(old: Qos, spec: &DeviceSpec, to: &mut Output<'_>) -> Result<(), Failure> {
    let qos = spec.qos();
    let name = &spec.name;
    match (qos.trust, qos.vlan) {
        _ if qos == old => Ok(()),
        (Trust::Pcp, None) => to.remark(format_args!(
            "warning: {name} trusts the PCP and has no VLAN, so all its packets have priority 0; \
             `ferroce dev set {name} vlan 100` puts it into one"
        )),
        (Trust::Pcp, Some(_)) => to.remark(format_args!(
            "warning: the tag acts {TAGS_REACH}, so packets from other hosts have priority 0; `ferroce \
             dev set {name} trust dscp` takes the priority from the DSCP, which they have"
        )),
        (Trust::Dscp, Some(_)) => to.remark(format_args!("warning: the tag acts {TAGS_REACH}")),
        (Trust::Dscp, None) => Ok(()),
    }
}

/// Prints for programs what a device is after a change.
fn changed_to(
    registry: &Registry,
    name: &str,
    format: Format,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    match format.json {
        true => show(registry, Some(name), format, to),
        false => Ok(()),
    }
}

/// A card and its virtual functions, by name; the name alone if there is none.
fn functions(registry: &Registry, name: &str) -> Result<Vec<String>, Failure> {
    let all = registry.devices()?.into_iter();
    let of_card = all.filter(|spec| spec.name == name || spec.pf().name == name);
    Ok(of_card.map(|spec| spec.name).collect())
}

/// Resets a device, and says its name.
fn reset(registry: &Registry, name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name.filter(|it| is_card_name(it))
        && at_pci(registry, name)?.is_none()
    {
        return Err(Failure::input(format_args!(
            "no device of Ferroce's is called {name}, which is a card's name; `mstfwreset -d {name} \
             --yes reset` restarts the firmware of a card"
        )));
    }
    let spec = naming::find(registry, name)?;
    let name = spec.name.clone();
    let observer = registry.observe_device(spec)?;
    if let Function::Vf { pf, .. } = observer.state().function() {
        return Err(Failure::input(format_args!(
            "{name} is a VF of {pf}, and the firmware is the whole card's; `ferroce dev reset {pf}` \
             restarts it"
        )));
    }
    observer.state().firmware_reset().map_err(Failure::broken)?;
    Ok(name)
}

fn show(
    registry: &Registry,
    name: Option<&str>,
    format: Format,
    to: &mut Output<'_>,
) -> Result<(), Failure> {
    if registry.devices()?.is_empty() {
        to.remark("no device; add one: ferroce dev add fr0 127.0.0.1")?;
    }
    let peers = peers(registry, name, to)?;
    if format.json {
        let devices = each(registry, name, |index, spec| {
            document(registry, (index, spec), &peers)
        })?;
        return to.document(&json::Devices { devices });
    }
    let rows = each(registry, name, |index, spec| {
        let name = spec.name.as_str();
        let mut row = Row::new(format!("{index}: {name}:"));
        row.put("node_type", "ca");
        row.put("fw", spec.fw_ver.as_str());
        row.put("node_guid", guid(spec.guid()));
        row.put("sys_image_guid", guid(spec.guid()));
        row.put("address", spec.address.to_string());
        if let Some(second) = spec.second_address {
            row.put("second_address", second.to_string());
            row.put(if spec.bond { "bond" } else { "ports" }, 2);
        }
        row.put("port", spec.port);
        row.put("link", spec.link.to_string());
        if let Some(vlan) = spec.vlan {
            row.put("vlan", vlan);
        }
        if spec.vfs > 0 {
            row.put("vfs", spec.vfs);
        }
        if spec.vf.is_some() {
            row.put("parent", spec.pf().name.as_str());
            row.put("vhca_id", spec.vhca_id());
        }
        if format.details {
            row.put("pci", spec.pci_at(index).to_string());
            details(&mut row, registry, spec)?;
        }
        for peer in of_device(&peers, (index, name)) {
            let link = peer.link.map_or("undecided", PeerLink::name);
            let PeerRow {
                peer,
                qps,
                pid,
                comm,
                ..
            } = &peer;
            row.add_below(&format!(
                "    peer {peer} link {link} qps {qps} pid {pid} comm {comm}\n"
            ));
        }
        Ok(row)
    })?;
    print(&rows, to)
}

/// A device for programs.
fn document(
    registry: &Registry,
    (index, spec): (usize, &DeviceSpec),
    peers: &[Replies],
) -> Result<json::Device, Failure> {
    // To look for processes makes a device's file.
    let processes = match registry.is_used(spec).unwrap_or(true) {
        true => processes(registry, spec)?,
        false => 0,
    };
    Ok(json::Device {
        device: spec.name.clone(),
        index,
        address: spec.address,
        second_address: spec.second_address,
        bond: spec.bond,
        port: spec.port,
        link: spec.link.to_string(),
        vfs: spec.vfs,
        vf_address: spec.vf_address,
        parent: spec.vf.is_some().then(|| spec.pf().name.clone()),
        vhca_id: spec.vhca_id(),
        pci: spec.pci_at(index).to_string(),
        node_guid: guid(spec.guid()),
        vendor_id: spec.vendor_id,
        vendor_part_id: spec.vendor_part_id,
        hw_ver: spec.hw_ver,
        fw_ver: spec.fw_ver.clone(),
        card: spec.card().map(|card| card.to_string()),
        board_id: spec.board_id.clone(),
        packet_lifetime: spec.packet_lifetime,
        ca_ack_delay: spec.ca_ack_delay,
        speed: format!("{}G", spec.speed.gbps()),
        window: spec.window.to_string(),
        trust: spec.trust.to_string(),
        vlan: spec.vlan,
        seed: spec.seed,
        personality: parts(spec, "personality")?,
        nvconfig: parts(spec, "nvconfig")?,
        processes,
        peers: of_device(peers, (index, &spec.name)),
    })
}

/// The parts of a group of settings, as the device's file has them.
fn parts(spec: &DeviceSpec, group: &str) -> Result<BTreeMap<String, serde_json::Value>, Failure> {
    let text = spec.to_toml().map_err(Failure::broken)?;
    let mut table: BTreeMap<String, Value> = toml::from_str(&text).map_err(Failure::broken)?;
    let parts = table.remove(group).and_then(|it| match it {
        Value::Table(parts) => Some(parts),
        _ => None,
    });
    let parts = parts.unwrap_or_default().into_iter();
    let value = |value: Value| serde_json::to_value(value).map_err(Failure::broken);
    parts.map(|(key, part)| Ok((key, value(part)?))).collect()
}

/// What carries packets to the peers of the processes that have devices open.
fn peers(
    registry: &Registry,
    name: Option<&str>,
    to: &mut Output<'_>,
) -> Result<Vec<Replies>, Failure> {
    let mut used = devices(registry, name)?;
    // To look for processes makes a device's file.
    used.retain(|(_, spec)| registry.is_used(spec).unwrap_or(true));
    let question = (Some(Query::Peer), PATIENCE);
    let mut inquiry = Inquiry::default();
    let replies = ask_on(registry, &used, question, &mut inquiry, |_, _| true)?;
    for silent in replies.iter().flat_map(|device| &device.silent) {
        to.remark(format_args!("warning: {}", silent.line))?;
    }
    Ok(replies)
}

/// The peers of a device's processes.
fn of_device(replies: &[Replies], name: (usize, &str)) -> Vec<PeerRow> {
    let own = replies.iter().filter(|replies| replies.name() == name);
    let peers = own.flat_map(|replies| &replies.rows);
    peers.filter_map(PeerRow::of).cloned().collect()
}

fn details(row: &mut Row, registry: &Registry, spec: &DeviceSpec) -> Result<(), Failure> {
    row.put("vendor_id", format!("{:#06x}", spec.vendor_id));
    row.put("vendor_part_id", spec.vendor_part_id);
    row.put("hw_ver", spec.hw_ver);
    row.put("board_id", spec.board_id.as_str());
    row.put("packet_lifetime", spec.packet_lifetime);
    row.put("ca_ack_delay", spec.ca_ack_delay);
    row.put("speed", format!("{}G", spec.speed.gbps()));
    row.put("window", spec.window.to_string());
    row.put("trust", spec.trust.to_string());
    row.put("seed", spec.seed);
    row.put("processes", processes(registry, spec)?);
    Ok(())
}

/// How many processes have a device open.
fn processes(registry: &Registry, spec: &DeviceSpec) -> Result<usize, Failure> {
    let processes = observe(registry, spec)?.processes();
    let processes = processes.map_err(|error| {
        Failure::broken(format_args!(
            "cannot see who has {} open: {error}",
            spec.name
        ))
    })?;
    Ok(processes.len())
}

/// The setting that stands for all that makes a card.
const CARD: &str = "card";

/// The device with these settings, each a key and a value, in place of its own. Those of a card come
/// first, wherever the card stands.
fn changed(spec: &DeviceSpec, settings: &[String]) -> Result<DeviceSpec, Failure> {
    let assignments = naming::assignments(settings, |_| false)?;
    let assignments = assignments
        .iter()
        .map(|it| it.split_once('=').unwrap_or_default());
    let (own, others): (Vec<_>, Vec<_>) = assignments.partition(|(key, _)| *key == CARD);
    let mut spec = spec.clone();
    for (_, card) in own {
        spec = spec.as_card(card.parse().map_err(Failure::input)?);
    }
    let text = spec.to_toml().map_err(Failure::input)?;
    let mut table: Table = text.parse().map_err(Failure::broken)?;
    for (key, value) in others {
        if key == "name" {
            return Err(Failure::input(
                "a device keeps its name; remove it with `ferroce dev del` and add another",
            ));
        }
        put(&mut table, key, value)?;
    }
    DeviceSpec::from_toml(&spec.name, &table.to_string()).map_err(|error| match error {
        SpecError::Toml { what, .. } => Failure::input(what),
        error => Failure::input(error),
    })
}

/// Whether a word is the key of a setting.
fn is_setting(word: &str) -> bool {
    let key = word
        .split_once('=')
        .map_or(word, |(key, _)| key)
        .replace('-', "_");
    let group = key.split_once('.').map_or(key.as_str(), |(group, _)| group);
    DeviceSpec::KEYS.contains(&group) || [CARD, "name"].contains(&group)
}

fn put(table: &mut Table, key: &str, value: &str) -> Result<(), Failure> {
    // `rdma` writes its keys with hyphens.
    let key = key.replace('-', "_");
    let (table, key) = match key.split_once('.') {
        None => (table, key.as_str()),
        Some((group, key)) => {
            if !DeviceSpec::GROUPS.contains(&group) {
                return Err(Failure::input(format_args!(
                    "only {} have parts; write {key} alone",
                    DeviceSpec::GROUPS.join(" and ")
                )));
            }
            let group = table.entry(group).or_insert_with(|| Table::new().into());
            let group = group.as_table_mut().ok_or_else(|| {
                Failure::broken("a group of settings is a table in a device's file")
            })?;
            (group, key)
        }
    };
    if (key, value) == ("vlan", "none") {
        table.remove(key);
        return Ok(());
    }
    // A value keeps the kind that it has; what is not there yet gets the kind it looks like.
    let is_text = matches!(table.get(key), Some(Value::String(_)));
    let number = match value.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => value.parse().ok(),
    };
    let value = match (number, value) {
        _ if is_text => Value::String(value.to_owned()),
        (Some(number), _) => Value::Integer(number),
        (None, "true" | "on") => Value::Boolean(true),
        (None, "false" | "off") => Value::Boolean(false),
        _ => Value::String(value.to_owned()),
    };
    table.insert(key.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn set(settings: &[&str]) -> Result<DeviceSpec, String> {
        let settings: Vec<_> = settings.iter().map(|text| (*text).to_owned()).collect();
        changed(&DeviceSpec::default_device(), &settings).map_err(|failure| failure.to_string())
    }

    #[test]
    fn json_has_the_keys_of_settings() {
        let private = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(private).tempdir();
        let directory = directory.unwrap();
        let registry = Registry::at(directory.path()).unwrap();
        let spec = DeviceSpec::default_device();
        let document = document(&registry, (0, &spec), &[]).unwrap();
        let json = serde_json::to_value(document).unwrap();
        for key in DeviceSpec::KEYS {
            assert!(json.get(key).is_some(), "{key}: {json}");
        }
        assert_eq!(json["personality"]["adaptive"], true);
        // The keys are those that a file may have.
        let error = set(&["colour", "red"]).unwrap_err();
        let expected = format!("expected one of {}\n", DeviceSpec::KEYS.join(", "));
        assert!(error.ends_with(&expected), "{error}");
    }
}

//! The files of congestion control: MLNX_OFED's beside a network interface, and Linux's in debugfs.
//!
//! They appear once for each device, below its PCI function; `/sys/class/net/IF/ecn` leads to those
//! of the first device with that interface. A file's path in the tree identifies the device and the
//! parameter.

use std::fs;
use std::path::Path;

use ferroce_dcqcn::{Param, ParamError, Params, Target, Unit, Vocabulary};
use ferroce_device::WriteLockError;
use ferroce_registry::{Registry, RegistryError};
use thiserror::Error;

use crate::card::Card;
use crate::tree::{Node, PCI_ROOT};

/// Where Linux shows the parameters of mlx5 cards.
const DEBUGFS: &str = "kernel/debug/mlx5";

/// Why a parameter was not set.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetError {
    /// No parameter has this file.
    #[error("{0} is not the file of a parameter")]
    NoFile(String),
    /// The device is not there any more.
    #[error(transparent)]
    Device(#[from] RegistryError),
    /// The text is no value of the parameter.
    #[error(transparent)]
    Value(#[from] ParamError),
    /// The settings are locked.
    #[error(transparent)]
    Lock(#[from] WriteLockError),
}

/// The files below `/sys` with a device's parameters.
pub(crate) fn files(card: &Card) -> Vec<(String, Node)> {
    let mut files = Vec::new();
    for &param in Param::ALL {
        let value = card.congestion.get(param);
        if let Some(path) = param.ecn_path() {
            let path = format!("devices/{PCI_ROOT}/{}/ecn/{path}", card.pci);
            if param.unit() == Unit::PriorityMask {
                files.extend((0..8).map(|priority| {
                    let bit = (value >> priority & 1).to_string();
                    (format!("{path}/{priority}"), Node::file(&bit))
                }));
            } else {
                files.push((path, Node::file(&value.to_string())));
            }
        }
        if let Some(name) = param.name_in(Vocabulary::Debugfs) {
            let path = format!("{DEBUGFS}/{}/cc_params/{name}", card.pci);
            files.push((path, Node::file(&value.to_string())));
        }
    }
    files
}

/// The links from network interfaces to these files.
pub(crate) fn links<'a>(cards: impl Iterator<Item = &'a Card>) -> Vec<(String, Node)> {
    let mut links: Vec<(String, Node)> = Vec::new();
    let of_card = |card: &'a Card| card.netdevs().map(move |netdev| (card, netdev));
    for (card, netdev) in cards.flat_map(of_card) {
        let path = format!("class/net/{netdev}/ecn");
        if links.iter().all(|(known, _)| *known != path) {
            let target = format!("../../../devices/{PCI_ROOT}/{}/ecn", card.pci);
            links.push((path, Node::Link(target)));
        }
    }
    links
}

/// Whether a file of this name may be one of a parameter; cheap, for callers that look at every file
/// that is opened.
#[must_use]
pub fn may_be_parameter(name: &str) -> bool {
    let is_priority = matches!(name.as_bytes(), [b'0'..=b'7']);
    let is_named = |param: &Param| {
        [Vocabulary::Sysfs, Vocabulary::Debugfs]
            .iter()
            .any(|vocabulary| param.name_in(*vocabulary) == Some(name))
    };
    is_priority || Param::ALL.iter().any(is_named)
}

/// Whether `path`, from the root of a tree and without links, is the file of a parameter.
#[must_use]
pub fn is_parameter(path: &str) -> bool {
    parse(path).is_some()
}

/// Writes `text` to the file of a parameter at `path` in the tree at `root`: the device takes the
/// value at once, in all programs, or refuses it.
///
/// # Errors
///
/// Returns [`SetError`]; nothing is changed in that case.
pub fn set_parameter(
    registry: &Registry,
    root: &Path,
    path: &str,
    text: &str,
) -> Result<(), SetError> {
    let none = || SetError::NoFile(path.to_owned());
    let (pci, target) = parse(path).ok_or_else(none)?;
    let device = device_at(root, pci).ok_or_else(none)?;
    let observer = registry.observe(&device)?;
    let write = |params: &mut Params| Ok(params.write(target, text.trim())?);
    observer.state().change_congestion(write)
}

/// The PCI address and the parameter of a file.
fn parse(path: &str) -> Option<(&str, Target)> {
    let path = path.strip_prefix("sys/")?;
    let below = |root: &str| path.strip_prefix(root)?.strip_prefix('/')?.split_once('/');
    let ecn = below("devices").and_then(|(root, rest)| {
        let (pci, file) = rest.split_once('/')?;
        Some((pci, file.strip_prefix("ecn/").filter(|_| root == PCI_ROOT)?))
    });
    let in_debugfs = || {
        let (pci, file) = below(DEBUGFS)?;
        Some((pci, file.strip_prefix("cc_params/")?))
    };
    let (pci, file) = ecn.or_else(in_debugfs)?;
    Some((pci, Target::parse(file).ok()?))
}

/// The name of the device at a PCI address.
fn device_at(root: &Path, pci: &str) -> Option<String> {
    let devices = root.join(format!("sys/devices/{PCI_ROOT}/{pci}/infiniband"));
    let entry = fs::read_dir(devices).ok()?.next()?.ok()?;
    entry.file_name().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::example;

    #[test]
    fn every_file_is_one_of_a_parameter_and_shows_its_value() {
        let mut card = example("fr0", 0);
        card.congestion = Params::default()
            .with(Param::AiRate, 20)
            .with(Param::NpPrioMask, 0b1000);
        let files = files(&card);
        // 19 parameters and 16 switches of MLNX_OFED, 20 files of debugfs.
        assert_eq!(files.len(), 19 + 16 + 20);
        for (path, node) in &files {
            let path = format!("sys/{path}");
            let (pci, target) = parse(&path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(pci, card.pci.to_string());
            let value = card.congestion.read(target).to_string();
            assert_eq!(*node, Node::file(&value), "{path}");
            assert!(is_parameter(&path) && may_be_parameter(path.rsplit('/').next().unwrap()));
        }
    }

    #[test]
    fn other_files_are_none() {
        for other in [
            "",
            "sys",
            "sys/devices/pci10fe:00/10fe:00:00.0/vendor",
            "sys/devices/pci10fe:00/10fe:00:00.0/ecn/roce_np/enable/8",
            "sys/devices/pci0000:00/10fe:00:00.0/ecn/roce_rp/rpg_gd",
            "sys/kernel/debug/mlx5/10fe:00:00.0/rp_gd",
            "devices/pci10fe:00/10fe:00:00.0/ecn/roce_rp/rpg_gd",
        ] {
            assert!(!is_parameter(other), "{other}");
        }
        assert!(!may_be_parameter("8") && !may_be_parameter("vendor"));
    }

    #[test]
    fn an_interface_leads_to_its_first_device() {
        let mut cards = [example("fr0", 0), example("fr1", 1), example("fr2", 2)];
        "eth0".clone_into(&mut cards[2].ports[0].netdev);
        let links = links(cards.iter());
        let to = |place: usize| {
            let pci = cards[place].pci;
            Node::Link(format!("../../../devices/{PCI_ROOT}/{pci}/ecn"))
        };
        assert_eq!(
            links,
            [
                ("class/net/lo/ecn".to_owned(), to(0)),
                ("class/net/eth0/ecn".to_owned(), to(2))
            ]
        );
    }
}

//! Finds the node that belongs to a name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ferroce_prm::PciAddress;
use thiserror::Error;

/// NVIDIA's networking cards.
pub(super) const VENDOR: u32 = 0x15b3;

/// The directories where the system shows its devices.
#[derive(Clone, Debug)]
pub struct Places {
    pub(super) sys: PathBuf,
    pub(super) dev: PathBuf,
}

/// The reason why a name has no node.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FindError {
    /// The kernel shows no nodes.
    #[error(
        "this system has no fwctl nodes; load the driver with `modprobe mlx5_fwctl` (Linux 6.15 or \
         newer), or install NVIDIA's fwctl-dkms"
    )]
    NoDriver,
    /// There are nodes, but not this one.
    #[error("no card {name:?}; available: {known}")]
    NoSuchCard {
        /// The name given.
        name: String,
        /// The existing nodes, with their PCI addresses.
        known: String,
    },
    /// The kernel shows the node, but this system has no such file.
    #[error(
        "the card is there, but {path} is not; in a container, pass it in with `--device={path}`", path = .0.display()
    )]
    NoNode(PathBuf),
    /// The name is not a card's.
    #[error(
        "{name:?} is not the name of a card; write fwctl0, a PCI address such as 0000:1a:00.0, or \
         /dev/mst/mt4129_pciconf0"
    )]
    BadName {
        /// The name given.
        name: String,
    },
}

impl Default for Places {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
        }
    }
}

/// Returns whether a name is that of a card rather than of a software device.
#[must_use]
pub fn is_card_name(name: &str) -> bool {
    Name::parse(name).is_some()
}

impl Places {
    /// Returns the path of the node for a name, in the forms that [`super::Card::open`] accepts.
    /// Whether a node given by its own name exists is only known when it is opened.
    ///
    /// # Errors
    ///
    /// See [`FindError`].
    pub fn node(&self, name: &str) -> Result<PathBuf, FindError> {
        let bad = || FindError::BadName { name: name.into() };
        let function = match Name::parse(name).ok_or_else(bad)? {
            Name::Node(node) => return Ok(self.dev.join("fwctl").join(node)),
            Name::Pci(function) => Some(function),
            Name::Mst(mst) => self.function_of(mst),
        };
        let nodes = self.nodes();
        let found = nodes
            .iter()
            .find(|(_, of)| function.is_some() && **of == function);
        match found {
            Some((node, _)) => Ok(self.dev.join("fwctl").join(node)),
            None => Err(no_such(name, &nodes)),
        }
    }

    /// Why there is no node at a path.
    pub(super) fn missing_node(&self, path: &Path) -> FindError {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let nodes = self.nodes();
        if nodes.contains_key(&*name) {
            return FindError::NoNode(path.to_owned());
        }
        no_such(&name, &nodes)
    }

    /// The nodes and their PCI functions.
    pub(super) fn nodes(&self) -> BTreeMap<String, Option<PciAddress>> {
        let class = self.sys.join("class/fwctl");
        let entries = fs::read_dir(&class).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let device = fs::canonicalize(entry.path().join("device")).ok();
                let function = device.as_deref().and_then(Path::file_name);
                let function = function.and_then(|name| name.to_str()?.parse().ok());
                Some((entry.file_name().into_string().ok()?, function))
            })
            .collect()
    }

    /// MFT numbers the cards of one PCI device id by their addresses, and their functions behind a
    /// dot.
    fn function_of(&self, mst: Mst) -> Option<PciAddress> {
        let devices = self.sys.join("bus/pci/devices");
        let is_wanted = |path: &Path| {
            hex(&path.join("vendor")) == Some(VENDOR)
                && hex(&path.join("device")) == Some(mst.device_id)
        };
        let entries = fs::read_dir(devices).ok()?.flatten();
        let mut functions: Vec<PciAddress> = entries
            .filter(|entry| is_wanted(&entry.path()))
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        functions.sort_unstable();
        let mut cards: Vec<PciAddress> = functions.clone();
        cards.dedup_by_key(|function| function.sibling(0));
        let wanted = cards.get(mst.index)?.sibling(mst.function)?;
        functions.contains(&wanted).then_some(wanted)
    }
}

/// The number in a file of `/sys`.
pub(super) fn hex(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

fn no_such(name: &str, nodes: &BTreeMap<String, Option<PciAddress>>) -> FindError {
    if nodes.is_empty() {
        return FindError::NoDriver;
    }
    let known: Vec<String> = nodes
        .iter()
        .map(|(node, function)| match function {
            Some(function) => format!("{node} at {function}"),
            None => node.clone(),
        })
        .collect();
    FindError::NoSuchCard {
        name: name.to_owned(),
        known: known.join(", "),
    }
}

/// A name of a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name<'a> {
    /// A node, without the directory it is in.
    Node(&'a str),
    Pci(PciAddress),
    Mst(Mst),
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let node = name.strip_prefix("/dev/fwctl/").unwrap_or(name);
        let is_node = |number: &str| number.parse::<u16>().is_ok();
        if node.strip_prefix("fwctl").is_some_and(is_node) {
            return Some(Self::Node(node));
        }
        let mst = name.strip_prefix("/dev/mst/").unwrap_or(name);
        let pci = || name.parse().ok().map(Self::Pci);
        Mst::parse(mst).map(Self::Mst).or_else(pci)
    }
}

/// A name that MFT gives: `mt4129_pciconf0.1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mst {
    device_id: u32,
    index: usize,
    function: u8,
}

impl Mst {
    fn parse(name: &str) -> Option<Self> {
        let (device_id, rest) = name.strip_prefix("mt")?.split_once("_pciconf")?;
        let (index, function) = rest.split_once('.').unwrap_or((rest, "0"));
        Some(Self {
            device_id: device_id.parse().ok()?,
            index: index.parse().ok()?,
            function: function.parse().ok()?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A system with two ConnectX-7 of two functions each, and a ConnectX-6 between them.
    pub(crate) fn system() -> (tempfile::TempDir, Places) {
        let root = tempfile::tempdir().unwrap();
        let places = Places {
            sys: root.path().join("sys"),
            dev: root.path().join("dev"),
        };
        let cards = [
            ("0000:1a:00.0", "0x1021"),
            ("0000:1a:00.1", "0x1021"),
            ("0000:3b:00.0", "0x101b"),
            ("0001:03:00.0", "0x1021"),
            ("0001:03:00.1", "0x1021"),
        ];
        fs::create_dir_all(places.sys.join("bus/pci/devices")).unwrap();
        for (number, (address, device_id)) in cards.into_iter().enumerate() {
            let device = places.sys.join("devices/pci0000:00").join(address);
            let node = device.join(format!("fwctl/fwctl{number}"));
            fs::create_dir_all(&node).unwrap();
            fs::create_dir_all(places.sys.join("class/fwctl")).unwrap();
            fs::write(device.join("vendor"), "0x15b3\n").unwrap();
            fs::write(device.join("device"), format!("{device_id}\n")).unwrap();
            symlink(&device, places.sys.join("bus/pci/devices").join(address)).unwrap();
            symlink(format!("../../../{address}"), node.join("device")).unwrap();
            symlink(&node, places.sys.join(format!("class/fwctl/fwctl{number}"))).unwrap();
        }
        (root, places)
    }

    #[test]
    fn names_lead_to_nodes() {
        let (_root, places) = system();
        for (name, node) in [
            ("fwctl1", "fwctl1"),
            ("/dev/fwctl/fwctl17", "fwctl17"),
            ("0000:1a:00.1", "fwctl1"),
            ("1A:00.0", "fwctl0"),
            ("3b:00.0", "fwctl2"),
            ("0001:03:00.0", "fwctl3"),
            ("/dev/mst/mt4129_pciconf0", "fwctl0"),
            ("mt4129_pciconf0.1", "fwctl1"),
            ("/dev/mst/mt4129_pciconf1.1", "fwctl4"),
            ("/dev/mst/mt4123_pciconf0", "fwctl2"),
        ] {
            let expected = places.dev.join("fwctl").join(node);
            assert_eq!(places.node(name), Ok(expected), "{name}");
            assert!(is_card_name(name));
        }
    }

    #[test]
    fn names_without_a_card_are_told_what_there_is() {
        let (_root, places) = system();
        let missing = [
            "04:00.0",
            "/dev/mst/mt4129_pciconf2",
            "mt4129_pciconf0.2",
            "mt1_pciconf0",
        ];
        for name in missing {
            let error = places.node(name).unwrap_err().to_string();
            assert!(
                error.contains("fwctl0 at 0000:1a:00.0, fwctl1 at"),
                "{error}"
            );
        }
        let error = places
            .missing_node(Path::new("/dev/fwctl/fwctl9"))
            .to_string();
        assert!(
            error.starts_with("no card \"fwctl9\"; available: fwctl0"),
            "{error}"
        );
        let hidden = Path::new("/dev/fwctl/fwctl1");
        let error = places.missing_node(hidden).to_string();
        assert!(error.ends_with("`--device=/dev/fwctl/fwctl1`"), "{error}");
        let nothing = tempfile::tempdir().unwrap();
        let none = Places {
            sys: nothing.path().into(),
            dev: nothing.path().into(),
        };
        assert_eq!(none.node("04:00.0"), Err(FindError::NoDriver));
        assert_eq!(none.node("mt4129_pciconf0"), Err(FindError::NoDriver));
    }

    #[test]
    fn names_of_devices_in_software_are_none_of_cards() {
        for name in [
            "",
            "fr0",
            "mlx5_0",
            "fwctl",
            "fwctlx",
            "../fwctl0",
            "fwctl0/..",
            "1a:00",
            "mt4129",
            "mt4129_pciconf",
            "/dev/mst/",
            "1a:00.x",
            "::.",
            "mt_pciconf0",
        ] {
            assert!(!is_card_name(name), "{name}");
            let places = Places::default();
            assert!(
                matches!(places.node(name), Err(FindError::BadName { .. })),
                "{name}"
            );
        }
    }
}

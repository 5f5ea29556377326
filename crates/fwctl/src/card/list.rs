//! Lists the cards of this system.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ferroce_prm::PciAddress;

use super::find::{Places, VENDOR, hex};

/// The system's information about a card before it is opened: a PCI function, physical or virtual,
/// that has a node or is driven by mlx5.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its PCI address, by which [`super::Card::open`] opens it.
    pub pci: PciAddress,
    /// Its node; `None` if the kernel shows none.
    pub node: Option<PathBuf>,
    /// Its name as a verbs device; `None` if it is not one.
    pub ibdev: Option<String>,
    /// Its network interface; `None` if there is none.
    pub interface: Option<String>,
    /// Whether it is a virtual function.
    pub is_virtual: bool,
}

impl Places {
    /// Returns the cards, in the order of their PCI addresses. Functions below PCI functions have
    /// no PCI address and are not included.
    #[must_use]
    pub fn cards(&self) -> Vec<Found> {
        let mut cards = BTreeMap::new();
        let driver = self.sys.join("bus/pci/drivers/mlx5_core");
        for name in names_in(&driver) {
            if let Ok(function) = name.parse() {
                cards.insert(function, found(function, &driver.join(&name)));
            }
        }
        for (name, function) in self.nodes() {
            let Some(function) = function else { continue };
            let at = self.sys.join("class/fwctl").join(&name).join("device");
            // Other vendors' devices have such nodes, too.
            if hex(&at.join("vendor")) == Some(VENDOR) {
                let card = cards.entry(function);
                let card = card.or_insert_with(|| found(function, &at));
                card.node = Some(self.dev.join("fwctl").join(name));
            }
        }
        cards.into_values().collect()
    }
}

/// The card whose directory is `at`.
fn found(function: PciAddress, at: &Path) -> Found {
    let first_of = |directory| names_in(&at.join(directory)).min();
    Found {
        pci: function,
        node: None,
        ibdev: first_of("infiniband"),
        interface: first_of("net"),
        is_virtual: at.join("physfn").exists(),
    }
}

/// The names in a directory; none if there is no such directory.
fn names_in(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::find::tests::system;
    use super::*;

    #[test]
    fn cards_are_listed_with_what_the_system_says_about_them() {
        let (_root, places) = system();
        let devices = places.sys.join("devices/pci0000:00");
        let driver = places.sys.join("bus/pci/drivers/mlx5_core");
        fs::create_dir_all(&driver).unwrap();
        // One that has a node, a virtual one that has none, and what else is there.
        for name in ["0000:1a:00.1", "0000:1a:08.2", "module"] {
            fs::create_dir_all(devices.join(name).join("physfn")).unwrap();
            symlink(devices.join(name), driver.join(name)).unwrap();
        }
        let first = devices.join("0000:1a:00.0");
        fs::create_dir_all(first.join("infiniband/mlx5_0")).unwrap();
        fs::create_dir_all(first.join("net/ens1f0np0")).unwrap();
        fs::write(devices.join("0000:3b:00.0/vendor"), "0x8086\n").unwrap();

        let cards = places.cards();
        let node = |name: &str| Some(places.dev.join("fwctl").join(name));
        let all: Vec<_> = cards
            .iter()
            .map(|card| (card.pci, card.node.clone(), card.is_virtual))
            .collect();
        let pci = |text: &str| text.parse::<PciAddress>().unwrap();
        let expected = [
            (pci("0000:1a:00.0"), node("fwctl0"), false),
            (pci("0000:1a:00.1"), node("fwctl1"), true),
            (pci("0000:1a:08.2"), None, true),
            (pci("0001:03:00.0"), node("fwctl3"), false),
            (pci("0001:03:00.1"), node("fwctl4"), false),
        ];
        assert_eq!(all, expected);
        assert_eq!(cards[0].ibdev.as_deref(), Some("mlx5_0"));
        assert_eq!(cards[0].interface.as_deref(), Some("ens1f0np0"));
        assert_eq!((&cards[1].ibdev, &cards[1].interface), (&None, &None));
    }

    #[test]
    fn a_system_without_cards_has_none() {
        let nothing = tempfile::tempdir().unwrap();
        let places = Places {
            sys: nothing.path().into(),
            dev: nothing.path().into(),
        };
        assert_eq!(places.cards(), []);
    }
}

//! The available devices: software devices and cards.

use std::fs;
use std::path::{Path, PathBuf};

use ferroce_fwctl::card::{Found, Places};
use ferroce_registry::{DeviceSpec, PciAddress, Registry};
use ferroce_sysfs::{fwctl_node_device, netdev_of};

use crate::error::{Code, Refusal};
use crate::registers::refused;

/// What programs see of a device before they open it.
#[derive(Clone, Debug)]
pub struct Info {
    pci: PciAddress,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// One of Ferroce's, and its node if it is shown as a card.
    Software {
        spec: Box<DeviceSpec>,
        node: Option<PathBuf>,
    },
    Card(Found),
}

/// The user's devices in the order of `ferroce dev`, then the cards of this system in that of their
/// PCI addresses. `FERROCE_DEVICES` names all that there are to be, so it leaves no cards.
///
/// A device that `ferroce run --fwctl` shows as a card is there once, and its registers are reached
/// as those of a card.
///
/// # Errors
///
/// The registry cannot be read: [`Code::OperatingSystem`] or [`Code::Driver`].
pub fn list() -> Result<Vec<Info>, Refusal> {
    let registry = Registry::open().map_err(refused)?;
    let mut devices = list_of(&registry)?;
    for card in Places::default().cards() {
        match card.node.as_deref().and_then(shown_device) {
            Some(name) => devices
                .iter_mut()
                .for_each(|device| device.show_as(&name, &card)),
            None if registry.is_narrowed() => {}
            None => devices.extend(Info::of_card(card)),
        }
    }
    Ok(devices)
}

/// The devices of a registry.
///
/// # Errors
///
/// See [`list`].
pub fn list_of(registry: &Registry) -> Result<Vec<Info>, Refusal> {
    let devices = registry.devices().map_err(refused)?.into_iter();
    let info = |(place, spec): (usize, DeviceSpec)| Info {
        pci: spec.pci_at(place),
        kind: Kind::Software {
            spec: Box::new(spec),
            node: None,
        },
    };
    Ok(devices.enumerate().map(info).collect())
}

/// The name of the device in software that a node shows as a card.
fn shown_device(node: &Path) -> Option<String> {
    // A card's is a character device.
    if !fs::metadata(node).ok()?.is_file() {
        return None;
    }
    fwctl_node_device(&fs::read(node).ok()?).map(str::to_owned)
}

impl Info {
    /// `None` for an address that this interface cannot tell: domains have 16 bits in it.
    fn of_card(card: Found) -> Option<Self> {
        let pci = card.pci;
        let kind = Kind::Card(card);
        (pci.domain() <= 0xffff).then_some(Self { pci, kind })
    }

    /// If this is the device of that name, it is reached as this card.
    fn show_as(&mut self, name: &str, card: &Found) {
        match &mut self.kind {
            Kind::Software { spec, node } if spec.name == name => node.clone_from(&card.node),
            _ => {}
        }
    }

    /// Its name as a device of verbs.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`]: it is none.
    pub fn ibdev(&self) -> Result<&str, Refusal> {
        match &self.kind {
            Kind::Software { spec, .. } => Ok(&spec.name),
            Kind::Card(card) => {
                let what =
                    "the card is not a verbs device; load the driver with `modprobe mlx5_ib`";
                let name = card.ibdev.as_deref();
                name.ok_or_else(|| Refusal::new(Code::NotFound, what))
            }
        }
    }

    /// Its network interface.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`]: it has none, or another network namespace has it.
    pub fn interface(&self) -> Result<String, Refusal> {
        let (name, what) = match &self.kind {
            Kind::Software { spec, .. } => {
                let name = netdev_of(spec.address);
                (name, "the device's address is on no interface")
            }
            Kind::Card(card) => {
                let name = card.interface.clone().unwrap_or_default();
                (name, "the card has no interface in this network namespace")
            }
        };
        match name.is_empty() {
            true => Err(Refusal::new(Code::NotFound, what)),
            false => Ok(name),
        }
    }

    /// Its PCI address.
    #[must_use]
    pub fn pci(&self) -> PciAddress {
        self.pci
    }

    /// Whether this is its PCI address, with or without the domain.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`]: the text is not a PCI address.
    pub fn has_pci(&self, text: &str) -> Result<bool, Refusal> {
        let address: PciAddress = text
            .parse()
            .map_err(|error| Refusal::new(Code::InvalidValue, format_args!("{text:?}: {error}")))?;
        Ok(address == self.pci)
    }

    /// Its number among the functions of its card, from 0, the PF.
    ///
    /// # Errors
    ///
    /// [`Code::NotSupported`]: a card does not tell it by its registers.
    pub fn vhca_id(&self) -> Result<u16, Refusal> {
        match &self.kind {
            Kind::Software { spec, .. } => Ok(spec.vhca_id()),
            Kind::Card(_) => {
                let what = "no register of a card tells the number of its function";
                Err(Refusal::new(Code::NotSupported, what))
            }
        }
    }

    /// Whether it is a virtual function.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        match &self.kind {
            Kind::Software { spec, .. } => spec.vf.is_some(),
            Kind::Card(card) => card.is_virtual,
        }
    }

    /// Looks whether it is still there. A card has its node for its registers alone, so that is not
    /// opened.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if it has gone; [`Code::OperatingSystem`], [`Code::Driver`].
    pub fn check(&self) -> Result<(), Refusal> {
        match &self.kind {
            Kind::Software { spec, .. } => {
                let observer = Registry::open().and_then(|registry| registry.observe(&spec.name));
                observer.map(drop).map_err(refused)
            }
            Kind::Card(_) => Ok(()),
        }
    }

    /// What leads to its registers, for [`crate::registers::open`].
    #[must_use]
    pub fn locator(&self) -> String {
        match &self.kind {
            Kind::Software { spec, node: None } => spec.name.clone(),
            Kind::Software {
                node: Some(node), ..
            } => node.display().to_string(),
            Kind::Card(card) => card.pci.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_the_address_of_their_place_or_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::at(&directory.path().join("devices")).unwrap();
        let mut spec = DeviceSpec::new("mlx5_0", "127.64.1.1".parse().unwrap());
        spec.pci = Some("0000:1a:00.1".parse().unwrap());
        spec.vfs = 1;
        registry.add(&spec).unwrap();
        let devices = list_of(&registry).unwrap();
        let names: Vec<_> = devices.iter().map(|it| it.ibdev().unwrap()).collect();
        assert_eq!(names, ["fr0", "mlx5_0", "mlx5_0v0"]);
        let functions = devices
            .iter()
            .map(|info| (info.is_virtual(), info.vhca_id().unwrap()));
        let functions: Vec<_> = functions.collect();
        assert_eq!(functions, [(false, 0), (false, 0), (true, 1)]);
        assert!(devices[2].has_pci("1a:00.2").unwrap());
        assert!(devices[0].has_pci("10fe:00:00.0").unwrap());
        assert!(devices[1].has_pci("1A:00.1").unwrap());
        assert!(!devices[1].has_pci("1a:00.0").unwrap());
        let error = devices[1].has_pci("1a").unwrap_err();
        assert_eq!(error.code(), Code::InvalidValue);
        assert_eq!(devices[0].interface().unwrap(), "lo");
    }

    fn card(pci: &str, node: Option<&Path>) -> Found {
        Found {
            pci: pci.parse().unwrap(),
            node: node.map(Path::to_owned),
            ibdev: Some("mlx5_0".to_owned()),
            interface: None,
            is_virtual: true,
        }
    }

    #[test]
    fn a_card_says_what_the_system_knows_of_it() {
        let info = Info::of_card(card("0000:1a:00.2", None)).unwrap();
        assert!(info.has_pci("1a:00.2").unwrap());
        assert_eq!(info.ibdev().unwrap(), "mlx5_0");
        assert_eq!(info.interface().unwrap_err().code(), Code::NotFound);
        assert_eq!(info.vhca_id().unwrap_err().code(), Code::NotSupported);
        assert!(info.is_virtual());
        assert_eq!(info.locator(), "0000:1a:00.2");
        info.check().unwrap();
        assert!(Info::of_card(card("10000:01:00.0", None)).is_none());
    }

    #[test]
    fn a_device_that_is_shown_as_a_card_is_reached_by_its_node() {
        let directory = tempfile::tempdir().unwrap();
        let node = directory.path().join("fwctl0");
        assert_eq!(shown_device(&node), None);
        fs::write(&node, "ferroce-fwctl fr0\n").unwrap();
        assert_eq!(shown_device(&node).as_deref(), Some("fr0"));
        assert_eq!(shown_device(Path::new("/dev/null")), None);
        let registry = Registry::at(&directory.path().join("devices")).unwrap();
        let mut device = list_of(&registry).unwrap().remove(0);
        let card = card("10fe:00:00.0", Some(&node));
        device.show_as("mlx5_0", &card);
        assert_eq!(device.locator(), "fr0");
        device.show_as("fr0", &card);
        assert_eq!(device.locator(), node.to_str().unwrap());
        assert_eq!(device.ibdev().unwrap(), "fr0");
    }
}

//! The devices there are.

use ferroce_hca::HistogramConfig;
use ferroce_sysfs::netdev_of;
use ferroce_udp::{DeviceSpec, PciAddress, Registry};

use crate::error::{Code, Refusal};
use crate::registers::{SoftwareDevice, refused};

/// The number of a device's only function.
pub const VHCA_ID: u16 = HistogramConfig::VHCA_ID;

/// What programs see of a device before they open it.
#[derive(Clone, Debug)]
pub struct Info {
    spec: DeviceSpec,
    pci: PciAddress,
}

/// The user's devices, in the order of `ferroce dev`.
///
/// # Errors
///
/// The registry cannot be read: [`Code::OperatingSystem`] or [`Code::Driver`].
pub fn list() -> Result<Vec<Info>, Refusal> {
    list_of(&Registry::open().map_err(refused)?)
}

/// Those of a registry.
///
/// # Errors
///
/// See [`list`].
pub fn list_of(registry: &Registry) -> Result<Vec<Info>, Refusal> {
    let devices = registry.devices().map_err(refused)?.into_iter();
    let info = |(place, spec): (usize, DeviceSpec)| Info {
        pci: spec.pci_at(place),
        spec,
    };
    Ok(devices.enumerate().map(info).collect())
}

impl Info {
    /// Its name as a device of verbs.
    #[must_use]
    pub fn ibdev(&self) -> &str {
        &self.spec.name
    }

    /// Its network interface; empty if its address is on none.
    #[must_use]
    pub fn interface(&self) -> String {
        netdev_of(self.spec.address)
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
    /// [`Code::InvalidValue`]: the text is no PCI address.
    pub fn has_pci(&self, text: &str) -> Result<bool, Refusal> {
        let address: PciAddress = text
            .parse()
            .map_err(|error| Refusal::new(Code::InvalidValue, error))?;
        Ok(address == self.pci)
    }

    /// The way to its registers.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if it has gone; see [`SoftwareDevice::open`] for others.
    pub fn registers(&self) -> Result<SoftwareDevice, Refusal> {
        SoftwareDevice::open(&self.spec.name)
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
        registry.add(&spec).unwrap();
        let devices = list_of(&registry).unwrap();
        let names: Vec<_> = devices.iter().map(Info::ibdev).collect();
        assert_eq!(names, ["fr0", "mlx5_0"]);
        assert!(devices[0].has_pci("10fe:00:00.0").unwrap());
        assert!(devices[1].has_pci("1A:00.1").unwrap());
        assert!(!devices[1].has_pci("1a:00.0").unwrap());
        let error = devices[1].has_pci("1a").unwrap_err();
        assert_eq!(error.code(), Code::InvalidValue);
        assert_eq!(devices[0].interface(), "lo");
    }
}

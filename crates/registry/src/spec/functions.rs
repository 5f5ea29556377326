//! The functions of a card: the PF, which has a file, and the VFs that follow from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ferroce_device::Function;
use ferroce_prm::PciAddress;

use super::DeviceSpec;
use super::error::SpecError;

/// Of which card a device is a VF, and which.
#[derive(Clone, PartialEq, Debug)]
pub struct Vf {
    /// Its place among the VFs of the card, from 0.
    pub index: u8,
    /// The card's PF, whose settings it has.
    pub pf: Arc<DeviceSpec>,
}

impl DeviceSpec {
    /// The longest name of a device with VFs, which add `v` and a number to it.
    const PF_NAME_MAX: usize = Self::NAME_MAX - "v126".len();

    /// The device, and behind it its VFs. The VFs of a device that [`Self::check`] refuses may be
    /// fewer than it wants.
    pub fn functions(&self) -> Vec<Self> {
        let pf = Arc::new(self.clone());
        let vfs = (0..self.vfs).map_while(|index| vf(&pf, index));
        [self.clone()].into_iter().chain(vfs).collect()
    }

    /// Which function of its card the device is.
    pub fn function(&self) -> Function {
        match &self.vf {
            None => Function::Pf { vfs: self.vfs },
            Some(Vf { index, pf }) => Function::Vf {
                index: *index,
                pf: pf.name.clone(),
            },
        }
    }

    /// The number by which registers know the function: 0 is the PF, VF 0 has 1.
    pub fn vhca_id(&self) -> u16 {
        self.function().vhca_id()
    }

    /// The PF of the card: the device itself if it is one.
    pub fn pf(&self) -> &Self {
        self.vf.as_ref().map_or(self, |vf| &vf.pf)
    }

    /// `vendor_part_id` of the card's VFs.
    pub fn vf_part_id(&self) -> u32 {
        part_id_of_vf(self.pf().vendor_part_id)
    }

    fn address_of_vf(&self, index: u8) -> Option<IpAddr> {
        let address = match self.vf_address {
            Some(first) => plus(first, index.into()),
            None => plus(self.address, u32::from(index) + 1),
        };
        let alike = |it: &IpAddr| {
            it.is_ipv4() == self.address.is_ipv4()
                && it.is_loopback() == self.address.is_loopback()
                && !it.is_unspecified()
                && !it.is_multicast()
        };
        address.filter(alike)
    }

    /// Whether a card can have the VFs that it is to have.
    pub(super) fn check_vfs(&self) -> Result<(), SpecError> {
        let bad = |field, value: String, allowed| {
            Err(SpecError::BadValue {
                field,
                value,
                allowed,
            })
        };
        if self.vfs > Function::VFS_MAX {
            return bad("vfs", self.vfs.to_string(), "0 to 127");
        }
        let Some(last) = self.vfs.checked_sub(1) else {
            return Ok(());
        };
        if self.name.len() > Self::PF_NAME_MAX {
            let allowed = "at most 59 letters for a device with VFs";
            return bad("name", self.name.clone(), allowed);
        }
        if self
            .address_of_vf(0)
            .and_then(|_| self.address_of_vf(last))
            .is_none()
        {
            let first = self.vf_address.map(|it| it.to_string());
            let allowed = "an address of the device's kind (IPv4 or IPv6, loopback or not) that has \
                           one for each VF from there on";
            return bad("vf_address", first.unwrap_or_default(), allowed);
        }
        match self.pci {
            Some(pci) if pci_of_vf(pci, last).is_none() => {
                let allowed = "an address with room for the VFs behind it, below ff:1f.7";
                bad("pci", pci.to_string(), allowed)
            }
            _ => Ok(()),
        }
    }
}

/// The address of a VF.
const fn pci_of_vf(pf: PciAddress, index: u8) -> Option<PciAddress> {
    pf.behind(index as u16 + 1)
}

/// The VF of a card in this place; `None` if there is no address for it.
fn vf(pf: &Arc<DeviceSpec>, index: u8) -> Option<DeviceSpec> {
    Some(DeviceSpec {
        name: format!("{}v{index}", pf.name),
        address: pf.address_of_vf(index)?,
        node_guid: None,
        pci: pf.pci.and_then(|pci| pci_of_vf(pci, index)),
        vendor_part_id: pf.vf_part_id(),
        vfs: 0,
        vf_address: None,
        vf: Some(Vf {
            index,
            pf: Arc::clone(pf),
        }),
        ..DeviceSpec::clone(pf)
    })
}

pub(super) fn plus(address: IpAddr, n: u32) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().checked_add(n)?).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().checked_add(n.into())?).into(),
    })
}

/// The PCI device id of a card's VFs, as the kernel's driver of these cards has them. Until
/// ConnectX-6 each card has one of its own; the later ones share one.
fn part_id_of_vf(pf: u32) -> u32 {
    match pf {
        0x1011 | 0x1013 | 0x1015 | 0x1017 | 0x1019 | 0x101b | 0xa2d2 => pf + 1,
        0x101d | 0x101f | 0x1021 | 0x1023 | 0x1025 | 0xa2d6 | 0xa2dc | 0xa2df => 0x101e,
        // No known card with VFs has it.
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(address: &str, vfs: u8) -> DeviceSpec {
        DeviceSpec {
            vfs,
            ..DeviceSpec::new("fr1", address.parse().unwrap())
        }
    }

    #[test]
    fn a_vf_has_its_own_name_and_addresses_the_rest_of_its_pf() {
        let mut pf = card("127.30.0.1", 9);
        pf.pci = Some("0000:1a:00.0".parse().unwrap());
        pf.fw_ver = "28.50.1".to_owned();
        pf.node_guid = Some(7);
        pf.check().unwrap();
        let functions = pf.functions();
        assert_eq!(functions.len(), 10);
        assert_eq!(functions[0], pf);
        let (vf, last) = (&functions[1], &functions[9]);
        assert_eq!((vf.name.as_str(), last.name.as_str()), ("fr1v0", "fr1v8"));
        assert_eq!(vf.address.to_string(), "127.30.0.2");
        assert_eq!(last.address.to_string(), "127.30.0.10");
        assert_eq!(vf.pci_at(0).to_string(), "0000:1a:00.1");
        // The eighth is on: function numbers of more than three bits.
        assert_eq!(last.pci_at(0).to_string(), "0000:1a:01.1");
        assert_eq!(vf.guid(), 0x0266_7200_7f1e_0002);
        assert_eq!((vf.vendor_part_id, vf.fw_ver.as_str()), (0x101e, "28.50.1"));
        assert_eq!([&pf, vf, last].map(DeviceSpec::vhca_id), [0, 1, 9]);
        assert_eq!(vf.identity(), pf.identity(), "registers show the card");
        assert_eq!(vf.functions().len(), 1, "a VF has no VFs");
        for spec in &functions {
            spec.check().unwrap();
        }
    }

    #[test]
    fn the_first_address_can_be_given() {
        let mut pf = card("fd00::1", 2);
        pf.vf_address = Some("fd00::ffff".parse().unwrap());
        pf.check().unwrap();
        let addresses: Vec<_> = pf
            .functions()
            .iter()
            .map(|it| it.address.to_string())
            .collect();
        assert_eq!(addresses, ["fd00::1", "fd00::ffff", "fd00::1:0"]);
        assert_eq!(DeviceSpec::from_toml("fr1", &pf.to_toml().unwrap()), Ok(pf));
    }

    #[test]
    fn vfs_that_cannot_be_are_refused() {
        let told = |spec: DeviceSpec, told: &str| {
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        };
        told(card("127.0.0.1", 128), "vfs is \"128\"; allowed: 0 to 127");
        told(card("127.255.255.254", 2), "vf_address is");
        told(card("255.255.255.254", 2), "vf_address is");
        told(card("::1", 1), "vf_address is");
        let elsewhere = |first: &str| DeviceSpec {
            vf_address: Some(first.parse().unwrap()),
            ..card("127.0.0.1", 1)
        };
        told(elsewhere("::1"), "vf_address is \"::1\"");
        told(elsewhere("0.0.0.0"), "vf_address is");
        told(elsewhere("192.0.2.1"), "vf_address is");
        let mut crowded = card("127.0.0.1", 2);
        crowded.pci = Some("ff:1f.6".parse().unwrap());
        told(crowded, "pci is");
        let mut long = card("127.0.0.1", 1);
        long.name = "x".repeat(60);
        told(long, "name is");
    }
}

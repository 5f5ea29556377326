//! The links of a device: one for each port of the card, of which it has one or two.

use std::net::IpAddr;

use super::DeviceSpec;
use super::error::SpecError;
use super::functions::plus;

impl DeviceSpec {
    /// How many ports programs see.
    pub fn ports(&self) -> u8 {
        match self.second_address {
            Some(_) if !self.bond => 2,
            _ => 1,
        }
    }

    /// The address of a port, from 1, or of a link of a bond.
    pub fn address_at(&self, number: u8) -> Option<IpAddr> {
        match number {
            1 => Some(self.address),
            2 => self.second_address,
            _ => None,
        }
    }

    /// The address behind the device's own, which its second port gets unless it is told another one.
    pub fn next_address(&self) -> Option<IpAddr> {
        plus(self.address, 1)
    }

    /// What is the second link's own: its name, `DEVICE/2`, and its address. `None` if there is only one.
    pub fn second_link(&self) -> Option<Self> {
        let address = self.second_address?;
        Some(Self {
            name: format!("{}/2", self.name),
            address,
            second_address: None,
            bond: false,
            ..self.clone()
        })
    }

    /// What each link has of its own. The first has the device's name.
    pub fn links(&self) -> impl Iterator<Item = Self> + use<> {
        let first = Self {
            second_address: None,
            bond: false,
            ..self.clone()
        };
        [first].into_iter().chain(self.second_link())
    }

    /// What each port has of its own: a link, or both of a bond.
    pub fn ports_of_card(&self) -> impl Iterator<Item = Self> + use<> {
        let bond = self.bond.then(|| self.clone());
        let links = (!self.bond).then(|| self.links());
        bond.into_iter().chain(links.into_iter().flatten())
    }

    /// Whether this is what [`Self::second_link`] returns.
    pub fn is_second_link(&self) -> bool {
        self.name.contains('/')
    }

    /// The device's name, also of what is its second link's own.
    pub fn device_name(&self) -> &str {
        let name = self.name.split_once('/').map(|(device, _)| device);
        name.unwrap_or(&self.name)
    }

    /// The number of the link that this is, from 1.
    pub fn link_number(&self) -> u8 {
        if self.is_second_link() { 2 } else { 1 }
    }

    /// Whether a card can have the ports that it is to have.
    pub(super) fn check_links(&self) -> Result<(), SpecError> {
        let bad = |field, value: String, allowed| {
            Err(SpecError::BadValue {
                field,
                value,
                allowed,
            })
        };
        let Some(second) = self.second_address else {
            return match self.bond {
                true => bad(
                    "bond",
                    true.to_string(),
                    "false without a second_address: a bond is made of two ports",
                ),
                false => Ok(()),
            };
        };
        let is_alike = second.is_ipv4() == self.address.is_ipv4()
            && !second.is_unspecified()
            && !second.is_multicast();
        if !is_alike || second == self.address {
            let allowed = "another address of this machine, of the same kind as the device's own";
            return bad("second_address", second.to_string(), allowed);
        }
        if self.vfs > 0 {
            let allowed = "0 for a device with two ports";
            return bad("vfs", self.vfs.to_string(), allowed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(second: &str) -> DeviceSpec {
        DeviceSpec {
            second_address: Some(second.parse().unwrap()),
            ..DeviceSpec::new("fr1", [127, 30, 0, 1].into())
        }
    }

    #[test]
    fn a_second_port_has_an_address_of_its_own() {
        let card = two("127.30.0.2");
        card.check().unwrap();
        assert_eq!((card.ports(), card.links().count()), (2, 2));
        assert_eq!(card.address_at(2), card.next_address());
        assert_eq!(card.address_at(3), None);
        let second = card.second_link().unwrap();
        assert_eq!(second.name, "fr1/2");
        assert!(second.is_second_link() && second.second_link().is_none());
        let bond = DeviceSpec { bond: true, ..card };
        assert_eq!((bond.ports(), bond.links().count()), (1, 2));
        let again = DeviceSpec::from_toml("fr1", &bond.to_toml().unwrap());
        assert_eq!(again, Ok(bond));
    }

    #[test]
    fn links_that_cannot_be_are_refused_with_the_reason() {
        for wrong in ["127.30.0.1", "::1", "0.0.0.0", "239.1.1.1"] {
            let error = two(wrong).check().unwrap_err().to_string();
            assert!(error.contains("second_address is"), "{error}");
        }
        let mut card = two("127.30.0.2");
        card.vfs = 1;
        let error = card.check().unwrap_err().to_string();
        assert!(error.contains("0 for a device with two ports"), "{error}");
        card = DeviceSpec::new("fr1", [127, 30, 0, 1].into());
        card.bond = true;
        let error = card.check().unwrap_err().to_string();
        assert!(error.contains("without a second_address"), "{error}");
    }
}

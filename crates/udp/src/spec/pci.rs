use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SpecError;

/// The address of a PCI function: `0000:1a:00.0`, and also `1a:00.0` when it is read.
///
/// A device has one because tools look for cards by it: it is the name of the device's directory in
/// `/sys/devices`, and what DOCA programs are given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u16,
    bus: u8,
    /// 0 to 31.
    device: u8,
    /// 0 to 7.
    function: u8,
}

impl PciAddress {
    /// The domain of devices whose files name no address; no machine has it for its own.
    pub const OWN_DOMAIN: u16 = 0x10fe;

    /// The address of the device in this place of the registry's list, if its file names none.
    pub const fn of_place(place: usize) -> Self {
        // The address has 16 bits; there are never so many devices.
        Self {
            domain: Self::OWN_DOMAIN,
            bus: (place >> 8) as u8,
            device: (place >> 3) as u8 & 0x1f,
            function: place as u8 & 7,
        }
    }

    /// The address of a function's VF. More than seven of them have, as with ARI, numbers of eight
    /// bits, which lie where the device's number lies else. `None` behind the end of the domain.
    pub(crate) const fn of_vf(self, index: u8) -> Option<Self> {
        let devfn = self.device << 3 | self.function;
        let behind = index as u16 + 1;
        match (((self.bus as u16) << 8) | devfn as u16).checked_add(behind) {
            None => None,
            Some(id) => Some(Self {
                bus: (id >> 8) as u8,
                device: (id as u8) >> 3,
                function: id as u8 & 7,
                ..self
            }),
        }
    }

    /// Whether devices get addresses of this domain by themselves.
    pub(crate) const fn is_given_out(self) -> bool {
        self.domain == Self::OWN_DOMAIN
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parse = || {
            let (head, function) = text.split_once('.')?;
            let parts: Vec<&str> = head.split(':').collect();
            let (domain, bus, device) = match parts[..] {
                [domain, bus, device] => (hex(domain, 4)?, bus, device),
                [bus, device] => (0, bus, device),
                _ => return None,
            };
            let address = Self {
                domain,
                bus: hex(bus, 2)? as u8,
                device: hex(device, 2)? as u8,
                function: hex(function, 1)? as u8,
            };
            (address.device < 32 && address.function < 8).then_some(address)
        };
        parse().ok_or_else(|| SpecError::BadValue {
            field: "pci",
            value: text.to_owned(),
            allowed: "domain, bus, device (to 1f) and function (to 7) in hexadecimal digits, for \
                      example 0000:1a:00.0",
        })
    }
}

/// A number of exactly so many hexadecimal digits, at most four.
fn hex(text: &str, digits: usize) -> Option<u16> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u16::from_str_radix(text, 16).ok()).flatten()
}

impl TryFrom<String> for PciAddress {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written_and_without_the_domain() {
        for text in ["0000:3a:00.0", "10fe:00:1f.7", "ffff:ff:00.1"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        let short: PciAddress = "3A:00.1".parse().unwrap();
        assert_eq!(short.to_string(), "0000:3a:00.1");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "3a",
            "3a:00",
            "3a:20.0",
            "3a:00.8",
            "0:3a:00.0",
            "0000:3a:00.0.0",
            "3a:0.0",
            "+a:00.0",
            "0000:0000:3a:00.0",
            "3a:00.",
            "ü:00.0",
        ] {
            let error = text.parse::<PciAddress>().unwrap_err().to_string();
            assert!(error.contains("pci is"), "{text}: {error}");
        }
    }

    #[test]
    fn each_place_has_an_address_of_its_own() {
        let all: std::collections::BTreeSet<_> = (0..1 << 16).map(PciAddress::of_place).collect();
        assert_eq!(all.len(), 1 << 16);
        assert_eq!(PciAddress::of_place(9).to_string(), "10fe:00:01.1");
    }
}

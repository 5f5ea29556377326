//! PCI addresses of devices in their files.
//!
//! A device has one because tools look for cards by it: it is the name of the device's directory in
//! `/sys/devices`, and the argument of DOCA programs.

use ferroce_prm::PciAddress;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::error::SpecError;

/// The domain of devices whose files name no address; no machine has it for its own.
const OWN_DOMAIN: u32 = 0x10fe;

/// The address of the device in this place of the registry's list, if its file names none.
pub(super) const fn of_place(place: usize) -> PciAddress {
    // The address has 16 bits; there are always fewer devices.
    PciAddress::new(OWN_DOMAIN, place as u16)
}

/// Whether devices get addresses of this domain by themselves.
pub(super) const fn is_given_out(address: PciAddress) -> bool {
    address.domain() == OWN_DOMAIN
}

/// The address in a text. Interfaces that tell it, as DOCA's, have room for 16 bits of domain.
fn parse(text: &str) -> Result<PciAddress, SpecError> {
    let address = text.parse::<PciAddress>().ok();
    let address = address.filter(|address| address.domain() <= 0xffff);
    address.ok_or_else(|| SpecError::BadValue {
        field: "pci",
        value: text.to_owned(),
        allowed: "domain, bus, device (to 1f) and function (to 7) in hexadecimal digits, for \
                  example 0000:1a:00.0",
    })
}

pub(super) fn serialize<S: Serializer>(
    address: &Option<PciAddress>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    address.map(|it| it.to_string()).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PciAddress>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_places_are_refused() {
        for text in ["3a", "3a:20.0", "10000:3a:00.0"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("pci is"), "{text}: {error}");
        }
        assert_eq!(parse("1a:00.0").unwrap().to_string(), "0000:1a:00.0");
    }

    #[test]
    fn each_place_has_an_address_of_its_own() {
        let all: std::collections::BTreeSet<_> = (0..1 << 16).map(of_place).collect();
        assert_eq!(all.len(), 1 << 16);
        assert_eq!(of_place(9).to_string(), "10fe:00:01.1");
    }
}

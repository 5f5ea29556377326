//! Addresses of PCI functions.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// The address of a PCI function: `0000:1a:00.0`. Domain 0 may be omitted on input, as in
/// `1a:00.0`.
///
/// ```
/// use ferroce_prm::PciAddress;
///
/// let address: PciAddress = "3A:00.1".parse().unwrap();
/// assert_eq!(address.to_string(), "0000:3a:00.1");
/// assert_eq!(address.behind(7).unwrap().to_string(), "0000:3a:01.0");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    /// 0 to 31.
    device: u8,
    /// 0 to 7.
    function: u8,
}

/// A text is not a PCI address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "a PCI address is domain, bus, device (to 1f) and function (to 7) in hexadecimal, for example \
     0000:1a:00.0"
)]
pub struct PciAddressError;

impl PciAddress {
    /// Creates the address of function number `id` in a domain: 8 bits of bus, 5 of device, 3 of
    /// function.
    #[must_use]
    pub const fn new(domain: u32, id: u16) -> Self {
        let [bus, devfn] = id.to_be_bytes();
        Self {
            domain,
            bus,
            device: devfn >> 3,
            function: devfn & 7,
        }
    }

    /// Returns the domain; that of the first root complex is 0.
    #[must_use]
    pub const fn domain(self) -> u32 {
        self.domain
    }

    /// Returns the function's number in the domain.
    #[must_use]
    pub const fn id(self) -> u16 {
        u16::from_be_bytes([self.bus, self.device << 3 | self.function])
    }

    /// Returns the address `functions` after this one, as with ARI, where function numbers have
    /// eight bits and occupy the device number's bits. Returns `None` beyond the end of the domain.
    #[must_use]
    pub const fn behind(self, functions: u16) -> Option<Self> {
        match self.id().checked_add(functions) {
            Some(id) => Some(Self::new(self.domain, id)),
            None => None,
        }
    }

    /// Returns another function of the same device, 0 to 7.
    #[must_use]
    pub fn sibling(self, function: u8) -> Option<Self> {
        (function < 8).then_some(Self { function, ..self })
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
    type Err = PciAddressError;

    fn from_str(text: &str) -> Result<Self, PciAddressError> {
        parse(text).ok_or(PciAddressError)
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.split_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.split_once(':').unwrap_or(("0000", rest));
    // Those that do not come from the firmware's tables have more digits.
    if !(4..=8).contains(&domain.len()) {
        return None;
    }
    let byte = |text, digits| u8::try_from(hex(text, digits)?).ok();
    let address = PciAddress {
        domain: hex(domain, domain.len())?,
        bus: byte(bus, 2)?,
        device: byte(device, 2)?,
        function: byte(function, 1)?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

/// A number of exactly `digits` hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u32> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_round_trip_and_the_domain_is_optional() {
        for text in [
            "0000:3a:00.0",
            "10fe:00:1f.7",
            "ffff:ff:00.1",
            "10000:e1:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        let short: PciAddress = "3A:00.1".parse().unwrap();
        assert_eq!(short.to_string(), "0000:3a:00.1");
    }

    #[test]
    fn bad_addresses_are_refused() {
        for text in [
            "",
            "3a",
            "3a:00",
            "3a:20.0",
            "3a:00.8",
            "0:3a:00.0",
            "123456789:3a:00.0",
            "0000:3a:00.0.0",
            "3a:0.0",
            "+a:00.0",
            "0000:0000:3a:00.0",
            "3a:00.",
            "ü:00.0",
            "::.",
        ] {
            assert_eq!(text.parse::<PciAddress>(), Err(PciAddressError), "{text}");
        }
    }

    #[test]
    fn functions_follow_each_other_to_the_end_of_the_domain() {
        let last_but_one: PciAddress = "ff:1f.6".parse().unwrap();
        assert_eq!(last_but_one.behind(1).unwrap().id(), u16::MAX);
        assert_eq!(last_but_one.behind(2), None);
        assert_eq!(last_but_one.sibling(8), None);
        assert_eq!(last_but_one.sibling(0).unwrap().id(), u16::MAX - 7);
    }

    proptest! {
        #[test]
        fn every_address_survives_text(domain: u32, id: u16) {
            let address = PciAddress::new(domain, id);
            prop_assert_eq!((address.domain(), address.id()), (domain, id));
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-f:.]{0,16}|\\PC{0,16}") {
            let _ = text.parse::<PciAddress>();
        }
    }
}

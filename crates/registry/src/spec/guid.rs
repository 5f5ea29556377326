//! GUIDs, and their form in the file.

use std::net::IpAddr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A GUID that is locally administered and different for each IPv4 address.
pub(super) fn of(address: IpAddr) -> u64 {
    let low = match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            // Folding is meant to drop bits.
            (bits ^ bits >> 40 ^ bits >> 80 ^ bits >> 120) as u64 & 0xff_ffff_ffff
        }
    };
    0x0266_7200_0000_0000 | low
}

pub(super) fn serialize<S: Serializer>(
    guid: &Option<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text = |guid: u64| {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (guid >> shift) as u16);
        format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    };
    guid.map(text).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let groups: Vec<&str> = text.split(':').collect();
    let is_guid = groups.len() == 4 && groups.iter().all(|group| group.len() == 4);
    let guid = is_guid.then(|| u64::from_str_radix(&groups.concat(), 16));
    match guid {
        Some(Ok(guid)) => Ok(Some(guid)),
        _ => Err(D::Error::custom(format!(
            "node_guid is {text:?}; allowed: four groups of four hexadecimal digits, for \
             example \"0266:7200:7f00:0001\""
        ))),
    }
}

#[cfg(test)]
mod tests {
    use crate::DeviceSpec;

    #[test]
    fn guids_differ_with_the_address() {
        let guid = |address: &str| DeviceSpec::new("a", address.parse().unwrap()).guid();
        assert_eq!(guid("127.0.0.1"), 0x0266_7200_7f00_0001);
        assert_ne!(guid("fd00::1"), guid("fd00::2"));
    }
}

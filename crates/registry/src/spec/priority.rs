//! How a device gives its packets a priority.

use std::fmt;
use std::str::FromStr;

use ferroce_device::{Qos, Trust, VlanId};
use serde::{Deserialize, Serialize};

use super::DeviceSpec;
use super::error::{SpecError, is_text};

/// The header field that gives a packet its priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrustSetting(Trust);

impl TrustSetting {
    /// The field.
    pub const fn get(self) -> Trust {
        self.0
    }

    /// Whether it is what a device has that nothing is said of.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for TrustSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TrustSetting {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let named = Trust::ALL.into_iter().find(|it| it.name() == text);
        named.map(Self).ok_or_else(|| SpecError::BadValue {
            field: "trust",
            value: text.to_owned(),
            allowed: "dscp or pcp",
        })
    }
}

is_text!(TrustSetting);

impl DeviceSpec {
    /// How the device gives its packets a priority. Its VFs do the same.
    pub fn qos(&self) -> Qos {
        let card = self.pf();
        Qos {
            trust: card.trust.get(),
            vlan: card.vlan.and_then(VlanId::new),
        }
    }

    pub(super) fn check_vlan(&self) -> Result<(), SpecError> {
        match self.vlan {
            Some(number) if VlanId::new(number).is_none() => Err(SpecError::BadValue {
                field: "vlan",
                value: number.to_string(),
                allowed: "1 to 4094, or none for packets without a tag",
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_survive_the_file_and_bad_ones_are_refused() {
        let read = |text: &str| DeviceSpec::from_toml("a", &format!("address = '::1'\n{text}"));
        let spec = read("vlan = 4094\ntrust = 'pcp'").unwrap();
        let qos = Qos {
            trust: Trust::Pcp,
            vlan: VlanId::new(4094),
        };
        assert_eq!(spec.qos(), qos);
        let again = DeviceSpec::from_toml("a", &spec.to_toml().unwrap());
        assert_eq!(again, Ok(spec));
        assert_eq!(read("").unwrap().qos(), Qos::default());
        for (text, told) in [
            ("vlan = 0", "vlan is \"0\"; allowed: 1 to 4094"),
            ("vlan = 4095", "vlan is \"4095\"; allowed: 1 to 4094"),
            ("trust = 'both'", "trust is \"both\"; allowed: dscp or pcp"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}

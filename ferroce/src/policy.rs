//! A device's retransmission policy in a few words, for a status line or a label.

use std::fmt;

use ferroce_adp::{PolicyKind, Profile, builtin};
use ferroce_device::DeviceState;

use crate::json::shared as json;

/// Which policy is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// Adaptive retransmission is off.
    Ib,
    /// The firmware's own timeouts.
    Firmware,
    /// A profile.
    Profile {
        /// Of the built-in profile that it is.
        name: Option<&'static str>,
        /// CRC-32 of the profile's bytes in ROCE_ACCL.
        hash: u32,
    },
}

impl Policy {
    /// The policy that is in force on a device.
    pub(crate) fn of(state: &DeviceState) -> Self {
        match state.policy_kind() {
            PolicyKind::Ib { .. } => Self::Ib,
            PolicyKind::Firmware { .. } => Self::Firmware,
            PolicyKind::Profile(profile) => Self::profile(&profile),
        }
    }

    fn profile(profile: &Profile) -> Self {
        let known = builtin::all().iter().find(|it| it.profile == *profile);
        Self::Profile {
            name: known.map(|it| it.name),
            hash: crc32fast::hash(&profile.to_register()),
        }
    }

    /// ib, firmware or profile.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::Firmware => "firmware",
            Self::Profile { .. } => "profile",
        }
    }

    /// What the profile is called, and the hash of its contents; nothing without one.
    pub(crate) fn profile_names(self) -> Option<(&'static str, String)> {
        match self {
            Self::Profile { name, hash } => Some((name.unwrap_or("custom"), format!("{hash:08x}"))),
            Self::Ib | Self::Firmware => None,
        }
    }

    pub(crate) fn json(self) -> json::Policy {
        let (profile, hash) = self.profile_names().unzip();
        let kind = self.kind();
        json::Policy {
            kind,
            profile,
            hash,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.profile_names() {
            None if *self == Self::Ib => f.write_str("plain IB"),
            None => f.write_str("firmware"),
            Some((name, hash)) => write!(f, "{name} {hash}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_device::{DeviceState, Personality};

    use super::*;

    #[test]
    fn a_profile_is_told_by_its_name_and_contents() {
        let all = builtin::all();
        for built_in in all {
            let Policy::Profile { name, hash } = Policy::profile(&built_in.profile) else {
                panic!("{}", built_in.name);
            };
            assert_eq!(name, Some(built_in.name));
            let same = all.iter().filter(|other| {
                let other = Policy::profile(&other.profile);
                matches!(other, Policy::Profile { hash: it, .. } if it == hash)
            });
            assert_eq!(same.count(), 1, "{}", built_in.name);
        }
        let custom = Policy::Profile {
            name: None,
            hash: 0xab,
        };
        assert_eq!(custom.to_string(), "custom 000000ab");
        assert_eq!(custom.json().hash.as_deref(), Some("000000ab"));
    }

    #[test]
    fn without_a_profile_it_is_one_of_two() {
        for (adaptive, kind, text) in [(true, "firmware", "firmware"), (false, "ib", "plain IB")] {
            let personality = Personality {
                adaptive,
                ..Personality::default()
            };
            let policy = Policy::of(&DeviceState::new(personality));
            assert_eq!((policy.kind(), policy.to_string().as_str()), (kind, text));
            assert_eq!(policy.json().profile, None);
        }
    }
}

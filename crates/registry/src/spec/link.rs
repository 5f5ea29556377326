//! The link that carries a device's packets.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{SpecError, is_text};

/// What carries packets between a device and its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LinkSetting {
    /// Shared memory to processes of the same user on this host that use a device of the same
    /// directory and allow it, UDP to all others.
    #[default]
    Auto,
    /// UDP to all.
    Udp,
    /// Shared memory alone: packets to other peers are dropped. Connection management and multicast
    /// use UDP all the same.
    Shm,
}

impl LinkSetting {
    /// Whether it is what a device has that nothing is said of.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Udp => "udp",
            Self::Shm => "shm",
        }
    }
}

impl fmt::Display for LinkSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LinkSetting {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let all = [Self::Auto, Self::Udp, Self::Shm];
        let named = all.into_iter().find(|it| it.name() == text);
        named.ok_or_else(|| SpecError::BadValue {
            field: "link",
            value: text.to_owned(),
            allowed: "auto, udp or shm",
        })
    }
}

is_text!(LinkSetting);

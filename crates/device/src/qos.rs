//! The priority of packets, which determines their queue, who may pause them, and whether they are
//! subject to congestion control.

use std::fmt;

use ferroce_transport::Path;
use ferroce_wire::ethernet::{VLAN_TAG_LEN, VlanId};

/// The header field that a port trusts to give a packet's priority, as in `mlnx_qos --trust`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Trust {
    /// The DSCP, of which the upper three bits are the priority, with or without a VLAN.
    #[default]
    Dscp,
    /// The PCP of the VLAN tag. An untagged packet has priority 0.
    Pcp,
}

impl Trust {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::Dscp, Self::Pcp];

    /// Returns its name in `mlnx_qos --trust`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dscp => "dscp",
            Self::Pcp => "pcp",
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The quality of service settings of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Qos {
    /// The field that gives the priority of a packet, sent or received.
    pub trust: Trust,
    /// The VLAN with whose tag packets are sent. Without one, they have no tag.
    pub vlan: Option<VlanId>,
}

impl Qos {
    /// Returns the priority, 0 to 7, of a packet with this traffic class and, if it has a VLAN tag,
    /// this PCP.
    #[inline]
    #[must_use]
    pub const fn priority(self, traffic_class: u8, pcp: u8) -> u8 {
        match (self.trust, self.vlan) {
            (Trust::Dscp, _) => traffic_class >> 5,
            (Trust::Pcp, Some(_)) => pcp & 7,
            (Trust::Pcp, None) => 0,
        }
    }

    /// Returns the priority of the packets of a path.
    #[inline]
    #[must_use]
    pub const fn priority_of(self, path: &Path) -> u8 {
        self.priority(path.traffic_class, path.sl)
    }

    /// Returns the priority in the tag of a packet; 0 if it has none.
    #[inline]
    pub(crate) const fn pcp_of(self, path: &Path) -> u8 {
        match self.vlan {
            Some(_) => path.sl & 7,
            None => 0,
        }
    }

    /// Returns the bytes that the tag adds to each packet.
    #[inline]
    #[must_use]
    pub const fn tag_len(self) -> usize {
        match self.vlan {
            Some(_) => VLAN_TAG_LEN,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trusted_field_gives_the_priority() {
        let (class, pcp) = (26 << 2, 5);
        for (trust, vlan, priority) in [
            (Trust::Dscp, 0, 3),
            (Trust::Dscp, 100, 3),
            (Trust::Pcp, 0, 0),
            (Trust::Pcp, 100, 5),
        ] {
            let qos = Qos {
                trust,
                vlan: VlanId::new(vlan),
            };
            assert_eq!(qos.priority(class, pcp), priority, "{qos:?}");
        }
    }
}

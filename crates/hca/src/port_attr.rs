//! What programs are told about the port, whether they ask by verbs or read files of sysfs. Numbers
//! and names are those of the InfiniBand specification (vol 1, 14.2.5.6), as kernels tell them.

use std::net::IpAddr;

use ferroce_transport::Mtu;
use ferroce_wire::PKEY_DEFAULT;
pub use ferroce_wire::cm::Gid;

/// A value with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// The number.
    pub value: u8,
    /// Its name in sysfs.
    pub name: &'static str,
}

/// A port passes packets as soon as the device is there: a link that is down is an impairment.
pub const STATE: Named = Named {
    value: 4,
    name: "ACTIVE",
};

/// The same of its cable.
pub const PHYSICAL_STATE: Named = Named {
    value: 5,
    name: "LinkUp",
};

/// It is a port of RoCE.
pub const LINK_LAYER: Named = Named {
    value: 2,
    name: "Ethernet",
};

/// A connection manager is there (bit 16), and GIDs are IP addresses (bit 26).
pub const CAPABILITIES: u32 = 1 << 16 | 1 << 26;

/// Of Ethernet there is none, neither the port's nor a subnet manager's.
pub const LID: u16 = 0;

/// The largest MTU that a port can have. Which one it has is configured.
pub const MTU_MAX: Mtu = Mtu::Mtu4096;

/// The longest message (IBA vol 1, 9.7.7.2.6).
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// The partition key table.
pub const PKEYS: [u16; 1] = [PKEY_DEFAULT];

/// The port's GID table. Index 0 and 1 are the device's address as RoCE v2, since programs for cards
/// ask for index 1 by habit; the others are empty, as some of a card's are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidTable(IpAddr);

impl GidTable {
    /// Entries.
    pub const LEN: u32 = 8;
    /// Those that are not empty, which are the first.
    pub const USED: u32 = 2;

    /// The table of a device with this address.
    pub const fn new(address: IpAddr) -> Self {
        Self(address)
    }

    /// An entry; `None` if it is empty or beyond the end.
    pub fn get(self, index: u32) -> Option<Gid> {
        (index < Self::USED).then(|| self.0.into())
    }

    /// All that are not empty, by their index.
    pub fn used(self) -> impl Iterator<Item = (u32, Gid)> {
        (0..Self::LEN).filter_map(move |index| Some((index, self.get(index)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_habitual_indexes_are_the_address() {
        let table = GidTable::new([127, 0, 0, 2].into());
        let used: Vec<_> = table.used().collect();
        let gid = Gid::from(IpAddr::from([127, 0, 0, 2]));
        assert_eq!(used, [(0, gid), (1, gid)]);
        assert_eq!(used.len(), GidTable::USED as usize);
        assert_eq!([table.get(2), table.get(u32::MAX)], [None, None]);
    }
}

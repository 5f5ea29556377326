//! Port attributes, whether programs query them through verbs or read them from sysfs. Numbers and
//! names are those of the InfiniBand specification (vol 1, 14.2.5.6), as kernels report them.

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

/// The state of a port, up or down. On Ethernet there is nothing between the two.
pub const fn state(is_up: bool) -> Named {
    let (value, name) = if is_up { (4, "ACTIVE") } else { (1, "DOWN") };
    Named { value, name }
}

/// The same of its cable. The driver of ConnectX cards says "Disabled" of every RoCE port without a
/// carrier, and never "Polling".
pub const fn physical_state(is_up: bool) -> Named {
    let (value, name) = if is_up {
        (5, "LinkUp")
    } else {
        (3, "Disabled")
    };
    Named { value, name }
}

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

//! The files of one device.

use ferroce_dcqcn::Params;
use ferroce_device::Counter;
use ferroce_registry::{Emulation, GidTable, PciAddress, PortSpeed};

/// A value for each [`Counter`], in the order of its table.
pub(crate) type Counters = [u64; Counter::COUNT];

/// What the files say about one device.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    /// Name, the directory below `class/infiniband`.
    pub(crate) name: String,
    /// PCI address, the name of the function's directory.
    pub(crate) pci: PciAddress,
    /// What it is among the functions of its card.
    pub(crate) role: Role,
    /// The hardware that it looks like, if the program asked for any.
    pub(crate) emulation: Option<Emulation>,
    /// This host's name.
    pub(crate) host: String,
    /// EUI-64 of the device.
    pub(crate) node_guid: u64,
    /// PCI device number.
    pub(crate) vendor_part_id: u32,
    /// Hardware revision.
    pub(crate) hw_ver: u32,
    /// Firmware version, three numbers with dots; empty if it has none.
    pub(crate) fw_ver: String,
    /// PSID of the board; empty if there is none.
    pub(crate) board_id: String,
    /// Its ports, by their numbers from 1.
    pub(crate) ports: Vec<Port>,
    /// Speed of each port.
    pub(crate) speed: PortSpeed,
    /// Its parameters of congestion control.
    pub(crate) congestion: Params,
}

/// What the files say about one of its ports.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// Its GIDs.
    pub(crate) gids: GidTable,
    /// Network interface that has its address; empty if none has.
    pub(crate) netdev: String,
    /// Whether it is up.
    pub(crate) is_up: bool,
    /// How often it went down.
    pub(crate) link_downed: u64,
    /// Its counters.
    pub(crate) counters: Counters,
}

impl Port {
    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }
}

/// A function and the others of its card that are shown.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// A PF.
    Pf {
        /// How many VFs the card has.
        vfs: u8,
        /// The PCI addresses of those that are shown, each with its place among all.
        shown: Vec<(u8, PciAddress)>,
        /// PCI device number that VFs of the card have.
        vf_part_id: u32,
    },
    /// A VF, and its PF's PCI address if that is shown, too.
    Vf(Option<PciAddress>),
}

impl Role {
    /// Whether other functions of the card are shown.
    pub(crate) fn has_others(&self) -> bool {
        match self {
            Self::Pf { shown, .. } => !shown.is_empty(),
            Self::Vf(pf) => pf.is_some(),
        }
    }
}

impl Card {
    /// Whether it is a function of a PCI card, as soft-RoCE is not.
    pub(crate) fn is_on_pci(&self) -> bool {
        self.emulation != Some(Emulation::Rxe)
    }

    /// Whether it looks as if the driver of real cards had it.
    pub(crate) fn has_driver(&self) -> bool {
        self.emulation == Some(Emulation::Mlx5)
    }

    /// The node description: of cards what rdma-core's daemon makes of host and name.
    pub(crate) fn description(&self) -> String {
        match self.emulation {
            None => format!("ferroce {}", self.name),
            Some(Emulation::Mlx5) => format!("{} {}", self.host, self.name),
            Some(Emulation::Rxe) => "rxe".to_owned(),
        }
    }

    /// The interfaces of its ports, each once.
    pub(crate) fn netdevs(&self) -> impl Iterator<Item = &str> {
        let unique = |at: usize| {
            let own = &self.ports[at].netdev;
            let is_first = self.ports[..at].iter().all(|it| it.netdev != *own);
            (is_first && !own.is_empty()).then_some(own.as_str())
        };
        (0..self.ports.len()).filter_map(unique)
    }
}

/// A GUID as four groups of hexadecimal digits.
#[must_use]
pub fn guid(value: u64) -> String {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| value >> shift & 0xffff);
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
}

#[cfg(test)]
pub(crate) fn example(name: &str, place: usize) -> Card {
    let mut counters = [0; Counter::COUNT];
    for (value, counter) in counters.iter_mut().zip(1000..) {
        *value = counter;
    }
    Card {
        name: name.to_owned(),
        pci: PciAddress::new(0x10fe, place as u16),
        role: Role::Pf {
            vfs: 0,
            shown: Vec::new(),
            vf_part_id: 0x101e,
        },
        emulation: None,
        host: "host".to_owned(),
        node_guid: 0x0202_c9ff_fe00_0001,
        vendor_part_id: 4129,
        hw_ver: 0,
        fw_ver: "28.40.1000".to_owned(),
        board_id: "FRC0000000001".to_owned(),
        ports: vec![Port {
            gids: GidTable::alone([127, 16, 0, 1].into()),
            netdev: "lo".to_owned(),
            is_up: true,
            link_downed: 0,
            counters,
        }],
        speed: PortSpeed::default(),
        congestion: Params::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_the_kernel_writes_them() {
        assert_eq!(guid(0x0202_c9ff_fe00_0001), "0202:c9ff:fe00:0001");
    }
}

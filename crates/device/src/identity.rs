//! What a device is: the identity that tools read when they open it, and which function of its card.

use ferroce_prm::mgir;

use crate::card::{Card, Feature, Features, Firmware, Missing};

/// What tools see of a device when they open it (MGIR).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// PCI device id, which is also verbs' `vendor_part_id`.
    pub device_id: u16,
    /// Revision of the hardware.
    pub hw_revision: u16,
    /// Version of the firmware.
    pub firmware: Firmware,
    /// The parameter set (PSID), filled up with zeros.
    pub psid: [u8; mgir::PSID_LEN],
}

impl Default for Identity {
    /// That of the default card.
    fn default() -> Self {
        Card::default().into()
    }
}

impl From<Card> for Identity {
    fn from(card: Card) -> Self {
        Self {
            device_id: card.model.device_id(),
            hw_revision: 0,
            firmware: card.firmware,
            psid: *b"FRC0000000001\0\0\0",
        }
    }
}

impl Identity {
    /// The card that it describes, if it is one of the table.
    pub fn card(&self) -> Option<Card> {
        Card::of(self.device_id, self.firmware)
    }

    /// Whether the device has a feature.
    pub(crate) fn require(&self, feature: Feature) -> Result<(), Missing> {
        self.card().map_or(Ok(()), |card| card.require(feature))
    }

    /// What the device has. A device that is not in the table of cards has everything.
    pub fn features(&self) -> Features {
        self.card().map_or(Features::ALL, Card::features)
    }
}

/// Which function of its card a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Function {
    /// The physical function. The settings of the card are its own.
    Pf {
        /// How many virtual functions the card has, at most [`Self::VFS_MAX`].
        vfs: u8,
    },
    /// A virtual function, which uses the settings of its card.
    Vf {
        /// Its place among the virtual functions, from 0.
        index: u8,
        /// The name of the PF, for errors.
        pf: String,
    },
}

impl Default for Function {
    /// That of a card without virtual functions.
    fn default() -> Self {
        Self::Pf { vfs: 0 }
    }
}

impl Function {
    /// Most virtual functions of a card.
    pub const VFS_MAX: u8 = 127;

    /// The number by which registers know the function: 0 is the PF, VF 0 has 1.
    pub const fn vhca_id(&self) -> u16 {
        match self {
            Self::Pf { .. } => 0,
            Self::Vf { index, .. } => *index as u16 + 1,
        }
    }
}

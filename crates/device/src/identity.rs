//! What a device is: the identity that tools read when they open it, and which function of its card.

use ferroce_prm::mgir;

/// What tools see of a device when they open it (MGIR).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// PCI device id, which is also verbs' `vendor_part_id`.
    pub device_id: u16,
    /// Revision of the hardware.
    pub hw_revision: u16,
    /// The three parts of the firmware's version.
    pub firmware: [u32; 3],
    /// The parameter set (PSID), filled up with zeros.
    pub psid: [u8; mgir::PSID_LEN],
}

impl Default for Identity {
    /// A ConnectX-7 whose firmware has the timeout histogram.
    fn default() -> Self {
        Self {
            device_id: 0x1021,
            hw_revision: 0,
            firmware: [28, 48, 1000],
            psid: *b"FRC0000000001\0\0\0",
        }
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

//! The function of its card that a device represents.

/// Which function of its card a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Function {
    /// The physical function. The settings of the card are its own.
    Pf {
        /// How many virtual functions the card has, at most [`Self::VFS_MAX`].
        vfs: u8,
    },
    /// A virtual function, which goes by the settings of its card.
    Vf {
        /// Its place among the virtual functions, from 0.
        index: u8,
        /// What errors call the PF.
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

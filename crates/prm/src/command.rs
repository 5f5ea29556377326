//! The method and the status of ACCESS_REG, the firmware's command for registers.

use core::fmt;

/// What to do with an access register; the numbers of the ACCESS_REG command's `op_mod`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Method {
    /// SET.
    Write = 0,
    /// GET. The command includes the content, because it may have an index in it.
    Query = 1,
}

impl Method {
    /// Returns the method with this number, or `None` if the firmware does not know it.
    #[must_use]
    pub const fn of(op_mod: u16) -> Option<Self> {
        match op_mod {
            0 => Some(Self::Write),
            1 => Some(Self::Query),
            _ => None,
        }
    }
}

/// The firmware's status of a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    /// The command succeeded.
    pub const OK: Self = Self(0x00);
    /// The device itself has failed.
    pub const INTERNAL_ERROR: Self = Self(0x01);
    /// The register cannot be accessed in this way, or not by this function.
    pub const BAD_OPERATION: Self = Self(0x02);
    /// A field has an invalid value.
    pub const BAD_PARAMETER: Self = Self(0x03);
    /// There is no such register.
    pub const NOT_SUPPORTED: Self = Self(0x04);
    /// The data exceeds a limit.
    pub const LIMIT: Self = Self(0x08);
    /// The index does not exist.
    pub const BAD_INDEX: Self = Self(0x0a);
    /// The length of the command differs from that of the register.
    pub const BAD_INPUT_LENGTH: Self = Self(0x50);
    /// The buffer for the answer is too small.
    pub const BAD_OUTPUT_LENGTH: Self = Self(0x51);

    /// The manual's name for it, and what it means when a register was accessed.
    fn texts(self) -> (&'static str, &'static str) {
        match self.0 {
            0x00 => ("OK", "done"),
            0x01 => ("INT_ERR", "the card has failed internally"),
            0x02 => ("BAD_OP", "the register cannot be accessed like this"),
            0x03 => ("BAD_PARAM", "a field has a value that the card refuses"),
            0x04 => ("BAD_SYS_STATE", "the card has no such register"),
            0x05 => ("BAD_RES", "the register is not available"),
            0x06 => ("RES_BUSY", "the card is busy"),
            0x08 => ("LIM_ERR", "the data exceeds a limit of the card"),
            0x07 => ("NOT_READY", "the card is not ready"),
            0x09 => (
                "BAD_RES_STATE",
                "the register is in a state that forbids it",
            ),
            0x0a => ("BAD_INDEX", "the card has nothing with this index"),
            0x0f => ("NO_RES", "the card has no resources left for it"),
            0x10 => ("BAD_QP_STATE", "a queue pair is in a state that forbids it"),
            0x30 => ("BAD_PKT", "the card has dropped a packet as bad"),
            0x40 => ("BAD_SIZE_OUTS_CQES", "too many completions are outstanding"),
            0x50 => (
                "BAD_INPUT_LEN",
                "the data has another length than the register",
            ),
            0x51 => (
                "BAD_OUTPUT_LEN",
                "the answer has another length than the register",
            ),
            _ => ("unknown", "the card gives a reason that is not documented"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, meaning) = self.texts();
        write!(f, "{meaning} (status {:#04x}, {name})", self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x} {}", self.0, self.texts().0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn a_status_says_number_name_and_meaning() {
        assert_eq!(
            Status::NOT_SUPPORTED.to_string(),
            "the card has no such register (status 0x04, BAD_SYS_STATE)"
        );
        assert!(Status(0x77).to_string().contains("0x77, unknown"));
    }
}

//! ACCESS_REG, the firmware's command for registers, and its answers. Everything is big-endian.

use std::fmt;

/// The command's opcode.
pub const ACCESS_REG: u16 = 0x805;

/// The same command under the name for programs without privileges.
pub const ACCESS_REGISTER_USER: u16 = 0xb0c;

/// Bytes in front of a register's content, in a command and in its answer.
pub const HEADER_LEN: usize = 16;

/// What is done with a register; the numbers of the command's `op_mod`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Method {
    /// SET.
    Write = 0,
    /// GET. The content goes with the command, too: it may have an index in it.
    Read = 1,
}

/// A command. What stands in its fields need not make sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// [`ACCESS_REG`], or another command.
    pub opcode: u16,
    /// The firmware's number for who asks; the kernel writes its own over it.
    pub uid: u16,
    /// A [`Method`], if the command is ACCESS_REG.
    pub op_mod: u16,
    /// Number of the register.
    pub register_id: u16,
    /// What some registers take beside their content; 0 for the others.
    pub argument: u32,
    /// Content of the register.
    pub data: &'a [u8],
}

impl<'a> Request<'a> {
    /// The command that reads or writes a register.
    #[must_use]
    pub const fn access(register_id: u16, method: Method, data: &'a [u8]) -> Self {
        Self {
            opcode: ACCESS_REG,
            uid: 0,
            op_mod: method as u16,
            register_id,
            argument: 0,
            data,
        }
    }

    /// Reads a command; `None` if it ends before its content begins.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, data) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let [o0, o1, u0, u1, _, _, m0, m1, _, _, r0, r1, argument @ ..] = *header;
        Some(Self {
            opcode: u16::from_be_bytes([o0, o1]),
            uid: u16::from_be_bytes([u0, u1]),
            op_mod: u16::from_be_bytes([m0, m1]),
            register_id: u16::from_be_bytes([r0, r1]),
            argument: u32::from_be_bytes(argument),
            data,
        })
    }

    /// The bytes of the command.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + self.data.len()];
        bytes[0..2].copy_from_slice(&self.opcode.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.uid.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.op_mod.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.register_id.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.argument.to_be_bytes());
        bytes[HEADER_LEN..].copy_from_slice(self.data);
        bytes
    }

    /// What is to be done with the register; `None` if the firmware knows no such thing.
    #[must_use]
    pub const fn method(&self) -> Option<Method> {
        match self.op_mod {
            0 => Some(Method::Write),
            1 => Some(Method::Read),
            _ => None,
        }
    }
}

/// The answer to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// How it went.
    pub status: Status,
    /// What the firmware's makers can tell from it; 0 if it went well.
    pub syndrome: u32,
    /// Content of the register.
    pub data: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Reads an answer; `None` if it ends before its content begins.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, data) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let [status, _, _, _, s0, s1, s2, s3, ..] = *header;
        Some(Self {
            status: Status(status),
            syndrome: u32::from_be_bytes([s0, s1, s2, s3]),
            data,
        })
    }

    /// The answer in `len` bytes, as many as the asker has room for.
    #[must_use]
    pub fn to_bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[0] = self.status.0;
        bytes[4..8].copy_from_slice(&self.syndrome.to_be_bytes());
        bytes.extend_from_slice(self.data);
        bytes.resize(len, 0);
        bytes
    }
}

/// How the firmware says a command went.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    /// It was done.
    pub const OK: Self = Self(0x00);
    /// The device itself has failed.
    pub const INTERNAL_ERROR: Self = Self(0x01);
    /// The register cannot be accessed so.
    pub const BAD_OPERATION: Self = Self(0x02);
    /// A field has a value that is not allowed.
    pub const BAD_PARAMETER: Self = Self(0x03);
    /// There is no such register.
    pub const NOT_SUPPORTED: Self = Self(0x04);
    /// The data exceeds a limit.
    pub const LIMIT: Self = Self(0x08);
    /// There is nothing with this index.
    pub const BAD_INDEX: Self = Self(0x0a);
    /// The command has another length than the register.
    pub const BAD_INPUT_LENGTH: Self = Self(0x50);
    /// There is too little room for the answer.
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
    use super::*;

    /// ROCE_ACCL with adaptive retransmission selected and switched on.
    const DATA: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];

    #[test]
    fn requests_are_the_bytes_that_cards_take() {
        let get = [
            0x08, 0x05, 0, 0, 0, 0, 0, 1, 0, 0, 0x40, 0x2c, 0, 0, 0, 0, //
            0, 0, 0, 1, 0, 0, 0, 1,
        ];
        assert_eq!(Request::access(0x402c, Method::Read, &DATA).to_bytes(), get);
        let mut set = get;
        set[7] = 0;
        let request = Request::access(0x402c, Method::Write, &DATA);
        assert_eq!(request.to_bytes(), set);
        assert_eq!(Request::parse(&set), Some(request));
        assert_eq!(request.method(), Some(Method::Write));
    }

    #[test]
    fn every_field_survives_a_round_trip() {
        let request = Request {
            opcode: 0x0b0c,
            uid: 0x1234,
            op_mod: 0x5678,
            register_id: 0x9abc,
            argument: 0xdef0_1234,
            data: &DATA,
        };
        assert_eq!(Request::parse(&request.to_bytes()), Some(request));
        assert_eq!(request.method(), None);
        let reply = Reply {
            status: Status::BAD_INDEX,
            syndrome: 0x1234_5678,
            data: &DATA,
        };
        let bytes = reply.to_bytes(HEADER_LEN + DATA.len());
        assert_eq!(bytes[..8], [0x0a, 0, 0, 0, 0x12, 0x34, 0x56, 0x78]);
        assert_eq!(Reply::parse(&bytes), Some(reply));
    }

    #[test]
    fn what_ends_early_is_no_command_and_an_answer_fits_its_room() {
        assert_eq!(Request::parse(&[0; HEADER_LEN - 1]), None);
        assert_eq!(Reply::parse(&[0; HEADER_LEN - 1]), None);
        let reply = Reply {
            status: Status::OK,
            syndrome: 0,
            data: &DATA,
        };
        for len in [HEADER_LEN, HEADER_LEN + 4, HEADER_LEN + 64] {
            assert_eq!(reply.to_bytes(len).len(), len);
        }
    }

    #[test]
    fn a_status_says_number_name_and_meaning() {
        assert_eq!(
            Status::NOT_SUPPORTED.to_string(),
            "the card has no such register (status 0x04, BAD_SYS_STATE)"
        );
        assert!(Status(0x77).to_string().contains("0x77, unknown"));
    }
}

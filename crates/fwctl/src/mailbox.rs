//! ACCESS_REG, the firmware's command for registers, and its answers. Everything is big-endian.

pub use ferroce_prm::{Method, Status};

/// The command's opcode.
pub const ACCESS_REG: u16 = 0x805;

/// The same command under the name for programs without privileges.
pub const ACCESS_REGISTER_USER: u16 = 0xb0c;

/// Length of the header before a register's content, in a command and in its answer, bytes.
pub const HEADER_LEN: usize = 16;

/// A command. Its fields need not be valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// [`ACCESS_REG`], or another command.
    pub opcode: u16,
    /// The firmware's number for the caller; the kernel overwrites it.
    pub uid: u16,
    /// A [`Method`], if the command is ACCESS_REG.
    pub op_mod: u16,
    /// Number of the register.
    pub register_id: u16,
    /// An argument that some registers take in addition to their content; 0 for the others.
    pub argument: u32,
    /// Content of the register.
    pub data: &'a [u8],
}

impl<'a> Request<'a> {
    /// Creates the command that reads or writes a register.
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

    /// Parses a command; `None` if it ends before its content begins.
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

    /// Returns the bytes of the command.
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

    /// Returns the method, or `None` if the firmware does not know it.
    #[must_use]
    pub const fn method(&self) -> Option<Method> {
        Method::of(self.op_mod)
    }
}

/// The answer to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// The result.
    pub status: Status,
    /// Details for the firmware's authors; 0 on success.
    pub syndrome: u32,
    /// Content of the register.
    pub data: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Parses an answer; `None` if it ends before its content begins.
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

    /// Returns the answer in `len` bytes, the space that the caller has.
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
        assert_eq!(
            Request::access(0x402c, Method::Query, &DATA).to_bytes(),
            get
        );
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
    fn truncated_commands_are_refused_and_answers_fit() {
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
}

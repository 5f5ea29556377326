//! The messages between the ends of a stream, in the formats of rsocket(7) that other hosts use.

/// Places in which a peer is offered memory, one for each half of the receive buffer.
pub(super) const OFFERS: usize = 2;

/// A number that announces something to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// This number of bytes were written.
    Data(u32),
    /// Messages up to this one may be sent; memory may have been offered, too.
    Limit(u16),
    /// An entry of the table of mapped memory was written.
    Mapped(u16),
    /// Nothing will be sent or taken any more.
    Disconnect,
    /// The peer is there.
    Alive,
    /// Nothing will be sent any more.
    Shutdown,
    /// A number that means nothing.
    Unknown,
}

impl Message {
    const OPERATION: u32 = 29;
    const VALUE: u32 = (1 << Self::OPERATION) - 1;

    pub(super) fn encode(self) -> u32 {
        let (operation, value) = match self {
            Self::Data(bytes) => (0, bytes),
            Self::Limit(limit) => (4, limit.into()),
            Self::Mapped(index) => (6, index.into()),
            Self::Disconnect => (7, 0),
            Self::Alive => (7, 1),
            Self::Shutdown => (7, 2),
            Self::Unknown => (5, 0),
        };
        operation << Self::OPERATION | value
    }

    pub(super) fn decode(number: u32) -> Self {
        let value = number & Self::VALUE;
        match (number >> Self::OPERATION, value) {
            (0, bytes) => Self::Data(bytes),
            (4, limit) => Self::Limit(limit as u16),
            (6, index) => Self::Mapped(index as u16),
            (7, 0) => Self::Disconnect,
            (7, 1) => Self::Alive,
            (7, 2) => Self::Shutdown,
            _ => Self::Unknown,
        }
    }
}

/// Memory that the peer may write to.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Target {
    pub(super) addr: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

impl Target {
    pub(super) const LEN: u32 = size_of::<Self>() as u32;

    fn to_network(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    fn from_network(bytes: &[u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            key: u32::from_be_bytes([i, j, k, l]),
            length: u32::from_be_bytes([m, n, o, p]),
        }
    }

    /// As a machine of the other byte order reads it.
    pub(super) fn swapped(self) -> Self {
        Self {
            addr: self.addr.swap_bytes(),
            key: self.key.swap_bytes(),
            length: self.length.swap_bytes(),
        }
    }
}

/// An entry in the table of the memory that the peer has mapped, as the peer writes it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) target: Target,
}

impl Mapping {
    pub(super) const LEN: u32 = size_of::<Self>() as u32;

    /// As a machine of the other byte order reads it.
    pub(super) fn swapped(self) -> Self {
        Self {
            offset: self.offset.swap_bytes(),
            target: self.target.swapped(),
        }
    }
}

/// What each end says of itself when they connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) is_big_endian: bool,
    /// Messages it takes before it says more.
    pub(super) limit: u16,
    /// Entries in its table of mapped memory.
    pub(super) maps: u16,
    /// Where offers are written to; the length counts them.
    pub(super) offers: Target,
    /// The first half of its receive buffer.
    pub(super) buffer: Target,
}

impl Hello {
    pub(super) const LEN: usize = 40;
    const VERSION: u8 = 1;
    const BIG_ENDIAN: u8 = 1;
    const HAS_MAPS: u8 = 1 << 1;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = Self::VERSION;
        bytes[1] = Self::HAS_MAPS | (u8::from(self.is_big_endian) * Self::BIG_ENDIAN);
        bytes[2..4].copy_from_slice(&self.limit.to_be_bytes());
        bytes[7] = scale(self.maps);
        bytes[8..24].copy_from_slice(&self.offers.to_network());
        bytes[24..40].copy_from_slice(&self.buffer.to_network());
        bytes
    }

    /// `None` if it is none of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        if bytes[0] != Self::VERSION {
            return None;
        }
        let has_maps = bytes[1] & Self::HAS_MAPS != 0;
        Some(Self {
            is_big_endian: bytes[1] & Self::BIG_ENDIAN != 0,
            limit: u16::from_be_bytes([bytes[2], bytes[3]]),
            maps: if has_maps { unscale(bytes[7]) } else { 0 },
            offers: Target::from_network(bytes[8..24].first_chunk()?),
            buffer: Target::from_network(bytes[24..40].first_chunk()?),
        })
    }
}

/// A count in eight bits: small ones exactly, great ones in units of 256.
fn scale(count: u16) -> u8 {
    match count {
        0..=128 => count as u8,
        _ => 128 | (count >> 8) as u8,
    }
}

fn unscale(byte: u8) -> u16 {
    match byte {
        0..=128 => byte.into(),
        _ => u16::from(byte & 127) << 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way() {
        for message in [
            Message::Data(0x1fff_ffff),
            Message::Limit(0xffff),
            Message::Mapped(7),
            Message::Disconnect,
            Message::Alive,
            Message::Shutdown,
        ] {
            assert_eq!(Message::decode(message.encode()), message);
        }
        for unknown in [1 << 29, 5 << 29, 7 << 29 | 3] {
            assert_eq!(Message::decode(unknown), Message::Unknown);
        }
    }

    /// As rsockets of other hosts lay it out.
    #[test]
    fn a_hello_is_forty_bytes_in_network_order() {
        let hello = Hello {
            is_big_endian: false,
            limit: 0x0180,
            maps: 512,
            offers: Target {
                addr: 0x0102_0304_0506_0708,
                key: 0x1112_1314,
                length: 2,
            },
            buffer: Target {
                addr: 0x2122_2324_2526_2728,
                key: 0x3132_3334,
                length: 0x1_0000,
            },
        };
        let bytes = hello.encode();
        assert_eq!(bytes[..8], [1, 2, 1, 0x80, 0, 0, 0, 130]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..24], [0x11, 0x12, 0x13, 0x14, 0, 0, 0, 2]);
        assert_eq!(bytes[36..], [0, 1, 0, 0]);
        assert_eq!(Hello::decode(&bytes), Some(hello));
        // What a connection brings may be longer, and is nothing if it is shorter or another version.
        let longer = [&bytes[..], &[0; 16]].concat();
        assert_eq!(Hello::decode(&longer), Some(hello));
        assert_eq!(Hello::decode(&bytes[..39]), None);
        assert_eq!(Hello::decode(&[2; 40]), None);
    }
}

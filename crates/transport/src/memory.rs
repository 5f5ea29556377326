//! Registered memory as a queue pair sees it, and the data that goes there.

use thiserror::Error;

/// A key to registered memory, and the role in which it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// An lkey of a send request, in the QP's protection domain.
    Local(u32),
    /// An lkey of a receive request, in the protection domain of the queue that it was posted to: a
    /// shared receive queue may have a different one than the QP.
    Receive(u32),
    /// An rkey, presented by the peer.
    Remote(u32),
}

impl Key {
    /// Returns the key.
    pub fn number(self) -> u32 {
        let (Self::Local(number) | Self::Receive(number) | Self::Remote(number)) = self;
        number
    }
}

/// A piece of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The key that gives access to it.
    pub key: Key,
    /// Virtual address of the first byte.
    pub va: u64,
    /// Length in bytes.
    pub len: u32,
}

/// A position in registered memory that a key gave access to. It is valid until the next input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))] // beside it in a packet is more
pub struct MemoryRef {
    /// Offset of the first byte in the region.
    pub offset: u64,
    /// The region's own key.
    pub region: u32,
}

/// The reason why an access to registered memory is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No memory region or window has this key, or the window is not bound.
    #[error("no memory region and no bound memory window has this key")]
    UnknownKey,
    /// The region belongs to another protection domain.
    #[error("the memory region belongs to another protection domain")]
    WrongDomain,
    /// The type 2 window was bound by another QP.
    #[error("the memory window was bound by another QP")]
    WrongQp,
    /// The range extends beyond the region.
    #[error("the range reaches outside the memory region")]
    OutOfBounds,
    /// The region does not permit this kind of access.
    #[error("the memory region does not permit this access")]
    NotPermitted,
    /// The type 2 window is already bound; it must be invalidated first.
    #[error("the memory window is bound; invalidate it first")]
    Bound,
    /// The memory is not mapped, or not for this kind of access.
    #[error("no memory of the program is mapped at this address for this access")]
    Unmapped,
}

/// Payload of an arriving packet.
///
/// A simulator that carries no bytes passes only the length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data<'a> {
    /// The bytes.
    Bytes(&'a [u8]),
    /// Only the number of bytes.
    Length(u32),
}

impl<'a> Data<'a> {
    /// Number of bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "an empty payload is not a special case here"
    )]
    pub fn len(&self) -> u32 {
        match self {
            // A packet's payload is at most one MTU.
            Self::Bytes(bytes) => bytes.len() as u32,
            Self::Length(len) => *len,
        }
    }

    /// Returns the `len` bytes from `offset` on; both must be inside the payload.
    #[must_use]
    pub fn slice(&self, offset: u32, len: u32) -> Self {
        match self {
            Self::Bytes(bytes) => Data::Bytes(&bytes[offset as usize..(offset + len) as usize]),
            Self::Length(_) => Data::Length(len),
        }
    }
}

/// An atomic operation on 8 bytes of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Writes `swap` if the value is `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// Value to write.
        swap: u64,
    },
    /// Adds, wrapping.
    FetchAdd {
        /// Addend.
        add: u64,
    },
}

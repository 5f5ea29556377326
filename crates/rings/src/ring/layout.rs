//! What lies where in a ring.
//!
//! Positions count bytes and never go back; the distance from the ring's start, modulo the capacity,
//! says where in the ring a packet lies. Each is a multiple of [`LINE`], so that a packet shares its
//! cache lines with no other one.
//!
//! The start is the position of the ring's first byte. A ring that was found empty may start again at
//! any position, with all of its room: nothing has to be left out to get back to the first byte.

use super::sizes::{CAPACITY, PACKET_BYTES_MAX};

/// Where the packets begin.
pub(super) const DATA: usize = 4096;
/// Bytes of a ring's memory.
pub(super) const LEN: usize = DATA + CAPACITY;

/// The word that says what the memory is. It changes with the meaning of anything in it.
pub(super) const MAGIC_AT: usize = 0;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"ferroce2");
/// Up to where the producer has written. In cache lines of its own, like the next: each of the two
/// processes writes one of them all the time.
pub(super) const TAIL_AT: usize = 128;
/// Packets that found no room, modulo 2^64.
pub(super) const DROPPED_AT: usize = 136;
/// The start. It is written when the ring starts again, before the tail that follows.
pub(super) const START_AT: usize = 144;
/// Up to where the consumer has read.
pub(super) const HEAD_AT: usize = 256;

/// Everything in the ring begins at a multiple of this.
pub(super) const LINE: u64 = 64;
/// Bytes of the word before each packet.
pub(super) const HEADER: usize = 8;

/// What follows a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A packet whose ICRC has not been computed; any four bytes are in its place.
    Bare,
    /// A packet as it is on the wire, with its ICRC, which is to be checked: one that the impaired
    /// link has damaged, or that was recorded.
    Sealed,
}

/// The fields of a packet's headers that give its priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Class {
    /// Its DSCP and ECN bits.
    pub traffic_class: u8,
    /// The priority in its VLAN tag; 0 if it has none.
    pub sl: u8,
}

/// A header: kind, class and length, or the advice to go on at the ring's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Header {
    Packet {
        kind: Kind,
        class: Class,
        len: usize,
    },
    /// Nothing is here; the next packet is at the ring's first byte.
    Wrap,
}

const BARE: u8 = 1;
const SEALED: u8 = 2;
const WRAP: u8 = 3;

impl Header {
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        let (kind, class, len) = match self {
            Self::Packet { kind, class, len } => match kind {
                Kind::Bare => (BARE, class, len),
                Kind::Sealed => (SEALED, class, len),
            },
            Self::Wrap => return WRAP.into(),
        };
        u64::from(kind)
            | u64::from(class.traffic_class) << 8
            | u64::from(class.sl) << 16
            | (len as u64) << 32
    }

    /// `None` if no producer writes that.
    #[inline]
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let [kind, traffic_class, sl @ 0..=7, 0, len @ ..] = word.to_le_bytes() else {
            return None;
        };
        let len = u32::from_le_bytes(len) as usize;
        let class = Class { traffic_class, sl };
        let kind = match kind {
            BARE => Kind::Bare,
            SEALED => Kind::Sealed,
            WRAP if (traffic_class, sl, len) == (0, 0, 0) => return Some(Self::Wrap),
            _ => return None,
        };
        (len <= PACKET_BYTES_MAX).then_some(Self::Packet { kind, class, len })
    }
}

/// Bytes that a packet of a length takes.
#[inline]
pub(super) fn room_for(len: usize) -> u64 {
    (HEADER as u64 + len as u64).next_multiple_of(LINE)
}

/// Where in the ring's bytes a position is that lies this far from the start.
#[inline]
pub(super) fn offset(distance: u64) -> usize {
    // Below the capacity.
    (distance % CAPACITY as u64) as usize
}

/// Bytes from there to the end of the ring.
#[inline]
pub(super) fn to_end(distance: u64) -> u64 {
    CAPACITY as u64 - distance % CAPACITY as u64
}

/// Bytes between two positions, if there can be as many: the one that the other process has written
/// may be anything.
#[inline]
pub(super) fn between(head: u64, tail: u64) -> Option<u64> {
    let used = tail.wrapping_sub(head);
    (used <= CAPACITY as u64 && used.is_multiple_of(LINE)).then_some(used)
}

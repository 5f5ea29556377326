//! The 24-bit numbers of transport headers: packet sequence number, queue pair number, and shared
//! receive queue number.

use core::fmt;

/// All these numbers have 24 bits.
const MASK: u32 = 0x00ff_ffff;

/// Packet sequence number: 24 bits, arithmetic modulo 2^24 (IBA vol 1, 9.7.1).
///
/// There is deliberately no `Ord`: on a circle "smaller" has a meaning only relative to a window.
/// [`delta`](Self::delta), [`is_before`](Self::is_before) and [`is_after`](Self::is_after) compare
/// within half the circle, which is what the protocol guarantees for packets in flight.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Psn(u32);

impl Psn {
    /// Sequence number 0.
    pub const ZERO: Self = Self(0);

    /// Creates a sequence number from the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// Returns the number, 0..2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the PSN `count` packets later.
    #[must_use]
    pub const fn wrapping_add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// Returns the PSN `count` packets earlier.
    #[must_use]
    pub const fn wrapping_sub(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// Returns the PSN of the following packet.
    #[must_use]
    pub const fn next(self) -> Self {
        self.wrapping_add(1)
    }

    /// Returns how many packets `self` is after `earlier`, going forward around the circle:
    /// 0..2^24.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & MASK
    }

    /// Returns the signed distance from `other` to `self`, the shorter way around: -2^23..2^23.
    ///
    /// Two numbers exactly half a circle apart are -2^23 from each other in both directions.
    pub const fn delta(self, other: Self) -> i32 {
        // Moving bit 23 into the sign bit and back extends the sign.
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// Returns whether `self` is in the half circle before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.delta(other) < 0
    }

    /// Returns whether `self` is in the half circle after `other`.
    pub const fn is_after(self, other: Self) -> bool {
        self.delta(other) > 0
    }

    pub(crate) const fn from_bytes(bytes: [u8; 3]) -> Self {
        Self(be24(bytes))
    }

    pub(crate) const fn to_bytes(self) -> [u8; 3] {
        bytes24(self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Psn> for u32 {
    fn from(psn: Psn) -> Self {
        psn.0
    }
}

/// Queue pair number: 24 bits (IBA vol 1, 9.2).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Qpn(u32);

impl Qpn {
    /// QP 1, the general services interface, which is used for connection management.
    pub const GSI: Self = Self(1);
    /// The destination QP of multicast datagrams.
    pub const MULTICAST: Self = Self(MASK);

    /// Creates a number from the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// Returns the number, 0..2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bytes(bytes: [u8; 3]) -> Self {
        Self(be24(bytes))
    }

    pub(crate) const fn to_bytes(self) -> [u8; 3] {
        bytes24(self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Qpn> for u32 {
    fn from(qpn: Qpn) -> Self {
        qpn.0
    }
}

/// Number of an XRC shared receive queue: 24 bits (IBA vol 1, annex A14).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Srqn(u32);

impl Srqn {
    /// Creates a number from the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// Returns the number, 0..2^24.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Srqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a 24-bit big-endian number.
pub(crate) const fn be24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// Writes the low 24 bits of `value`, big-endian.
pub(crate) const fn bytes24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HALF: u32 = 1 << 23;

    #[test]
    fn new_masks_to_24_bits() {
        assert_eq!(Psn::new(0xff12_3456).value(), 0x12_3456);
        assert_eq!(Qpn::new(0xff12_3456).value(), 0x12_3456);
        assert_eq!(Qpn::new(u32::MAX), Qpn::MULTICAST);
        assert_eq!(Qpn::new(1), Qpn::GSI);
        assert_eq!(Psn::new(1 << 24), Psn::ZERO);
    }

    #[test]
    fn arithmetic_wraps_around_the_circle() {
        let last = Psn::new(MASK);
        assert_eq!(last.next(), Psn::ZERO);
        assert_eq!(Psn::ZERO.wrapping_sub(1), last);
        assert_eq!(Psn::ZERO.since(last), 1);
        assert_eq!(last.since(Psn::ZERO), MASK);
        assert_eq!(Psn::ZERO.delta(last), 1);
        assert_eq!(last.delta(Psn::ZERO), -1);
        assert!(last.is_before(Psn::ZERO));
        assert!(Psn::ZERO.is_after(last));
        assert!(!last.is_before(last) && !last.is_after(last));
    }

    #[test]
    fn half_a_circle_apart_is_before_in_both_directions() {
        let (near, far) = (Psn::ZERO, Psn::new(HALF));
        assert_eq!(near.delta(far), -(1 << 23));
        assert_eq!(far.delta(near), -(1 << 23));
        assert!(near.is_before(far) && far.is_before(near));
    }

    #[test]
    fn displays_like_the_number() {
        assert_eq!(format!("{:>5} {}", Psn::new(7), Qpn::GSI), "    7 1");
    }

    proptest! {
        #[test]
        fn adding_then_asking_the_distance_gives_it_back(start: u32, count in 0..=MASK) {
            let start = Psn::new(start);
            let end = start.wrapping_add(count);
            prop_assert_eq!(end.since(start), count);
            prop_assert_eq!(end.wrapping_sub(count), start);
            let signed = if count < HALF { i64::from(count) } else { i64::from(count) - (1 << 24) };
            prop_assert_eq!(i64::from(end.delta(start)), signed);
            prop_assert_eq!(end.is_after(start), signed > 0);
            prop_assert_eq!(end.is_before(start), signed < 0);
        }

        #[test]
        fn bytes_round_trip(value in 0..=MASK) {
            prop_assert_eq!(Psn::from_bytes(Psn::new(value).to_bytes()), Psn::new(value));
            prop_assert_eq!(Qpn::from_bytes(Qpn::new(value).to_bytes()), Qpn::new(value));
        }
    }
}

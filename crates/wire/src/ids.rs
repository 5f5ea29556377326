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

    const HALF: u32 = 1 << 23;
    /// Miri is a thousand times slower.
    const STEP: usize = if cfg!(miri) { 9973 } else { 1 };

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

    /// Every distance against integers that do not wrap, from the ends of the circle, its middle, and a
    /// place in between.
    ///
    /// That covers all pairs. What is computed from two numbers begins with their difference modulo 2^32,
    /// of which 24 bits are used, and these depend on the difference modulo 2^24 alone; so `a` and `b` have
    /// the same answers as `a + n` and `b + n`.
    #[test]
    fn every_distance_agrees_with_integers() {
        const LAP: i64 = 1 << 24;
        for start in [0, 1, HALF - 1, HALF, 0xab_cdef, MASK] {
            let from = Psn::new(start);
            for count in (0..=MASK).step_by(STEP) {
                let to = from.wrapping_add(count);
                let expected = (i64::from(start) + i64::from(count)) % LAP;
                let nearest = match i64::from(count) {
                    ahead if ahead < LAP / 2 => ahead,
                    ahead => ahead - LAP,
                };
                let is_right = i64::from(to.value()) == expected
                    && to.wrapping_sub(count) == from
                    && to.since(from) == count
                    && i64::from(to.delta(from)) == nearest
                    && to.is_after(from) == (nearest > 0)
                    && to.is_before(from) == (nearest < 0);
                assert!(is_right, "{count} after {start}");
            }
        }
    }

    #[test]
    fn all_bytes_round_trip() {
        for value in (0..=MASK).step_by(STEP) {
            let bytes = Psn::new(value).to_bytes();
            assert_eq!(bytes, value.to_be_bytes()[1..]);
            assert_eq!(Psn::from_bytes(bytes).value(), value);
            assert_eq!(Qpn::from_bytes(bytes).value(), value);
            assert_eq!(Qpn::new(value).to_bytes(), bytes);
        }
    }
}

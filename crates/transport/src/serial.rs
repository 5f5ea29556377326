//! Sequence numbers, on their circle and as unbounded counters.

use std::fmt;
use std::ops::{Add, AddAssign};

use ferroce_wire::Psn;

/// A 24-bit sequence number, of packets (PSN) or of messages (SSN, MSN), together with the laps
/// around the circle that lie before it: a place on a line.
///
/// On the circle two numbers can be compared only while they are less than 2^23 apart, which holds
/// for what is under way and for nothing else. What a queue pair remembers beyond that it remembers
/// as one of these, and it stays right at any distance. They never leave the queue pair; all that is
/// on the circle is a [`Psn`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serial(u64);

impl Serial {
    /// Where a connection begins: in lap 1, so that what comes from before its beginning has a place.
    pub(crate) const fn first(number: Psn) -> Self {
        Self(1 << 24 | number.value() as u64)
    }

    /// What of it is on the wire.
    pub(crate) fn psn(self) -> Psn {
        Psn::new(self.0 as u32) // which keeps 24 of them
    }

    /// The nearest place with these low 24 bits: up to 2^23 - 1 ahead, or up to 2^23 behind, which is
    /// what the protocol takes for new and for a duplicate (IBA vol 1, 9.7.1).
    pub(crate) fn near(self, number: Psn) -> Self {
        let distance = number.delta(self.psn());
        Self(self.0.wrapping_add_signed(distance.into()))
    }

    /// The next place with these low 24 bits, this one included.
    pub(crate) fn ahead(self, number: Psn) -> Self {
        self + number.since(self.psn())
    }

    pub(crate) fn next(self) -> Self {
        self + 1
    }

    /// How far it is to a later one.
    pub(crate) fn until(self, later: Self) -> u64 {
        later.0.wrapping_sub(self.0)
    }

    pub(crate) fn previous(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

impl Add<u32> for Serial {
    type Output = Self;

    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count.into())) // at one a nanosecond it takes centuries to wrap
    }
}

impl AddAssign<u32> for Serial {
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in lap {}", self.psn(), self.0 >> 24)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u32 = 1 << 23;
    const LAP: u64 = 1 << 24;

    /// Every number on the circle, seen from places in the first laps and in the last one: it is the one
    /// place with these low bits that is less than half a lap away, or exactly that and behind.
    ///
    /// That covers all places: [`Psn::delta`] gives the same for pairs that are as far apart, and what is
    /// added to it here does not wrap within a lap of the ends.
    #[test]
    fn every_number_has_its_place_near_any_other() {
        for here in [
            0,
            1,
            LAP / 2,
            LAP - 1,
            LAP,
            5 * LAP + 77,
            u64::MAX - 2 * LAP,
        ] {
            let here = here + LAP;
            let place = Serial(here);
            for number in (0..LAP).step_by(if cfg!(miri) { 9973 } else { 1 }) {
                let psn = Psn::new(number as u32);
                let in_this_lap = here - here % LAP + number;
                let candidates = [in_this_lap - LAP, in_this_lap, in_this_lap + LAP];
                let is_near = |at: &u64| {
                    let ahead = i128::from(*at) - i128::from(here);
                    (-i128::from(HALF)..i128::from(HALF)).contains(&ahead)
                };
                let mut near = candidates.into_iter().filter(is_near);
                let ahead = candidates.into_iter().find(|at| *at >= here).unwrap();
                let is_right = Some(place.near(psn).0) == near.next()
                    && near.next().is_none()
                    && place.ahead(psn).0 == ahead
                    && place.until(place.ahead(psn)) == ahead - here
                    && place.ahead(psn).psn() == psn;
                assert!(is_right, "{number} from {place:?}");
            }
            assert!(place < place.next() && place.next().previous() == place);
        }
    }

    /// From the very beginning to a lap later.
    #[test]
    fn the_far_ends() {
        let first = Serial::first(Psn::ZERO);
        let opposite = first.near(Psn::new(HALF));
        assert!(opposite < first, "half a circle away is behind");
        assert_eq!(opposite + HALF, first);
        assert_eq!(first.near(Psn::new(HALF - 1)), first + (HALF - 1));
        let lap_later = first + (1 << 24);
        assert_eq!(lap_later.psn(), first.psn());
        assert!(lap_later > first);
        assert_eq!(
            format!("{first:?}, {lap_later:?}"),
            "0 in lap 1, 0 in lap 2"
        );
    }
}

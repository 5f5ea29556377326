//! Numbers of queue pairs.

use std::cell::Cell;

use crate::secret::{Draw, ROUNDS, Secret, shuffle, unshuffle};

/// 0 and 1 are the management queue pairs, and the last number means all of a group. The same
/// low bits are left out in each slot.
const LOW_MIN: u32 = 2;
const LOW_MAX: u32 = 0xfffe;
/// Numbers whose index is remembered.
const RECENT: usize = 4;
/// Numbers of a slot.
pub(crate) const COUNT: u32 = LOW_MAX - LOW_MIN + 1;

/// How the device numbers its queue pairs and shared receive queues: the slot in the upper 8 bits,
/// and below it a permutation that only the device knows. One number does not reveal the others, and the
/// next owner of the slot has different ones, so that late packets match nothing.
#[derive(Debug)]
#[repr(C)] // the memo first: most packets need no more
pub(crate) struct Numbers {
    /// Numbers that were looked up last, by their low bits, and their indices: the next request,
    /// packet or completion is most often for the same queue pair.
    recent: [Cell<(u32, u32)>; RECENT],
    slot: u32,
    /// Factor and summand of each round of the permutation. Multiply and shift: each packet needs it,
    /// and without the key the results for any two halves are independent.
    rounds: [(u32, u32); ROUNDS],
}

impl Numbers {
    pub(crate) fn new(slot: u8, secret: Secret) -> Self {
        // The upper half of what is drawn is as good as the lower one.
        let draw = |n| (secret.draw(Draw::QpNumbers, n) >> 32) as u32;
        Self {
            slot: slot.into(),
            rounds: [0, 1, 2, 3].map(|n| (draw(2 * n), draw(2 * n + 1))),
            // No number has 32 bits.
            recent: [const { Cell::new((u32::MAX, 0)) }; RECENT],
        }
    }

    /// The number of the object with this index below [`COUNT`].
    pub(crate) fn number(&self, index: u32) -> u32 {
        let mut low = LOW_MIN + index;
        // Few numbers are left out, and a permutation comes back to where it began.
        loop {
            low = shuffle::<8>(low, |n, half| self.round(n, half));
            if (LOW_MIN..=LOW_MAX).contains(&low) {
                return self.slot << 16 | low;
            }
        }
    }

    /// The index of the object with this number, if the slot has such a number.
    #[inline]
    pub(crate) fn index(&self, number: u32) -> Option<u32> {
        let recent = &self.recent[number as usize % RECENT];
        let (known, index) = recent.get();
        if known == number {
            return Some(index);
        }
        let index = self.invert(number)?;
        recent.set((number, index));
        Some(index)
    }

    fn invert(&self, number: u32) -> Option<u32> {
        let mut low = number & 0xffff;
        if number >> 16 != self.slot || !(LOW_MIN..=LOW_MAX).contains(&low) {
            return None;
        }
        loop {
            low = unshuffle::<8>(low, |n, half| self.round(n, half));
            if (LOW_MIN..=LOW_MAX).contains(&low) {
                return Some(low - LOW_MIN);
            }
        }
    }

    #[inline]
    fn round(&self, n: u32, half: u32) -> u32 {
        let (factor, summand) = self.rounds[n as usize % ROUNDS];
        // The upper 8 bits.
        factor.wrapping_mul(half).wrapping_add(summand) >> 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_unique_and_never_reserved() {
        for (slot, key) in [(0, 0), (0, 1), (7, 2), (0xff, 3), (0xfe, u128::MAX)] {
            let numbers = Numbers::new(slot, Secret::new(key));
            let mut seen = HashSet::new();
            for index in 0..COUNT {
                let number = numbers.number(index);
                assert!(number > 1 && number < 0xff_ffff);
                assert_eq!(number >> 16, slot.into());
                // Looked up, and remembered.
                assert_eq!(numbers.index(number), Some(index));
                assert_eq!(numbers.index(number), Some(index));
                assert!(seen.insert(number));
            }
        }
    }

    #[test]
    fn strange_numbers_have_no_index() {
        let numbers = Numbers::new(3, Secret::new(1));
        for strange in [0, 1, 2, 0x3_0000, 0x3_0001, 0x3_ffff, 0x4_fffd, 0xff_ffff] {
            assert_eq!(numbers.index(strange), None, "{strange:#x}");
            assert_eq!(numbers.index(strange), None, "{strange:#x}");
        }
    }

    /// One number says nothing of the next, and one owner's numbers nothing of another's.
    #[test]
    fn numbers_cannot_be_foreseen() {
        let (one, two) = (
            Numbers::new(3, Secret::new(1)),
            Numbers::new(3, Secret::new(2)),
        );
        let steps: HashSet<u32> = (0..1000)
            .map(|n| one.number(n + 1).wrapping_sub(one.number(n)))
            .collect();
        assert!(steps.len() > 900, "{}", steps.len());
        let same = (0..1000).filter(|n| one.number(*n) == two.number(*n));
        assert!(same.count() < 5);
    }
}

/// 0 and 1 are the management queue pairs, and the last number means all of a group. The same
/// low bits are left out in each slot.
const LOW_MIN: u32 = 2;
/// Numbers of a slot.
pub(crate) const COUNT: u32 = 0xffff - LOW_MIN;

/// How the device numbers its queue pairs and shared receive queues: the slot in the upper 8 bits,
/// and below it a circle of numbers that begins anywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    slot: u32,
    /// Place of index 0 on the circle.
    start: u32,
}

impl Numbers {
    pub(crate) fn new(slot: u8, first_number: u16) -> Self {
        let low = u32::from(first_number).clamp(LOW_MIN, 0xfffe);
        Self {
            slot: slot.into(),
            start: low - LOW_MIN,
        }
    }

    /// The number of the object with this index below [`COUNT`].
    pub(crate) fn number(self, index: u32) -> u32 {
        (self.slot << 16) | (LOW_MIN + (self.start + index) % COUNT)
    }

    /// The index of the object with this number, if the slot has such a number.
    #[inline]
    pub(crate) fn index(self, number: u32) -> Option<u32> {
        let place = (number & 0xffff).wrapping_sub(LOW_MIN);
        if number >> 16 != self.slot || place >= COUNT {
            return None;
        }
        Some(if place >= self.start {
            place - self.start
        } else {
            place + COUNT - self.start
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_index_has_a_number_of_its_own_and_no_reserved_one_is_used() {
        for (slot, first) in [(0, 0), (0, 0x100), (7, 0xfffe), (0xff, 0xffff), (0xfe, 1)] {
            let numbers = Numbers::new(slot, first);
            let mut seen = HashSet::new();
            for index in 0..COUNT {
                let number = numbers.number(index);
                assert!(number > 1 && number < 0xff_ffff);
                assert_eq!(number >> 16, slot.into());
                assert_eq!(numbers.index(number), Some(index));
                assert!(seen.insert(number));
            }
        }
    }

    #[test]
    fn the_first_number_is_the_one_asked_for_and_strange_ones_have_no_index() {
        let numbers = Numbers::new(3, 0xfffd);
        let [first, second, third] = [0, 1, 2].map(|index| numbers.number(index));
        assert_eq!([first, second, third], [0x3_fffd, 0x3_fffe, 0x3_0002]);
        for strange in [0, 1, 2, 0x3_0000, 0x3_0001, 0x3_ffff, 0x4_fffd, 0xff_ffff] {
            assert_eq!(numbers.index(strange), None, "{strange:#x}");
        }
    }
}

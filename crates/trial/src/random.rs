//! Random numbers that are the same on every machine and in every version.

use std::cell::Cell;

use rand_core::RngCore;

/// Mixes a number into another one (splitmix64): neighbours have nothing in common.
pub(crate) fn mix(seed: u64, part: u64) -> u64 {
    let mut z = seed.wrapping_add(part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// From 0 to 1, without 1.
pub(crate) fn share(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// Random numbers, one after another.
#[derive(Debug)]
pub(crate) struct Dice {
    seed: u64,
    thrown: Cell<u64>,
}

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            seed,
            thrown: Cell::new(0),
        }
    }

    fn throw(&self) -> u64 {
        let number = self.thrown.get();
        self.thrown.set(number.wrapping_add(1));
        mix(self.seed, number)
    }

    /// A number below this one, which is not zero and far below 2^64.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.throw() % end
    }
}

/// As argmin's solvers take them.
impl RngCore for Dice {
    fn next_u32(&mut self) -> u32 {
        (self.throw() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.throw()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.throw().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

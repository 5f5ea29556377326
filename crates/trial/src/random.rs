//! Random numbers for solvers.

use std::cell::Cell;

use ferroce_base::random::mix;
use rand_core::RngCore;

/// The numbers of a seed, one after another, also for those that share it.
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

//! Random numbers for solvers.

use std::cell::Cell;

use ferroce_base::random::mix;

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

    /// A number from 0 to less than 1.
    pub(crate) fn share(&self) -> f64 {
        const BITS: u32 = f64::MANTISSA_DIGITS;
        (self.throw() >> (u64::BITS - BITS)) as f64 / (1u64 << BITS) as f64
    }
}

//! Random numbers that are the same on every machine.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of random numbers from a seed. Everything made of them is in integers, or in operations
/// on floats that IEEE 754 defines to the last bit.
pub(super) struct Stream(Xoshiro256PlusPlus);

impl Stream {
    pub(super) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Any number, all equally likely.
    pub(super) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not 0, all equally likely but for one in 2^32.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u32
    }
}

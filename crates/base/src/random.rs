//! Numbers from a seed: the same on every machine and in every version.
//!
//! The generator is splitmix64. Recorded results depend on its numbers, so they must never change.
//! [`mix`] gives any number of a seed's stream, and is how a part of something gets a seed of its own;
//! [`Dice`] gives one after another.

use core::ops::RangeInclusive;

/// What separates two states of the generator.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number at place `part` of the stream of `seed`. Neighbouring parts have nothing in common.
///
/// ```
/// use ferroce_base::random::{Dice, mix};
///
/// let mut dice = Dice::new(7);
/// assert_eq!([dice.next(), dice.next()], [mix(7, 0), mix(7, 1)]);
/// ```
#[must_use]
pub const fn mix(seed: u64, part: u64) -> u64 {
    let mut z = seed.wrapping_add(part.wrapping_add(1).wrapping_mul(STEP));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps a random number to 0 to 1, without 1.
#[must_use]
pub const fn share(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// The stream of a seed, one number after another.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates the stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "an endless stream")]
    pub const fn next(&mut self) -> u64 {
        let number = mix(self.0, 0);
        self.0 = self.0.wrapping_add(STEP);
        number
    }

    /// Returns a number in `0..n`. `n` is not zero and far below 2^64.
    pub const fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns a number in this range.
    pub const fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        *range.start() + self.below(*range.end() - *range.start() + 1)
    }

    /// Returns true with a probability of `percent` in a hundred.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns true with a probability of `per_mille` in a thousand.
    pub const fn per_mille(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as u64
    }

    /// Returns a probability below `most`.
    pub const fn probability(&mut self, most: f64) -> f64 {
        most * self.below(1 << 20) as f64 / (1 << 20) as f64
    }

    /// Returns one of these, which are not none.
    pub const fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three are those of the reference implementation for this seed.
    #[test]
    fn numbers_never_change() {
        let mut dice = Dice::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!([dice.next(), dice.next(), dice.next()], expected);
        assert_eq!(mix(1, 2), 0xf893_a2ee_fb32_555e);
        assert!((0.0..1.0).contains(&share(u64::MAX)));
    }
}

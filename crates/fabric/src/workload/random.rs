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

    /// A number below `bound`, which is not 0, all equally likely except for one in 2^32.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u32
    }

    /// A time between two events of a Poisson process whose mean is 1; never infinite.
    pub(super) fn exponential(&mut self) -> f64 {
        // From 2^-53 to 1, and 1 included.
        let uniform = ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -ln(uniform)
    }
}

/// The natural logarithm of a normal positive number, to a few units in the last place.
///
/// The one of the standard library is the platform's, and may differ in the last bit from another's.
/// This one adds, multiplies and divides in a fixed order, which IEEE 754 defines to the last bit.
fn ln(x: f64) -> f64 {
    const MANTISSA_BITS: u32 = 52;
    let bits = x.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i32 - 1023;
    let mantissa = bits & ((1 << MANTISSA_BITS) - 1);
    let mut rest = f64::from_bits(mantissa | 1023 << MANTISSA_BITS);
    if rest > std::f64::consts::SQRT_2 {
        rest /= 2.0;
        exponent += 1;
    }
    // ln((1 + s) / (1 - s)) = 2 (s + s^3/3 + s^5/5 + ...), with s at most 0.172.
    let s = (rest - 1.0) / (rest + 1.0);
    let mut sum = 0.0;
    for odd in (1..=23).rev().step_by(2) {
        sum = sum * (s * s) + 1.0 / f64::from(odd);
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_one() {
        let mut random = Stream::new(3);
        let close = |x: f64| {
            let (own, std) = (ln(x), x.ln());
            assert!(
                (own - std).abs() <= 1e-15 * std.abs().max(1.0),
                "{x}: {own} {std}"
            );
        };
        for at in 1..=1_000 {
            close(f64::from(at) / 1_000.0);
            close(f64::from_bits(random.bits() >> 2 | 1 << 52));
        }
        close((-53_f64).exp2());
        assert_eq!(ln(1.0).to_bits(), 0);
    }

    #[test]
    fn gaps_are_exponential() {
        let mut random = Stream::new(11);
        let gaps: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = gaps.iter().sum::<f64>() / 1e5;
        assert!((0.99..1.01).contains(&mean), "{mean}");
        let above = |limit| gaps.iter().filter(|gap| **gap > limit).count();
        // e^-1 and e^-5 of them.
        assert!((36_300..37_300).contains(&above(1.0)), "{}", above(1.0));
        assert!((590..760).contains(&above(5.0)), "{}", above(5.0));
    }
}

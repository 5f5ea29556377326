//! Random numbers that are the same on every machine and in every version.

/// Mixes a number into another one (splitmix64): neighbours have nothing in common.
pub(crate) fn mix(seed: u64, part: u64) -> u64 {
    let mut z = seed.wrapping_add(part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The same with bytes (FNV-1a).
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// From 0 to 1, without 1.
pub(crate) fn share(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// The numbers below `count` in random order (Fisher and Yates).
pub(crate) fn permutation(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let other = (share(mix(seed, last as u64)) * (last + 1) as f64) as usize;
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_for_ever() {
        assert_eq!(mix(1, 2), 0xf893_a2ee_fb32_555e);
        assert_eq!(hash(b"ferroce"), 0x5311_66b7_e405_ac0d);
        let mut sorted = permutation(100, 7);
        assert_ne!(sorted, permutation(100, 8));
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
    }
}

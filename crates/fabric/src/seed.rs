//! Derives the seeds of parts from the overall seed.

/// The seed of one part: neighbouring parts have nothing in common (splitmix64).
pub(crate) fn sub_seed(seed: u64, part: u64) -> u64 {
    let mut z = seed.wrapping_add(part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

//! Stateless randomness: a hash of what identifies the draw (D26).

use ferroce_base::random::mix;

/// A uniform number in `0..n`, the same for the same key.
///
/// The key is mixed after each word. `n` is at most 510, so the
/// bias of the multiplication is below 2^-54.
pub(crate) fn draw(n: u16, key: [u64; 3]) -> u16 {
    let hash = key.into_iter().fold(0, |hash, word| mix(hash ^ word, 0));
    // The high half of hash * n is below n, and n is a u16.
    #[expect(clippy::cast_possible_truncation)]
    let drawn = ((u128::from(hash) * u128::from(n)) >> 64) as u16;
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform_enough_and_repeatable() {
        let mut hits = [0_u32; 5];
        for qpn in 0..10_000 {
            let drawn = draw(5, [7, qpn, 0]);
            assert_eq!(drawn, draw(5, [7, qpn, 0]));
            hits[usize::from(drawn)] += 1;
        }
        assert!(hits.iter().all(|&n| (1850..2150).contains(&n)), "{hits:?}");
    }

    /// A changed hash would change every seeded run.
    #[test]
    fn the_stream_is_stable() {
        let drawn: [u16; 8] = core::array::from_fn(|qpn| draw(510, [1, qpn as u64, 2]));
        assert_eq!(drawn, STREAM);
    }

    const STREAM: [u16; 8] = [57, 136, 464, 285, 95, 6, 459, 210];
}

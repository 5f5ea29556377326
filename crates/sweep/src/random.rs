//! Random orders that are the same on every machine and in every version.

use ferroce_base::random::{mix, share};

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
    fn a_permutation_has_each_number_once() {
        let mut sorted = permutation(100, 7);
        assert_ne!(sorted, permutation(100, 8));
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
    }
}

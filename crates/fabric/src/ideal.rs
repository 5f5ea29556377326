//! Theoretical results: the best that a fabric can do, for comparison with simulations.

pub mod jobs;
mod max_min;
mod path;

pub use self::max_min::{fair_shares, max_min};
pub use self::path::{Hop, Path};

/// Returns the bytes that every rank sends in an all-reduce of `bytes`: 2S(N-1)/N, rounded down.
#[must_use]
pub fn all_reduce_bytes(ranks: u32, bytes: u64) -> u64 {
    let sent = u128::from(bytes) * u128::from(ranks.saturating_sub(1));
    2 * (sent / u128::from(ranks.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_send_what_is_published() {
        // 64 MiB on 1,024 ranks: nearly twice the buffer.
        let bytes = 64 << 20;
        assert_eq!(all_reduce_bytes(1_024, bytes), 2 * (bytes / 1_024) * 1_023);
        assert_eq!(all_reduce_bytes(2, bytes), bytes);
    }
}

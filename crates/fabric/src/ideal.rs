//! Theoretical results: the best that a fabric can do, for comparison with simulations.

mod max_min;
mod path;

use ferroce_base::time::Span;
use ferroce_dcqcn::Rate;

pub use self::max_min::{fair_shares, max_min};
pub use self::path::{Framing, Hop, Path};

/// Returns the bytes that every rank sends in an all-reduce of `bytes`: 2S(N-1)/N, rounded down.
#[must_use]
pub fn all_reduce_bytes(ranks: u32, bytes: u64) -> u64 {
    2 * half_bytes(ranks, bytes)
}

/// Returns the minimum time of an all-reduce if every rank sends at this rate: 2S(N-1)/(N*B),
/// without headers and delays, rounded up.
#[must_use]
pub fn all_reduce_time(ranks: u32, bytes: u64, rate: Rate) -> Span {
    half_time(ranks, bytes, rate, 2)
}

/// Returns the minimum time of a reduce-scatter, an all-gather or an all-to-all if every rank sends
/// at this rate: S(N-1)/(N*B), without headers and delays, rounded up.
#[must_use]
pub fn half_reduce_time(ranks: u32, bytes: u64, rate: Rate) -> Span {
    half_time(ranks, bytes, rate, 1)
}

/// Returns the minimum time of an incast of `bytes_each` from each sender: all of them go through
/// the receiver's cable.
#[must_use]
pub fn incast_time(senders: u32, bytes_each: u64, rate: Rate) -> Span {
    duration(u128::from(senders) * u128::from(bytes_each), 1, rate)
}

fn half_bytes(ranks: u32, bytes: u64) -> u64 {
    let sent = u128::from(bytes) * u128::from(ranks.saturating_sub(1));
    (sent / u128::from(ranks.max(1))) as u64
}

fn half_time(ranks: u32, bytes: u64, rate: Rate, times: u128) -> Span {
    let sent = times * u128::from(bytes) * u128::from(ranks.saturating_sub(1));
    duration(sent, ranks.max(1).into(), rate)
}

/// How long `bytes / parts` take, rounded up.
fn duration(bytes: u128, parts: u128, rate: Rate) -> Span {
    const PS_PER_SECOND: u128 = 1_000_000_000_000;
    let bps = u128::from(rate.bps()) * parts;
    let ps = bytes.checked_mul(8 * PS_PER_SECOND);
    let ps = ps.filter(|_| bps > 0).map(|it| it.div_ceil(bps));
    let ps = ps.and_then(|it| u64::try_from(it).ok());
    ps.map_or(Span::NEVER, Span::from_picos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbps(100_000);

    #[test]
    fn collectives_take_what_is_published() {
        // 64 MiB on 1,024 ranks: nearly twice the buffer.
        let bytes = 64 << 20;
        assert_eq!(all_reduce_bytes(1_024, bytes), 2 * (bytes / 1_024) * 1_023);
        assert_eq!(all_reduce_bytes(2, bytes), bytes);
        assert_eq!(all_reduce_time(1_024, bytes, RATE).as_nanos(), 10_726_932);
        assert_eq!(
            all_reduce_time(2, 100_000, RATE),
            RATE.transmission(100_000)
        );
        assert_eq!(
            half_reduce_time(2, 100_000, RATE),
            RATE.transmission(50_000)
        );
        assert_eq!(incast_time(16, 64_000, RATE), RATE.transmission(1_024_000));
        assert_eq!(all_reduce_time(1, 100_000, RATE), Span::ZERO);
        assert_eq!(incast_time(1, 1, Rate::default()), Span::NEVER);
        assert_eq!(
            all_reduce_time(u32::MAX, u64::MAX, Rate::from_bps(1)),
            Span::NEVER
        );
    }
}

//! Rates of links (ibv_rate_to_mult(3), ibv_rate_to_mbps(3)).

use std::ffi::c_int;

use ferroce_abi::border;

/// A value of `ibv_rate`, its megabits per second, and that as a multiple of 2.5 Gb/s: rounded down,
/// or -1 for rates that came without one.
struct Rate(c_int, c_int, c_int);

const RATES: &[Rate] = &[
    Rate(2, 2_500, 1),
    Rate(3, 10_000, 4),
    Rate(4, 30_000, 12),
    Rate(5, 5_000, 2),
    Rate(6, 20_000, 8),
    Rate(7, 40_000, 16),
    Rate(8, 60_000, 24),
    Rate(9, 80_000, 32),
    Rate(10, 120_000, 48),
    Rate(11, 14_062, -1),
    Rate(12, 56_250, -1),
    Rate(13, 112_500, -1),
    Rate(14, 168_750, -1),
    Rate(15, 25_781, -1),
    Rate(16, 103_125, -1),
    Rate(17, 206_250, -1),
    Rate(18, 309_375, -1),
    Rate(19, 28_125, 11),
    Rate(20, 53_125, 20),
    Rate(21, 425_000, 160),
    Rate(22, 637_500, 240),
    Rate(23, 850_000, 320),
    Rate(24, 1_275_000, 480),
];

/// `IBV_RATE_MAX`, for what is no rate.
const RATE_MAX: c_int = 0;

fn find(field: impl Fn(&Rate) -> c_int, value: c_int) -> Option<&'static Rate> {
    RATES.iter().find(|rate| field(rate) == value)
}

/// A rate as a multiple of 2.5 Gb/s; -1 if there is none.
#[border(field)]
pub extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    find(|rate| rate.0, rate).map_or(-1, |rate| rate.2)
}

/// A rate in Mb/s; -1 if there is none.
#[border(field)]
pub extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    find(|rate| rate.0, rate).map_or(-1, |rate| rate.1)
}

/// The rate of a multiple of 2.5 Gb/s, or `IBV_RATE_MAX`.
#[border(field)]
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    let found = find(|rate| rate.2, mult).filter(|_| mult > 0);
    found.map_or(RATE_MAX, |rate| rate.0)
}

/// The rate of `mbps` Mb/s, or `IBV_RATE_MAX`.
#[border(field)]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    find(|rate| rate.1, mbps).map_or(RATE_MAX, |rate| rate.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_converts_there_and_back() {
        for rate in 2..=24 {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
            let mult = ibv_rate_to_mult(rate);
            let back = if mult < 0 { RATE_MAX } else { rate };
            assert_eq!(mult_to_ibv_rate(mult), back, "rate {rate}");
        }
        assert_eq!(ibv_rate_to_mbps(16), 103_125);
        assert_eq!(ibv_rate_to_mult(7), 16);
        for none in [-1, 0, 1, 25] {
            assert_eq!(ibv_rate_to_mbps(none), -1);
            assert_eq!(ibv_rate_to_mult(none), -1);
        }
    }
}

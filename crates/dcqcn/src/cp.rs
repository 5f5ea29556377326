//! The congestion point: decides which packets a switch marks.

use thiserror::Error;

/// Random early detection on the instantaneous length of the egress queue of one priority.
///
/// Nothing is marked up to `kmin`, a share `pmax` at `kmax`, a linearly increasing share in
/// between, and everything above `kmax`.
///
/// Ask when a packet **leaves** the queue, with the length of the queue behind it. A mark applied
/// when the packet enters the queue would be as old as the queue is long when the receiver sees it,
/// and that delay makes the control loop oscillate (Zhu et al., CoNEXT 2016).
///
/// ```
/// use ferroce_dcqcn::CongestionPoint;
///
/// let red = CongestionPoint::new(5_000, 200_000, 10_000)?; // 1 %
/// assert!(!red.mark(5_000, 0));
/// assert_eq!(red.probability(102_500), 0.005);
/// assert!(red.mark(200_001, u32::MAX));
/// # Ok::<(), ferroce_dcqcn::RedError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CongestionPoint {
    kmin: u32,
    kmax: u32,
    pmax_ppm: u32,
}

/// The reason why thresholds are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RedError {
    /// The thresholds are in the wrong order.
    #[error("invalid kmin {kmin} bytes: must be at most kmax, {kmax}")]
    Order {
        /// The length where marking begins, bytes.
        kmin: u32,
        /// The length above which everything is marked, bytes.
        kmax: u32,
    },
    /// The share is larger than all packets.
    #[error("invalid pmax {0} ppm: must be 0 to {max}", max = PPM)]
    Share(u32),
}

/// One, in parts per million.
const PPM: u32 = 1_000_000;

impl CongestionPoint {
    /// Creates a congestion point from thresholds in bytes and the share of packets marked at
    /// `kmax` in parts per million. Equal thresholds make a step.
    pub const fn new(kmin: u32, kmax: u32, pmax_ppm: u32) -> Result<Self, RedError> {
        if kmin > kmax {
            return Err(RedError::Order { kmin, kmax });
        }
        if pmax_ppm > PPM {
            return Err(RedError::Share(pmax_ppm));
        }
        Ok(Self {
            kmin,
            kmax,
            pmax_ppm,
        })
    }

    /// Returns the length where marking begins, bytes.
    #[must_use]
    pub const fn kmin(&self) -> u32 {
        self.kmin
    }

    /// Returns the length above which everything is marked, bytes.
    #[must_use]
    pub const fn kmax(&self) -> u32 {
        self.kmax
    }

    /// Returns the share at `kmax`, 0 to 1.
    #[must_use]
    pub fn pmax(&self) -> f64 {
        f64::from(self.pmax_ppm) / f64::from(PPM)
    }

    /// Returns the share at `kmax`, in parts per million.
    #[must_use]
    pub const fn pmax_ppm(&self) -> u32 {
        self.pmax_ppm
    }

    /// Returns whether to mark a packet that leaves `queue_bytes` behind. `random` must be uniform
    /// over its type.
    #[inline]
    #[must_use]
    pub fn mark(&self, queue_bytes: u64, random: u32) -> bool {
        if queue_bytes <= u64::from(self.kmin) {
            return false;
        }
        if queue_bytes > u64::from(self.kmax) {
            return true;
        }
        // random / 2^32 < pmax * (queue - kmin) / (kmax - kmin), without a division.
        let span = u128::from(self.kmax - self.kmin) * u128::from(PPM);
        let excess = u128::from(queue_bytes - u64::from(self.kmin)) * u128::from(self.pmax_ppm);
        u128::from(random) * span < excess << 32
    }

    /// Returns the share of packets marked at this length, 0 to 1.
    #[must_use]
    pub fn probability(&self, queue_bytes: u32) -> f64 {
        if queue_bytes <= self.kmin {
            0.0
        } else if queue_bytes > self.kmax {
            1.0
        } else {
            let excess = f64::from(queue_bytes - self.kmin);
            self.pmax() * excess / f64::from(self.kmax - self.kmin)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_as_frequent_as_the_probability_says() {
        let red = CongestionPoint::new(5_000, 200_000, 200_000).unwrap();
        for queue in [5_000, 5_001, 50_000, 102_500, 199_999, 200_000, 200_001] {
            // Evenly spread values instead of random ones: the count is exact to within one.
            let marked = (0..1_u32 << 16)
                .filter(|i| red.mark(u64::from(queue), i << 16))
                .count();
            let expected = red.probability(queue) * 65_536.0;
            assert!(
                (marked as f64 - expected).abs() <= 1.0,
                "{queue}: {marked} {expected}"
            );
        }
        assert!(red.mark(u64::MAX, u32::MAX));
    }

    #[test]
    fn equal_thresholds_are_a_step() {
        let step = CongestionPoint::new(1_000, 1_000, 0).unwrap();
        assert!(!step.mark(1_000, 0));
        assert!(step.mark(1_001, u32::MAX));
    }

    #[test]
    fn nonsense_is_refused_with_the_range() {
        use std::string::ToString;
        let error = CongestionPoint::new(2, 1, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid kmin 2 bytes: must be at most kmax, 1"
        );
        let error = CongestionPoint::new(1, 2, 1_000_001).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid pmax 1000001 ppm: must be 0 to 1000000"
        );
    }
}

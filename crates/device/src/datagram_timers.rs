//! The interval between CNPs for flows without a connection.

use std::net::IpAddr;

use ferroce_dcqcn::np::CnpTimer;
use ferroce_wire::Qpn;

/// Places for the flows of datagrams, a power of two.
const PLACES: usize = 256;

/// When the last CNP answered the datagrams of a sender's queue pair; each flow has its own
/// interval. Only atomics in C layout, and zeros are valid.
///
/// Its size is fixed, so unsolicited packets cannot grow it. Two flows whose hashes collide share
/// an interval, and get fewer CNPs but never more.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct DatagramTimers([CnpTimer; PLACES]);

impl Default for DatagramTimers {
    fn default() -> Self {
        Self(std::array::from_fn(|_| CnpTimer::default()))
    }
}

impl DatagramTimers {
    /// The timer of what the queue pair `source_qp` at `source` sends.
    pub(crate) fn of(&self, (source, source_qp): (IpAddr, Qpn)) -> &CnpTimer {
        &self.0[place_of(source, source_qp)]
    }
}

fn place_of(source: IpAddr, source_qp: Qpn) -> usize {
    let address = match source {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            // Folding is meant to drop bits.
            (bits ^ bits >> 32 ^ bits >> 64 ^ bits >> 96) as u32
        }
    };
    // Multiplied with the golden ratio, neighbours land far from each other.
    let flow = u64::from(address) << 24 | u64::from(source_qp.value());
    let mixed = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize & (PLACES - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn neighbours_have_places_of_their_own() {
        let first = Qpn::new(0x100);
        let by_qp = (0..100).map(|i| place_of([10, 0, 0, 1].into(), Qpn::new(0x100 + i)));
        assert_eq!(by_qp.collect::<HashSet<_>>().len(), 100);
        let by_v4 = (0..16).map(|i| place_of([10, 0, 0, i].into(), first));
        assert_eq!(by_v4.collect::<HashSet<_>>().len(), 16);
        let by_v6 = (0..16).map(|i| place_of([0xfe80, 0, 0, 0, 0, 0, 0, i].into(), first));
        assert_eq!(by_v6.collect::<HashSet<_>>().len(), 16);
    }
}

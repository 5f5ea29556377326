//! The plan of the congestion demo.

use std::fmt;
use std::net::IpAddr;

use ferroce_dcqcn::presets::hpcc_red;
use ferroce_dcqcn::{CongestionPoint, Params, Rate};
use ferroce_os::Tap;

use super::course::PhaseFigures;
use crate::demo::report::{digits, rounded, wrap};

/// Everything there is to decide.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) flows: usize,
    pub(super) length_ns: u64,
    pub(super) bottleneck: Rate,
    /// Marking by the bottleneck.
    pub(super) red: CongestionPoint,
    /// Of both devices.
    pub(super) params: Params,
    /// Name of the set of parameters.
    pub(super) preset: &'static str,
    /// The sender's and the receiver's.
    pub(super) addresses: [IpAddr; 2],
    pub(super) tap: Option<Tap>,
}

/// Payload of a full packet.
pub(super) const PACKET_PAYLOAD: u32 = 4096;
/// Its length from the BTH to the ICRC, as the bottleneck counts it.
const PACKET_BYTES: u32 = PACKET_PAYLOAD + 12 + 4;
/// Packets that must at least pass the bottleneck. With fewer, single packets decide the figures of
/// a phase.
const PACKETS_MIN: u64 = 1_000;

/// A machine that is fast enough carries this share of what the limits allow: a limit is raised in
/// steps, and a queue pair notices a little later.
const CARRIED_MIN: f64 = 0.9;

/// Marking by a bottleneck of this rate: as in HPCC's simulations, but from two packets on at
/// least, as one packet is always there.
pub(super) fn red(rate: Rate) -> CongestionPoint {
    let red = hpcc_red(rate);
    let kmin = red.kmin().max(2 * PACKET_BYTES);
    CongestionPoint::new(kmin, red.kmax().max(4 * kmin), red.pmax_ppm()).unwrap_or(red)
}

/// The shortest run that a bottleneck of this rate allows, ns.
pub(super) fn shortest_ns(rate: Rate) -> u64 {
    (rate.transmission(PACKET_BYTES) * PACKETS_MIN).as_nanos()
}

impl Plan {
    /// Whether the machine carried what the bottleneck and the limiters allowed in a phase. If not,
    /// the figures of the phase measure the machine.
    pub(super) fn was_carried(&self, figures: &PhaseFigures) -> bool {
        let bottleneck = self.bottleneck.bps() as f64;
        let allowed = figures.allowed_bps.unwrap_or(bottleneck).min(bottleneck);
        self.busy(figures) * bottleneck >= CARRIED_MIN * allowed
    }

    /// How much of the bottleneck a phase's payload took, 0 to 1.
    pub(super) fn busy(&self, figures: &PhaseFigures) -> f64 {
        let headers = f64::from(PACKET_BYTES) / f64::from(PACKET_PAYLOAD);
        figures.sum_bps() * headers / self.bottleneck.bps() as f64
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = self.addresses;
        let kb = |bytes: u32| digits(f64::from(bytes) / 1e3);
        let text = format!(
            "{} from {from} to {to} for {} s through a bottleneck of {}, which marks from {} to {} KB \
             up to {} % of the packets; parameters {}; seed {}",
            if self.flows == 1 {
                "1 QP WRITEs".to_owned()
            } else {
                format!("{} QPs WRITE", self.flows)
            },
            digits(self.length_ns as f64 / 1e9),
            self.bottleneck,
            kb(self.red.kmin()),
            kb(self.red.kmax()),
            rounded(self.red.pmax() * 100.0),
            self.preset,
            self.seed
        );
        writeln!(f, "{}", wrap(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_count_where_the_machine_carried_what_it_might() {
        let bottleneck = Rate::from_mbps(1_000);
        let plan = Plan {
            seed: 1,
            flows: 2,
            length_ns: 1_000_000_000,
            bottleneck,
            red: red(bottleneck),
            params: Params::default(),
            preset: "paper",
            addresses: [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()],
            tap: None,
        };
        let carried = |gbps: f64, allowed_gbps: Option<f64>| {
            plan.was_carried(&PhaseFigures {
                shares_bps: vec![gbps * 5e8; 2],
                allowed_bps: allowed_gbps.map(|gbps| gbps * 1e9),
                jain: 1.0,
                queue_mean: 0.0,
                queue_max: 0,
            })
        };
        // Without limits it is the bottleneck that decides.
        assert!(carried(0.95, None) && !carried(0.3, None));
        assert!(carried(0.95, Some(3.0)) && !carried(0.3, Some(3.0)));
        // Limits that leave the bottleneck idle are congestion control's doing.
        assert!(carried(0.3, Some(0.31)) && !carried(0.2, Some(0.31)));
    }
}

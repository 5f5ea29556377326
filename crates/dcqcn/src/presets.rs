//! Published sets of parameters, each with its source.

use crate::cp::CongestionPoint;
use crate::param::Param;
use crate::params::Params;
use crate::rate::Rate;
use crate::rp::PaperParams;
use crate::switches::{AlphaPrecision, FirstCnp, FullRate, HyperIncrease, Switches, Tie};

/// A published set of an adapter's parameters, as differences from the firmware's defaults, and the
/// algorithm that they were published for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Where it was published, and its purpose.
    pub source: &'static str,
    changes: &'static [(Param, u32)],
    switches: Switches,
}

/// All of them.
pub const PRESETS: &[Preset] = &[FIRMWARE, PAPER, HPCC, BARRE, WAN];

/// The firmware's defaults.
pub const FIRMWARE: Preset = Preset {
    name: "firmware",
    source: "NVIDIA, DCQCN CC parameters",
    changes: &[],
    switches: Switches::FIRMWARE,
};

/// The paper's algorithm, as far as an adapter's parameters allow: its byte counter counts at most
/// 2 MB, where the paper has 10 MB. The minimum and the hyper increase are those of the authors'
/// simulator.
pub const PAPER: Preset = Preset {
    name: "paper",
    source: "DCQCN, SIGCOMM 2015: its authors' model and simulator at 40 Gb/s",
    changes: &[
        (Param::DceTcpG, 1020),
        (Param::DceTcpRtt, 55),
        (Param::ClampTgtRate, 1),
        (Param::TimeReset, 55),
        (Param::Threshold, 5),
        (Param::AiRate, 40),
        (Param::HaiRate, 200),
        (Param::MinRate, 100),
        (Param::CnpModeration, 2),
        (Param::MinTimeBetweenCnps, 50),
    ],
    switches: Switches {
        tie: Tie::CutFirst,
        first_cnp: FirstCnp::CutsAtOnce,
        alpha_precision: AlphaPrecision::Bits26,
        full_rate: FullRate::Keeps,
        ..Switches::FIRMWARE
    },
};

/// The "Mellanox version" of HPCC's simulator at 100 Gb/s. It has no byte counter, and its CNPs are
/// flags on acknowledgements, without an interval.
pub const HPCC: Preset = Preset {
    name: "hpcc",
    source: "alibaba-edu/High-Precision-Congestion-Control, simulation",
    changes: &[
        (Param::DceTcpG, 1020),
        (Param::ByteReset, 0),
        (Param::AiRate, 20),
        (Param::HaiRate, 200),
        (Param::MinRate, 100),
        (Param::CnpModeration, 2),
        (Param::MinTimeBetweenCnps, 0),
    ],
    switches: Switches {
        hyper_increase: HyperIncrease::AfterOneStep,
        alpha_precision: AlphaPrecision::Bits26,
        full_rate: FullRate::Keeps,
        ..Switches::FIRMWARE
    },
};

/// Values within the ranges that raised the bandwidth of collectives on 400 Gb/s adapters: interval
/// of CNPs 0..2, minimum factor 80..98, monitor period 1..4, additive increase 8..20, timer
/// 20..100.
pub const BARRE: Preset = Preset {
    name: "barre",
    source: "Barre, USENIX ATC 2025, table 2: the middle of its ranges",
    changes: &[
        (Param::MinTimeBetweenCnps, 1),
        (Param::MinDecFac, 89),
        (Param::RateReduceMonitorPeriod, 2),
        (Param::AiRate, 14),
        (Param::TimeReset, 60),
    ],
    switches: Switches::FIRMWARE,
};

/// For long round trips.
pub const WAN: Preset = Preset {
    name: "wan",
    source: "GWDG, tuning of RoCE over long distances",
    changes: &[(Param::ClampTgtRate, 1), (Param::TimeReset, 7_000)],
    switches: Switches::FIRMWARE,
};

impl Preset {
    /// Returns the preset with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Returns its differences from the firmware's defaults.
    #[must_use]
    pub const fn changes(&self) -> &'static [(Param, u32)] {
        self.changes
    }

    /// Returns the algorithm that the set was published for.
    #[must_use]
    pub const fn switches(&self) -> Switches {
        self.switches
    }

    /// Returns the whole set.
    #[must_use]
    pub fn params(&self) -> Params {
        let firmware = Params::default();
        self.changes
            .iter()
            .fold(firmware, |params, &(param, value)| {
                params.with(param, value)
            })
    }
}

/// The paper's algorithm as its authors' simulator runs it.
///
/// Source: bobzhuyb/ns3-rdma, configuration. The defaults of [`PaperParams`] are those of their
/// fluid model instead.
pub const PAPER_SIMULATOR: PaperParams = PaperParams {
    inverse_gain: 256,
    alpha_timer_ns: 55_000,
    timer_ns: 60_000,
    bytes: 300_000_000,
    threshold: 5,
    additive: Rate::from_mbps(40),
    hyper: Rate::from_mbps(200),
    min_rate: Rate::from_mbps(100),
    stage_comparison: crate::StageComparison::AfterEventBelow,
    hyper_increase: HyperIncrease::Growing,
};

/// Marking in the paper, for 40 Gb/s: 5 KB, 200 KB, 1 %.
pub const PAPER_RED: CongestionPoint = red(5_000, 200_000, 10_000);

/// Almost the same slope, continued to 2 MB and 10 %, as in the authors' model of many flows.
pub const PAPER_RED_EXTENDED: CongestionPoint = red(5_000, 2_000_000, 100_000);

/// Marking in conweave's simulations at any speed: 100 KB, 400 KB, 20 %.
pub const CONWEAVE_RED: CongestionPoint = red(100_000, 400_000, 200_000);

/// Marking in HPCC's simulations: 100 KB and 400 KB for each 25 Gb/s, 20 %.
#[must_use]
pub fn hpcc_red(line: Rate) -> CongestionPoint {
    let kmin = u32::try_from(line.bps() / 250_000).unwrap_or(u32::MAX / 4);
    red(kmin, kmin.saturating_mul(4), 200_000)
}

const fn red(kmin: u32, kmax: u32, pmax_ppm: u32) -> CongestionPoint {
    match CongestionPoint::new(kmin, kmax, pmax_ppm) {
        Ok(red) => red,
        Err(_) => panic!("a preset's thresholds are in order"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_says_what_it_means() {
        for preset in PRESETS {
            let params = preset.params();
            for &(param, value) in preset.changes() {
                assert_eq!(
                    params.get(param),
                    value,
                    "{}: {param} was clipped",
                    preset.name
                );
                assert_ne!(param.default_value(), value, "{}: {param}", preset.name);
            }
            assert_eq!(Preset::named(preset.name), Some(preset));
        }
    }

    #[test]
    fn hpcc_marks_between_400_kb_and_1600_kb_at_100_gbit() {
        let red = hpcc_red(Rate::from_mbps(100_000));
        assert_eq!((red.kmin(), red.kmax()), (400_000, 1_600_000));
        assert_eq!(hpcc_red(Rate::MAX).pmax(), 0.2, "at any speed");
    }
}

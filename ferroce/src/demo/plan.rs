//! The plan of a demo.

use std::net::IpAddr;

use ferroce_adp::{Profile, QpTimeouts};
use ferroce_device::{BinWidthMode, HistogramConfig, TimeUnit};
use ferroce_os::Tap;

pub(crate) use crate::json::demo::Kind;

/// Everything that is the same for all runs.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Payload bytes of all messages of a run together.
    pub(crate) bytes: u64,
    /// Probability that a packet is lost, in each direction.
    pub(crate) loss: f64,
    pub(crate) blackout: Option<Blackout>,
    pub(crate) qp: QpTimeouts,
    pub(crate) profile: Profile,
    /// The client's and the server's.
    pub(crate) addresses: [IpAddr; 2],
    pub(crate) tap: Option<Tap>,
}

/// A time during which the link is dark.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Blackout {
    pub(crate) start: Start,
    pub(crate) length_ns: u64,
}

/// When a blackout begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Start {
    /// This time after the start of the run.
    Time(u64),
    /// When this percentage of the bytes is done.
    Percent(f64),
}

impl Start {
    /// The default. A share of the work is reached in every run, however fast it is.
    pub(crate) const DEFAULT: Self = Self::Percent(25.0);
}

/// The bins of all histograms: octaves around 1 ms, from 62.5 us to 4.096 s. Every exact timeout of the
/// three policies has its own, coarse timers share that of the next shorter one, and the edges are
/// round.
pub(crate) const BINS: HistogramConfig = HistogramConfig {
    bins: 18,
    mode: BinWidthMode::Double,
    unit: TimeUnit::Nsec,
    bin0_width: 62_500,
    bin1_width: 62_500,
    enabled: true,
    clear_on_read: false,
    vhca_id: None,
};

//! The results of a run.

use ferroce_device::WcStatus;
use ferroce_runtime::Spent;
use hdrhistogram::Histogram;

use super::plan::{BINS, Kind};

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Every message arrived.
    Ok,
    /// A queue pair gave up: `IBV_WC_RETRY_EXC_ERR`.
    RetryExceeded,
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::RetryExceeded => WcStatus::RetryExcErr.name(),
        }
    }
}

/// A timer that ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expiry {
    /// When, since the start of the run.
    pub(crate) at_ns: u64,
    /// After how long.
    pub(crate) wait_ns: u64,
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) policy: Kind,
    pub(crate) outcome: Outcome,
    /// Payload of the messages that are done.
    pub(crate) bytes: u64,
    /// Whether all bytes were right.
    pub(crate) verified: bool,
    /// From the first request to the last completion.
    pub(crate) elapsed_ns: u64,
    /// Request packets sent again.
    pub(crate) retransmissions: u64,
    /// Those of them without a preceding loss, as far as either end can prove it.
    pub(crate) spurious: u64,
    /// How the thread that drives both ends spent its time.
    pub(crate) spent: Spent,
    pub(crate) expiries: Vec<Expiry>,
    /// From posting to completion, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Bytes done in each millisecond of the run.
    pub(crate) bytes_by_ms: Vec<u64>,
    /// Start and end of the blackout, once it is known.
    pub(crate) dark: Option<(u64, u64)>,
    /// For each queue pair with a message in flight during the blackout: how long after its end the
    /// next message completed.
    pub(crate) recoveries_ns: Vec<u64>,
}

impl Figures {
    /// Goodput in Gb/s: bits per nanosecond.
    pub(crate) fn goodput_gbps(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        self.bytes as f64 * 8.0 / self.elapsed_ns as f64
    }

    /// How many timers ran out in each bin.
    pub(crate) fn histogram(&self) -> Vec<u64> {
        let mut counts = vec![0; BINS.bins.into()];
        for expiry in &self.expiries {
            counts[BINS.bin_of(expiry.wait_ns)] += 1;
        }
        counts
    }
}

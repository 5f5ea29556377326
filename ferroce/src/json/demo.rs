//! Documents of `ferroce demo`.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::shared::Bin;

/// How three policies fare on a bad link.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Demo {
    /// What was asked for, defaults included.
    pub(crate) configuration: Configuration,
    /// Why the runs cannot be compared; null if they can.
    pub(crate) too_busy: Option<String>,
    /// One for each policy.
    pub(crate) runs: Vec<Run>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Configuration {
    /// The version of Ferroce.
    pub(crate) ferroce_version: &'static str,
    /// The client's and the server's.
    pub(crate) addresses: [IpAddr; 2],
    /// Payload of each run.
    pub(crate) payload_bytes: u64,
    /// Queue pairs.
    pub(crate) queue_pairs: usize,
    /// Random loss in each direction, 0 to 1.
    pub(crate) loss: f64,
    /// Null if the link never goes dark.
    pub(crate) blackout: Option<Blackout>,
    /// ACK timeout of the queue pairs.
    pub(crate) timeout: u8,
    /// Retry count of the queue pairs.
    pub(crate) retry_cnt: u8,
    /// The name of the profile.
    pub(crate) profile: String,
    /// The profile as the register ROCE_ACCL holds it, in hexadecimal digits.
    pub(crate) profile_payload: String,
    /// Seed of messages, bytes and losses.
    pub(crate) seed: u64,
}

/// When the link goes dark, and for how long: one of the starts is null.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Blackout {
    /// For how long.
    pub(crate) length_ns: u64,
    /// So long after the start of a run.
    pub(crate) start_ns: Option<u64>,
    /// When this percentage of the bytes is done.
    pub(crate) start_percent: Option<f64>,
}

/// How a policy fared.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run {
    /// The policy.
    pub(crate) policy: Kind,
    /// How the run ended.
    pub(crate) outcome: &'static str,
    /// Payload that arrived.
    pub(crate) payload_bytes: u64,
    /// Whether every byte of it was right.
    pub(crate) verified: bool,
    /// How long the run took.
    pub(crate) elapsed_s: f64,
    /// Payload in that time.
    pub(crate) goodput_gbps: f64,
    /// Packets sent again.
    pub(crate) retransmissions: u64,
    /// Retransmission timers that expired.
    pub(crate) timeouts: u64,
    /// Packets sent again for nothing.
    pub(crate) spurious: u64,
    /// How long the run waited for a processor.
    pub(crate) stalled_s: f64,
    /// Of messages, median.
    pub(crate) latency_p50_us: f64,
    /// 99th percentile.
    pub(crate) latency_p99_us: f64,
    /// The longest.
    pub(crate) latency_max_us: f64,
    /// Timeouts, by wait.
    pub(crate) histogram: Vec<Bin>,
}

/// How queue pairs share a bottleneck.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Congestion {
    /// What was asked for, defaults included.
    pub(crate) configuration: CongestionConfiguration,
    /// Why the figures say nothing about congestion control; null if they do.
    pub(crate) too_busy: Option<String>,
    /// Whether every byte that arrived was right.
    pub(crate) verified: bool,
    /// Packets marked by the bottleneck.
    pub(crate) marked: u64,
    /// Packets lost because it was full.
    pub(crate) dropped: u64,
    /// Congestion notifications that slowed senders down.
    pub(crate) cnps: u64,
    /// From one change of who sends to the next.
    pub(crate) phases: Vec<Phase>,
    /// How everything went in between.
    pub(crate) samples: Vec<Sample>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CongestionConfiguration {
    /// The version of Ferroce.
    pub(crate) ferroce_version: &'static str,
    /// The sender's and the receiver's.
    pub(crate) addresses: [IpAddr; 2],
    /// Queue pairs.
    pub(crate) flows: usize,
    /// How long they send.
    pub(crate) time_ns: u64,
    /// The rate of the bottleneck.
    pub(crate) bottleneck_bps: u64,
    /// The set of parameters.
    pub(crate) preset: &'static str,
    /// The length of the queue from which on it marks.
    pub(crate) marks_from_bytes: u32,
    /// The length up to which it marks only some.
    pub(crate) marks_up_to_bytes: u32,
    /// The share that it marks there, 0 to 1.
    pub(crate) marks_at_most: f64,
    /// Seed of everything random.
    pub(crate) seed: u64,
}

/// A time in which the same queue pairs send.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Phase {
    /// When it begins.
    pub(crate) from_s: f64,
    /// When it ends.
    pub(crate) to_s: f64,
    /// Queue pairs that send.
    pub(crate) queue_pairs: usize,
    /// Payload of all of them.
    pub(crate) carried_bps: f64,
    /// Share of the bottleneck that was used, 0 to 1; null if the machine could not carry the traffic.
    pub(crate) busy: Option<f64>,
    /// Payload of each.
    pub(crate) shares_bps: Vec<f64>,
    /// Jain's index of fairness, 0 to 1; null if the machine could not carry the traffic.
    pub(crate) jain: Option<f64>,
    /// Length of the queue, mean.
    pub(crate) queue_mean_bytes: f64,
    /// Length of the queue at most.
    pub(crate) queue_max_bytes: u64,
}

/// How everything was at a time. Lists have an entry for each queue pair.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Sample {
    /// When.
    pub(crate) at_s: f64,
    /// Length of the queue.
    pub(crate) queue_bytes: u64,
    /// Payload that was carried up to now.
    pub(crate) carried_bytes: Vec<u64>,
    /// The rate that congestion control allows; null for any.
    pub(crate) limit_bps: Vec<Option<u64>>,
    /// The estimate of congestion, 0 to 1.
    pub(crate) alpha: Vec<f64>,
}

/// The retransmission policies that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Adaptive retransmission is off.
    Ib,
    /// It is on, and no profile is written.
    Firmware,
    /// A profile is written.
    Profile,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Ib, Self::Firmware, Self::Profile];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::Firmware => "firmware",
            Self::Profile => "profile",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

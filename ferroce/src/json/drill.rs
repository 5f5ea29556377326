//! Documents of `ferroce drill`.

use serde::Serialize;

use super::shared::Named;

/// What a library did while ports, hosts or packets were lost.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Drill {
    /// The library.
    pub(crate) library: &'static str,
    /// Hosts of the ring.
    pub(crate) hosts: u8,
    /// Rails of each host.
    pub(crate) rails: u8,
    /// Whether two rails are the ports of one card.
    pub(crate) two_ports: bool,
    /// Channels from each host to the next.
    pub(crate) channels: u8,
    /// Each run.
    pub(crate) runs: Vec<Run>,
}

/// A run. Times are seconds from the first outage, negative before it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run {
    /// The library's version.
    pub(crate) version: String,
    /// The setting, where there are several.
    pub(crate) setting: String,
    /// The variables that the drill set.
    pub(crate) variables: Named<String>,
    /// The profile of adaptive retransmission, or firmware.
    pub(crate) policy: String,
    /// The plan.
    pub(crate) plan: String,
    /// The longest time for which a channel received nothing.
    pub(crate) standstill_s: f64,
    /// When traffic went on without a rail that had carried some; null if it never did.
    pub(crate) failed_over_s: Option<f64>,
    /// When all rails carried traffic again after that; null if they never did.
    pub(crate) back_s: Option<f64>,
    /// Rails of a host that carried traffic before the outage, of the host with the fewest.
    pub(crate) rails_before: usize,
    /// The same at the end.
    pub(crate) rails_after: usize,
    /// Payload that arrived at all hosts.
    pub(crate) payload_bytes: u64,
    /// Payload that was wrong, in words of 8 bytes.
    pub(crate) wrong_bytes: u64,
    /// How the run ended: survived, failed, stuck or died.
    pub(crate) outcome: &'static str,
    /// When it failed or died.
    pub(crate) ended_s: Option<f64>,
    /// The host that failed or died first.
    pub(crate) failed_host: Option<usize>,
    /// The library's function that failed, or how the process died.
    pub(crate) failed_in: Option<String>,
    /// What the function returned.
    pub(crate) result: Option<i32>,
    /// What was expected; null without an outage to expect something of.
    pub(crate) expected: Option<Expected>,
    /// Whether the run went as expected, with every byte right.
    pub(crate) as_expected: bool,
    /// What happened by the plan, and which calls failed.
    pub(crate) events: Vec<Note>,
    /// The library's messages.
    pub(crate) messages: Vec<Note>,
    /// What each rail did over time.
    pub(crate) rails: Vec<Timeline>,
}

/// What was expected of a run, as `ferroce explain timeout` computes it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Expected {
    /// waits, retries, depends, fails_over or fails.
    pub(crate) outcome: &'static str,
    /// The longest outage that every queue pair survives.
    pub(crate) survives_s: Option<f64>,
    /// When the first queue pair makes its last attempt, counted from the outage; null if never.
    pub(crate) gives_up_first_s: Option<f64>,
    /// When the last one does.
    pub(crate) gives_up_last_s: Option<f64>,
}

/// Something that happened.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Note {
    /// When.
    pub(crate) at_s: f64,
    /// The host; null for what the plan did.
    pub(crate) host: Option<usize>,
    /// What.
    pub(crate) text: String,
    /// How often it was said within a tenth of a second, with other numbers in it.
    pub(crate) times: u32,
}

/// What a rail did. Each value of the lists is about the same span of time.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Timeline {
    /// The rail: h0r1 is the second of the first host.
    pub(crate) rail: String,
    /// The middle of each span.
    pub(crate) at_s: Vec<f64>,
    /// Payload that the rail sent in it.
    pub(crate) gbps: Vec<f64>,
    /// Timers of queue pairs that expired.
    pub(crate) timeouts: Vec<u64>,
    /// Packets that were sent again.
    pub(crate) retransmitted_packets: Vec<u64>,
    /// Queue pairs that gave up.
    pub(crate) failed_queue_pairs: Vec<u64>,
    /// When its port went down and up, in turn.
    pub(crate) port_changes_s: Vec<f64>,
}

//! Documents of `ferroce identify` and `pcap`.

use serde::Serialize;

use super::shared::Named;

/// Which retransmission policies explain what was seen.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Identified {
    /// What was looked at: capture, log or times.
    pub(crate) source: &'static str,
    /// For each queue pair of a capture that sent something again, or the one that the times are of.
    pub(crate) queue_pairs: Vec<Answer>,
    /// What a log says; null for others.
    pub(crate) failures: Option<Failures>,
}

/// The policies that explain the waits of a queue pair.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Answer {
    /// The sender's address; null for given times, as the other three.
    pub(crate) from: Option<String>,
    /// The receiver's address.
    pub(crate) to: Option<String>,
    /// The sender's number, if the capture has it.
    pub(crate) src_qpn: Option<u32>,
    /// The receiver's number.
    pub(crate) dest_qpn: Option<u32>,
    /// How sure the answer is: unknown, undecided, likely or certain.
    pub(crate) sure: &'static str,
    /// Waits that it rests on.
    pub(crate) waits: usize,
    /// Outages that were left out because they say less than the others; with any, no answer is certain.
    pub(crate) outages_left_out: u64,
    /// The waits of each outage.
    pub(crate) waits_ns: Vec<Vec<u64>>,
    /// The policies that explain them.
    pub(crate) policies: Vec<Policy>,
}

/// A policy that explains waits. Ranges are the least and the greatest value.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Policy {
    /// InfiniBand's.
    Ib {
        /// Timeouts that it may have.
        readings: Vec<Reading>,
        /// Retry count.
        retry_cnt: [u8; 2],
    },
    /// That of a card out of the box.
    Firmware {
        /// Its first wait; null if it was not captured.
        first_wait_ns: Option<u64>,
        /// ACK timeout of the queue pair.
        timeout: [u8; 2],
        /// Whether its timer is coarse.
        coarse_timer: bool,
        /// Retry count.
        retry_cnt: [u8; 2],
    },
    /// That of a profile.
    Profile {
        /// The waits that it has.
        steps: Vec<Step>,
        /// The ACK timeout that caps them; null if none does.
        capped_by_timeout: Option<u8>,
    },
}

/// A timeout of InfiniBand's policy.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reading {
    /// ACK timeout of the queue pair.
    pub(crate) timeout: [u8; 2],
    /// How many times the timeout a timer runs.
    pub(crate) multiplier: u8,
    /// Whether the device enforces a minimum; null if both explain it.
    pub(crate) minimum_enforced: Option<bool>,
    /// Whether the first wait is longer than the others.
    pub(crate) longer_first_wait: bool,
}

/// A wait of a profile.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Step {
    /// How long it is.
    pub(crate) wait_ns: u64,
    /// How often it was seen.
    pub(crate) uses: usize,
}

/// What a log says of queue pairs that failed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Failures {
    /// Lines of the log.
    pub(crate) lines: u64,
    /// Lines with the error.
    pub(crate) errors: u64,
    /// Those of them without a time.
    pub(crate) untimed: u64,
    /// When queue pairs failed, by peer.
    pub(crate) failures_ns: Named<Vec<u64>>,
    /// The time between failures that was explained; null if there is none.
    pub(crate) apart_ns: Option<u64>,
    /// How often it was seen.
    pub(crate) repeated: usize,
    /// The policies that fail after that time.
    pub(crate) policies: Vec<Tolerates>,
}

/// A policy that fails after a time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tolerates {
    /// ib or firmware.
    pub(crate) kind: &'static str,
    /// How many times the timeout a timer runs; null for the firmware's.
    pub(crate) multiplier: Option<u8>,
    /// Whether the device enforces a minimum; null if both explain it.
    pub(crate) minimum_enforced: Option<bool>,
    /// ACK timeout of the queue pair, the least and the greatest.
    pub(crate) timeout: [u8; 2],
    /// Retry count.
    pub(crate) retry_cnt: u8,
    /// When it fails.
    pub(crate) total_ns: u64,
}

/// What went wrong in a capture.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Check {
    /// Packets of RoCEv2.
    pub(crate) packets: u64,
    /// From the first to the last.
    pub(crate) duration_ns: u64,
    /// Packets with a right ICRC.
    pub(crate) icrc_right: u64,
    /// Packets with a wrong one.
    pub(crate) icrc_wrong: u64,
    /// Packets that were not captured to their end.
    pub(crate) icrc_unknown: u64,
    /// Whether the file ends in the middle of a packet.
    pub(crate) cut: bool,
    /// What else the capture holds.
    pub(crate) remarks: Vec<String>,
    /// Each direction of each queue pair.
    pub(crate) directions: Vec<Direction>,
}

/// What went one way.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Direction {
    /// The sender's address.
    pub(crate) from: String,
    /// The receiver's address.
    pub(crate) to: String,
    /// The sender's number, if the capture has it.
    pub(crate) src_qpn: Option<u32>,
    /// The receiver's number.
    pub(crate) dest_qpn: u32,
    /// RC, UC, UD, XRC or CNP.
    pub(crate) service: &'static str,
    /// Packets.
    pub(crate) packets: u64,
    /// Their payload.
    pub(crate) payload_bytes: u64,
    /// Packets that were captured twice.
    pub(crate) captured_twice: u64,
    /// Packets with a wrong ICRC.
    pub(crate) icrc_wrong: u64,
    /// Packets that a switch marked for congestion.
    pub(crate) congestion_marked: u64,
    /// Congestion notifications.
    pub(crate) cnps: u64,
    /// When the first packet was captured, as the capture has it.
    pub(crate) first_ns: u64,
    /// When the last one was.
    pub(crate) last_ns: u64,
    /// The path's MTU, if packets tell.
    pub(crate) mtu_bytes: Option<u32>,
    /// Packets of requests.
    pub(crate) requests: u64,
    /// Those that were sent again.
    pub(crate) repeated: u64,
    /// How often the sender went back.
    pub(crate) rounds: u64,
    /// Of these, after a sequence NAK.
    pub(crate) rounds_after_nak: u64,
    /// Of these, after an RNR NAK.
    pub(crate) rounds_after_rnr_nak: u64,
    /// Packets that are missing.
    pub(crate) missing: u64,
    /// Of these, those that came later.
    pub(crate) came_later: u64,
    /// Opcodes that cannot follow the one before.
    pub(crate) out_of_sequence: u64,
    /// Packets at the end that were not acknowledged; null if nothing tells.
    pub(crate) unanswered: Option<u32>,
    /// Packets of responses.
    pub(crate) responses: u64,
    /// Sequence NAKs.
    pub(crate) sequence_naks: u64,
    /// RNR NAKs.
    pub(crate) rnr_naks: u64,
    /// NAKs that end a connection.
    pub(crate) fatal_naks: u64,
    /// The waits of each outage.
    pub(crate) waits_ns: Vec<Vec<u64>>,
    /// What went wrong, in words.
    pub(crate) findings: Vec<String>,
}

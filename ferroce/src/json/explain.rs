//! Documents of `ferroce explain`.

use std::net::IpAddr;

use ferroce_designer::figures::EnduranceJson;
use serde::Serialize;

use super::shared::{QueuePair, Wait};

/// The chain from a setting to the time until failure.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Timeout {
    /// The application that asks; null without --from.
    pub(crate) from: Option<Application>,
    /// Attributes of the queue pair.
    pub(crate) queue_pair: QueuePair,
    /// The smallest timeout that the device enforces; null when that is disabled.
    pub(crate) minimum_timeout: Option<u8>,
    /// The timeout under that.
    pub(crate) effective_timeout: u8,
    /// How long that is; null if the timer is off.
    pub(crate) ack_timeout_ns: Option<u64>,
    /// ib, firmware or profile.
    pub(crate) policy: &'static str,
    /// Which outages are tolerated, as by a device with coarse timers, whichever wait is drawn
    /// first; null if the timer is off.
    pub(crate) answer: Option<EnduranceJson>,
    /// What manuals say: retry_cnt times the timeout as it was asked for.
    pub(crate) nominal_ns: Option<u64>,
    /// What plain InfiniBand takes, without a minimum: that many retries, and the first wait.
    pub(crate) ib_ns: Option<u64>,
    /// What a device out of the box takes at most.
    pub(crate) device_ns: Option<u64>,
    /// What a device out of the box takes at least: its timer is coarse.
    pub(crate) device_min_ns: Option<u64>,
    /// What the policy takes, to the nanosecond; null when it never ends.
    pub(crate) exact_ns: Option<u64>,
    /// The timers, one after the other.
    pub(crate) waits: Vec<Wait>,
    /// What else is worth knowing.
    pub(crate) remarks: Vec<Remark>,
}

/// An application and its settings.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Application {
    /// Its name, as --from has it.
    pub(crate) app: &'static str,
    /// Its settings.
    pub(crate) settings: Vec<Setting>,
}

/// A setting, given or not.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Setting {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: String,
    /// given on the command line, environment, default, flag where a flag stands for it, or unset.
    pub(crate) source: &'static str,
}

/// Something worth knowing.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Remark {
    /// does_not_fit, no_effect, warning or note.
    pub(crate) kind: &'static str,
    /// What it is.
    pub(crate) text: String,
}

/// What to set to survive outages.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Survive {
    /// Outages up to this length are to be survived.
    pub(crate) survive_ns: u64,
    /// A dead peer is to be noticed within this; null for any time.
    pub(crate) detect_within_ns: Option<u64>,
    /// What to set, the best first.
    pub(crate) proposals: Vec<Proposal>,
}

/// Something to set.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Proposal {
    /// What the application sets for these attributes.
    pub(crate) settings: String,
    /// Attributes of the queue pair.
    #[serde(flatten)]
    pub(crate) queue_pair: QueuePair,
    /// The built-in profile; null is the policy in question.
    pub(crate) profile: Option<&'static str>,
    /// A total that the built-in profile does not have; null for its own.
    pub(crate) retx_total_timeout: Option<u8>,
    /// Which outages are survived with that.
    pub(crate) endurance: EnduranceJson,
}

/// Causes of error completions.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Causes {
    /// Each of them.
    pub(crate) causes: Vec<Cause>,
}

/// A cause of an error completion.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cause {
    /// The completion's status.
    pub(crate) status: u32,
    /// Its name in verbs.
    pub(crate) name: &'static str,
    /// Its vendor_err.
    pub(crate) vendor_err: u32,
    /// The cause in short.
    pub(crate) summary: &'static str,
    /// The cause.
    pub(crate) cause: &'static str,
    /// What is seen at the requester.
    pub(crate) requester: Signs,
    /// What is seen at the responder.
    pub(crate) responder: Signs,
    /// Where to look next.
    pub(crate) next: Vec<&'static str>,
}

/// What is seen at one of two devices.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Signs {
    /// Counters that rise.
    pub(crate) counters: Vec<Rise>,
    /// What programs see.
    pub(crate) shows: &'static str,
}

/// A counter that rises.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rise {
    /// Its name.
    pub(crate) name: &'static str,
    /// By how much.
    pub(crate) rises: &'static str,
}

/// The last errors of a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Seen {
    /// The device.
    pub(crate) device: String,
    /// How many errors there have been; only the last ones are kept.
    pub(crate) total: u64,
    /// The side of the last error that the device is, requester or responder.
    pub(crate) side: Option<&'static str>,
    /// The last ones, oldest first.
    pub(crate) errors: Vec<SeenError>,
    /// The cause of the last error; null if it is not known.
    pub(crate) cause: Option<Cause>,
    /// Counters of the device that rise with that cause.
    pub(crate) counters: Vec<Value>,
    /// The peer of the last error, if that is a device of this user.
    pub(crate) peer_device: Option<String>,
    /// Counters of that which rise with the cause.
    pub(crate) peer_counters: Vec<Value>,
}

/// An error completion.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SeenError {
    /// When, since 1970.
    pub(crate) unix_ns: u64,
    /// The queue pair.
    pub(crate) qpn: u32,
    /// The peer's address.
    pub(crate) peer: Option<IpAddr>,
    /// The peer's queue pair.
    pub(crate) peer_qpn: Option<u32>,
    /// The wr_id of the request.
    pub(crate) wr_id: u64,
    /// The name of the request in verbs.
    pub(crate) request: &'static str,
    /// The completion's status.
    pub(crate) status: u32,
    /// Its name in verbs.
    pub(crate) name: &'static str,
    /// Its vendor_err.
    pub(crate) vendor_err: u32,
    /// The ACK timeout of the queue pair, a code.
    pub(crate) timeout: Option<u8>,
    /// Its retry count.
    pub(crate) retry_cnt: Option<u8>,
    /// How long it waited for an answer, if that is why it failed.
    pub(crate) waited_ns: Option<u64>,
    /// Requests that were flushed behind it.
    pub(crate) flushed: u32,
}

/// A counter.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Value {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it is now.
    pub(crate) value: u64,
}

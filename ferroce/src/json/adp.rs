//! Documents of `ferroce adp`.

use ferroce_designer::figures::EnduranceJson;
use serde::Serialize;

use super::shared::{Named, QueuePair, Wait};

/// What is wrong or suspicious about a profile, and which outages QPs survive with it.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Check {
    /// Whether a device would take the profile.
    pub(crate) valid: bool,
    /// Whether jobs, or their network, would die of it.
    pub(crate) deadly: bool,
    /// Why it is not valid.
    pub(crate) violations: Vec<Violation>,
    /// What is suspicious.
    pub(crate) warnings: Vec<Finding>,
    /// What is worth knowing.
    pub(crate) notes: Vec<Finding>,
    /// Why the text is not a profile at all.
    pub(crate) problems: Vec<Problem>,
    /// How QPs fare with the profile.
    pub(crate) queue_pairs: Vec<Fare>,
}

/// A value that a device would refuse.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Violation {
    /// The field of the profile.
    pub(crate) field: String,
    /// Its value.
    pub(crate) value: i64,
    /// What is allowed.
    pub(crate) allowed: String,
    /// What to write instead.
    pub(crate) instead: String,
    /// Where in the file, counted from 1.
    pub(crate) line: Option<usize>,
    /// The decision behind the rule, where the behaviour of cards is not documented.
    pub(crate) decision: Option<&'static str>,
}

/// A value that a device would take.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Finding {
    /// The field of the profile.
    pub(crate) field: String,
    /// Its value.
    pub(crate) value: i64,
    /// What comes of it.
    pub(crate) text: String,
    /// What to write instead.
    pub(crate) instead: String,
    /// Whether jobs, or their network, would die of it.
    pub(crate) deadly: bool,
    /// Where in the file, counted from 1.
    pub(crate) line: Option<usize>,
    /// The decision behind the rule, where the behaviour of cards is not documented.
    pub(crate) decision: Option<&'static str>,
}

/// Something because of which a text is not a profile.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Problem {
    /// Where, counted from 1.
    pub(crate) line: Option<usize>,
    /// What is wrong, and what to write.
    pub(crate) text: String,
}

impl From<ferroce_designer::findings::Problem> for Problem {
    fn from(it: ferroce_designer::findings::Problem) -> Self {
        Self {
            line: it.line,
            text: it.text,
        }
    }
}

/// How a QP fares.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fare {
    /// Its attributes.
    #[serde(flatten)]
    pub(crate) qp: QueuePair,
    /// Null if its timer is off.
    pub(crate) endurance: Option<EnduranceJson>,
}

/// What a QP does when its peer is silent.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Trace {
    /// Its attributes.
    pub(crate) queue_pair: QueuePair,
    /// Its ACK timeout under the minimum that the device enforces; null if the timer is off.
    pub(crate) ack_timeout_ns: Option<u64>,
    /// When it gives up, counted from the first send; null for never.
    pub(crate) total_ns: Option<u64>,
    /// The same with the coarse timers of a card, at least.
    pub(crate) shortest_total_ns: Option<u64>,
    /// Its timers, one after the other.
    pub(crate) waits: Vec<Wait>,
    /// Whether there are more waits than --max.
    pub(crate) cut: bool,
}

/// The states of a QP after given events.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Events {
    /// Its attributes.
    pub(crate) queue_pair: QueuePair,
    /// After each event.
    pub(crate) states: Vec<State>,
}

/// The state of a QP after an event.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct State {
    /// The event: t, the timer expired, or a, forward progress.
    pub(crate) event: &'static str,
    /// Doublings: of a profile's time_base under it, else of 4.096 us.
    pub(crate) exponent: u16,
    /// The timeout range of the profile in use; null with the initial timeout or without a profile.
    pub(crate) range: Option<u8>,
    /// How long the timer runs now; null if none does.
    pub(crate) timer_ns: Option<u64>,
    /// The status of the completion, once the QP has failed.
    pub(crate) error: Option<&'static str>,
}

/// The ladder of timeouts that is drawn.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Plot {
    /// What stands above the picture.
    pub(crate) title: String,
    /// Attributes of the QP.
    pub(crate) queue_pair: QueuePair,
    /// What caps the waits under a profile.
    pub(crate) ack_timeout_ns: u64,
    /// When the QP gives up, counted from the first send; null for never, or at the first expiry.
    pub(crate) total_ns: Option<u64>,
    /// The steps.
    pub(crate) waits: Vec<Wait>,
    /// The timeout ranges of the profile; none without one.
    pub(crate) ranges: Vec<Range>,
}

/// A timeout range of a profile.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Range {
    /// Its number.
    pub(crate) range: usize,
    /// Its shortest timeout.
    pub(crate) low_ns: u64,
    /// Its longest.
    pub(crate) high_ns: u64,
}

/// The payload of ROCE_ACCL that writes a profile.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Encoded {
    /// The register.
    pub(crate) register: &'static str,
    /// Its number.
    pub(crate) register_id: u16,
    /// Its bytes in hexadecimal digits.
    pub(crate) payload: String,
}

/// A profile, read from another form of it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Decoded {
    /// Its fields, as ROCE_ACCL has them.
    pub(crate) profile: Named<u32>,
    /// The profile as a profile file.
    pub(crate) toml: String,
    /// What was read and is not in the profile.
    pub(crate) remarks: Vec<String>,
}

/// The command that writes a profile.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Emitted {
    /// The tool that runs it, as --tool has it.
    pub(crate) tool: String,
    /// The device, as that tool names it.
    pub(crate) device: String,
    /// Whether it goes back to the firmware's own timeouts.
    pub(crate) undo: bool,
    /// The command, for a shell.
    pub(crate) command: String,
}

/// How a device retransmits.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Show {
    /// The device.
    pub(crate) device: String,
    /// Its policy: ib, firmware or profile.
    pub(crate) policy: &'static str,
    /// Whether adaptive retransmission is on: roce_adp_retrans_en.
    pub(crate) adaptive: bool,
    /// 0 for the firmware's own timeouts, 1 for the profile.
    pub(crate) profile_id: u32,
    /// Whether ACK timeouts below the minimum are taken as they are.
    pub(crate) min_ack_timeout_limit_disabled: bool,
    /// The fields of the profile; null without one.
    pub(crate) profile: Option<Named<u32>>,
}

/// The built-in profiles.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Profiles {
    /// Each of them.
    pub(crate) profiles: Vec<BuiltIn>,
}

/// A built-in profile.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BuiltIn {
    /// Its name, which stands for a file wherever one is taken.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) about: &'static str,
}

/// How policies fare in outages.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Compared {
    /// Everything that the figures depend on.
    pub(crate) configuration: Configuration,
    /// How each policy fared.
    pub(crate) policies: Vec<Fared>,
}

/// Everything that a comparison depends on; what does not count in it is null.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Configuration {
    /// The version of Ferroce.
    pub(crate) ferroce_version: &'static str,
    /// The outages, as --outages has them.
    pub(crate) outages: Option<String>,
    /// The scenario that the policies were compared on.
    pub(crate) scenario: Option<String>,
    /// Tells scenarios apart that differ in anything but their seed.
    pub(crate) scenario_hash: Option<String>,
    /// Random loss in each direction, 0 to 1.
    pub(crate) loss: Option<f64>,
    /// Round trips, as --rtt has them.
    pub(crate) round_trip: Option<String>,
    /// Messages after each outage.
    pub(crate) messages: Option<u32>,
    /// ACK timeout of the QP; null for the scenario's.
    pub(crate) timeout: Option<u8>,
    /// Retry count of the QP; null for the scenario's.
    pub(crate) retry_cnt: Option<u8>,
    /// Whether ACK timeouts below the minimum are taken as they are.
    pub(crate) min_ack_timeout_limit_disabled: bool,
    /// Outages, QPs that live through flaps, or runs of the scenario.
    pub(crate) count: usize,
    /// Seed of everything random.
    pub(crate) seed: u64,
}

/// How a policy fared. What dies has lost null.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fared {
    /// The name of the policy, or the file of its profile.
    pub(crate) policy: String,
    /// The share of jobs that survived, 0 to 1.
    pub(crate) survived: f64,
    /// Time without progress, median.
    pub(crate) lost_p50_ns: Option<u64>,
    /// 99th percentile.
    pub(crate) lost_p99_ns: Option<u64>,
    /// Mean of those that survived.
    pub(crate) lost_mean_ns: Option<u64>,
    /// From the link's return to the next retransmission, median.
    pub(crate) resumed_after_p50_ns: Option<u64>,
    /// 99th percentile.
    pub(crate) resumed_after_p99_ns: Option<u64>,
    /// Packets sent again, mean.
    pub(crate) retransmissions: f64,
    /// Packets sent again for nothing, mean.
    pub(crate) spurious: f64,
    /// The share of those in all packets, 0 to 1.
    pub(crate) spurious_share: f64,
}

/// The profile that was fitted to outages.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fit {
    /// Everything that the search depends on.
    pub(crate) configuration: FitConfiguration,
    /// What was found.
    pub(crate) profile: Fitted,
    /// How it and other policies fare on other outages: the fitted profile first.
    pub(crate) policies: Vec<PolicyCost>,
}

/// Everything that a search depends on.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FitConfiguration {
    /// The version of Ferroce.
    pub(crate) ferroce_version: &'static str,
    /// The outages, as --outages has them.
    pub(crate) outages: String,
    /// Random loss in each direction, 0 to 1.
    pub(crate) loss: f64,
    /// Round trips, as --rtt has them.
    pub(crate) round_trip: String,
    /// ACK timeout of the QP.
    pub(crate) timeout: u8,
    /// Retry count of the QP.
    pub(crate) retry_cnt: u8,
    /// Whether ACK timeouts below the minimum are taken as they are.
    pub(crate) min_ack_timeout_limit_disabled: bool,
    /// Outages up to this length are to be survived.
    pub(crate) survive_ns: Option<u64>,
    /// A dead peer is to be noticed within this.
    pub(crate) detect_within_ns: Option<u64>,
    /// The share of spurious packets that is allowed, 0 to 1.
    pub(crate) spurious_below: f64,
    /// What the death of a job counts for.
    pub(crate) death_costs_ns: u64,
    /// Outages that are fitted to.
    pub(crate) count: u32,
    /// Rounds of the search.
    pub(crate) rounds: u32,
    /// Steps of each.
    pub(crate) steps: u32,
    /// Seed of the search and of its outages.
    pub(crate) seed: u64,
    /// Other outages, which the figures of policies are of.
    pub(crate) evidence_count: u32,
    /// Seed of those.
    pub(crate) evidence_seed: u64,
}

/// A fitted profile.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fitted {
    /// The profile as a profile file.
    pub(crate) toml: String,
    /// The command that writes it into a card.
    pub(crate) command: String,
    /// The mean time lost for each outage that it was fitted to, deaths included.
    pub(crate) cost_ns: u64,
    /// Which outages it survives.
    pub(crate) endurance: Option<EnduranceJson>,
}

/// How a policy fared, and what that cost.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PolicyCost {
    /// The mean time lost for each outage, deaths included.
    pub(crate) cost_ns: u64,
    /// Whether it keeps within what was asked for.
    pub(crate) meets_constraints: bool,
    /// How it fared.
    #[serde(flatten)]
    pub(crate) fared: Fared,
}

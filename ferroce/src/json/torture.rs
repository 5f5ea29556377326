//! Documents of `ferroce torture`.

use serde::Serialize;

/// What scripts did to devices, and which rules they broke.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tortured {
    /// Scripts that were played.
    pub(crate) seeds: u64,
    /// Lines of scripts that were executed.
    pub(crate) operations: u64,
    /// Packets that devices sent.
    pub(crate) packets: u64,
    /// Rules that were broken, at most one for each seed; none if every rule held.
    pub(crate) findings: Vec<Finding>,
    /// Lines that were executed, by their verbs.
    pub(crate) verbs: Vec<Verb>,
    /// Work requests that ended, by how.
    pub(crate) work_requests: Vec<Outcome>,
    /// How connections ended that were asked for, by way of the connection managers.
    pub(crate) connections: Vec<Outcome>,
    /// Calls and completions that rules of `ferroce fault` acted on.
    pub(crate) faults_injected: u64,
    /// Pairs of a queue pair's state and an event, which were tried or not.
    pub(crate) states_x_events: Pairs,
}

/// A rule that was broken.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Finding {
    /// The seed.
    pub(crate) seed: u64,
    /// The rule, as docs/torture.md names it; `hang` if a call of the device has not returned.
    pub(crate) rule: String,
    /// What happened.
    pub(crate) what: String,
    /// The file of the script, if it is in one.
    pub(crate) file: Option<String>,
    /// The script, shortened if it was one of a seed.
    pub(crate) script: String,
}

/// How often a verb was executed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Verb {
    /// The verb of the script.
    pub(crate) verb: &'static str,
    /// How many lines.
    pub(crate) count: u64,
}

/// How work requests or connections ended.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Outcome {
    /// The name of the completion's status, or what else happened.
    pub(crate) outcome: &'static str,
    /// How many.
    pub(crate) count: u64,
}

/// Pairs of states and events.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Pairs {
    /// How many were tried.
    pub(crate) reached: usize,
    /// How many there are.
    pub(crate) all: usize,
    /// Those that were not.
    pub(crate) never: Vec<Never>,
}

/// Events that a queue pair in a state never met.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Never {
    /// The type and state of the queue pair.
    pub(crate) state: String,
    /// The events.
    pub(crate) events: Vec<&'static str>,
}

/// What happened in rounds of programs on this host, and which rules were broken.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rounds {
    /// Rounds that were played.
    pub(crate) seeds: u64,
    /// Rules that were broken, at most one for each seed; none if every rule held.
    pub(crate) findings: Vec<RoundFinding>,
    /// What happened.
    pub(crate) happened: Vec<Outcome>,
}

/// A rule that was broken in a round.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RoundFinding {
    /// The seed.
    pub(crate) seed: u64,
    /// The rule, as docs/torture.md names it.
    pub(crate) rule: String,
    /// What happened.
    pub(crate) what: String,
    /// What was done in the round before, with the time.
    pub(crate) log: Vec<String>,
}

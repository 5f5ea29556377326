//! Documents of `ferroce bench`.

use serde::Serialize;

/// What was measured on this machine.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bench {
    /// The version of Ferroce.
    pub(crate) ferroce_version: &'static str,
    /// Rounds; everything takes its turn once in each.
    pub(crate) rounds: u32,
    /// Length of each measurement.
    pub(crate) measurement_s: f64,
    /// What drives the devices: `threads` of one process, or the processes of `perftest`.
    pub(crate) driver: &'static str,
    /// One for each workload.
    pub(crate) workloads: Vec<Workload>,
    /// One for each ratio that has a goal.
    pub(crate) goals: Vec<Goal>,
    /// What was seen of other programs.
    pub(crate) noise: Noise,
    /// Programs that have no figures.
    pub(crate) absent: Vec<Absent>,
}

/// A workload and its figures.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Workload {
    /// Its name.
    pub(crate) workload: String,
    /// Length of a message.
    pub(crate) message_bytes: usize,
    /// The unit of its figures: `Gb/s` of payload, `M/s` (million messages a second), or `us` one way.
    pub(crate) unit: &'static str,
    /// One for each program that has been measured.
    pub(crate) figures: Vec<Figure>,
}

/// What a program reached.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Figure {
    /// The program: `bare_udp`, `ferroce_udp`, `bare_ring`, `ferroce_shm`, `iperf3`, `ucx_tcp`.
    pub(crate) of: &'static str,
    /// The median over the rounds.
    pub(crate) median: f64,
    /// The figure of each round.
    pub(crate) values: Vec<f64>,
}

/// A ratio, and whether it reaches its goal.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Goal {
    /// The workload.
    pub(crate) workload: String,
    /// The program.
    pub(crate) of: &'static str,
    /// The workload that it is compared with.
    pub(crate) beside_workload: String,
    /// The program that it is compared with.
    pub(crate) beside: &'static str,
    /// The least that the ratio is to be; null if a limit.
    pub(crate) at_least: Option<f64>,
    /// The most that it is to be; null if a least value.
    pub(crate) at_most: Option<f64>,
    /// The median of the ratios within each round.
    pub(crate) ratio: f64,
    /// Where the median of very many rounds lies with 90 % confidence; of fewer than 5 rounds, the
    /// smallest ratio.
    pub(crate) low: f64,
    /// The other end; of fewer than 5 rounds, the largest ratio.
    pub(crate) high: f64,
    /// What can be said.
    pub(crate) verdict: Verdict,
}

/// What can be said of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// It reaches the goal.
    Met,
    /// It does not.
    Missed,
    /// The interval contains the goal, or would if other programs had taken less or more time, or there
    /// were fewer than 5 rounds.
    CannotTell,
}

/// What was seen of other programs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Noise {
    /// Idle processors before, between and after the rounds, on average; null if the system does not say.
    pub(crate) idle_processors: Option<f64>,
    /// The share of its time that a thread of a bare program waited for a processor, 0 to 1.
    pub(crate) waited: f64,
    /// How far apart the figures of a bare program are in different rounds, as a share of their median.
    pub(crate) spread: f64,
    /// Why the machine is too noisy for verdicts that this may turn; empty if it is not.
    pub(crate) reasons: Vec<String>,
}

/// A program without figures.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Absent {
    /// The program, as `of` names it.
    pub(crate) program: &'static str,
    /// Why, and what to do.
    pub(crate) reason: String,
}

//! Documents of `ferroce sim` and `sweep`. The summary of a run is the simulator's own.

use serde::Serialize;

use super::shared::Named;

/// The built-in scenarios.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct List {
    /// Each of them.
    pub(crate) scenarios: Vec<Scenario>,
}

/// A built-in scenario.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Scenario {
    /// Its name, which stands for a file wherever one is taken.
    pub(crate) name: &'static str,
    /// Its title.
    pub(crate) title: String,
    /// What it answers.
    pub(crate) question: String,
}

/// What is wrong or suspicious about a scenario.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Check {
    /// Whether it can be run.
    pub(crate) valid: bool,
    /// Why it cannot.
    pub(crate) errors: Vec<Finding>,
    /// What is suspicious.
    pub(crate) warnings: Vec<Finding>,
    /// What running it takes; null if it cannot be run.
    pub(crate) estimate: Option<Estimate>,
}

/// Something about a scenario.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Finding {
    /// Where in the file, counted from 1.
    pub(crate) line: Option<usize>,
    /// What it is.
    pub(crate) text: String,
}

/// What running a scenario takes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Estimate {
    /// Frames that cross a cable, about.
    pub(crate) hops: u64,
    /// What one thread takes, about, on the machine of the project's benchmarks.
    pub(crate) run_ns: u64,
    /// Memory, about.
    pub(crate) memory_bytes: u64,
    /// Results, at most.
    pub(crate) result_bytes: u64,
}

/// Two runs side by side.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Compared {
    /// The first run.
    pub(crate) a: Compare,
    /// The second run.
    pub(crate) b: Compare,
    /// Keys of the scenario files whose values differ; none if the file of one of them is not there.
    pub(crate) keys: Vec<Difference<String>>,
    /// Every figure of both, equal or not.
    pub(crate) figures: Vec<Difference<f64>>,
}

/// One of two runs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Compare {
    /// Its directory or file.
    pub(crate) path: String,
    /// Its title.
    pub(crate) title: String,
    /// The version of Ferroce that made it.
    pub(crate) ferroce_version: String,
    /// The hash of its scenario.
    pub(crate) scenario_hash: String,
    /// Its seed.
    pub(crate) seed: u64,
    /// How each job ended: `finished`, `aborted` with the reason, or `unfinished` with the share delivered.
    pub(crate) outcomes: Named<String>,
}

/// Something that both runs can have.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Difference<T> {
    /// The path of a key, or the name of a figure with its unit, behind a job's or a link's and a colon.
    pub(crate) name: String,
    /// In the first run; null if it has none.
    pub(crate) a: Option<T>,
    /// In the second run.
    pub(crate) b: Option<T>,
}

/// The points of a sweep.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Plan {
    /// Its title.
    pub(crate) title: String,
    /// The version of Ferroce that made the plan.
    pub(crate) ferroce_version: String,
    /// How many points there are.
    pub(crate) points: usize,
    /// Seeds of each combination.
    pub(crate) seeds: u64,
    /// Each combination of values.
    pub(crate) combinations: Vec<Combination>,
    /// How many points each shard has; null without --shards.
    pub(crate) shards: Option<Vec<usize>>,
}

/// A combination of values.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Combination {
    /// The value of each axis.
    pub(crate) values: Named<String>,
    /// The names of its points.
    pub(crate) points: Vec<String>,
}

/// Points that were run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ran {
    /// The shard: 0/8 is the first of eight.
    pub(crate) shard: String,
    /// Points that were run.
    pub(crate) done: usize,
    /// Points that had results.
    pub(crate) skipped: usize,
    /// Points that are left. If there are any, the command fails.
    pub(crate) left: usize,
    /// How long it took.
    pub(crate) elapsed_s: f64,
}

/// The results of a sweep.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Collected {
    /// Its title.
    pub(crate) title: String,
    /// What it takes for granted.
    pub(crate) assumption: String,
    /// The version of Ferroce that made the plan.
    pub(crate) ferroce_version: String,
    /// How many points there are.
    pub(crate) points: usize,
    /// Points without results.
    pub(crate) missing: Vec<String>,
    /// Results that were there more than once.
    pub(crate) duplicates: u64,
    /// Points of which there are results that differ.
    pub(crate) unequal: Vec<String>,
    /// Results of points that the plan does not have.
    pub(crate) foreign: u64,
    /// Files that are damaged.
    pub(crate) damaged: usize,
    /// What each combination gave.
    pub(crate) combinations: Vec<Group>,
}

/// What a combination of values gave.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Group {
    /// The value of each axis.
    pub(crate) values: Named<String>,
    /// Points that have results.
    pub(crate) runs: u64,
    /// Points that have none.
    pub(crate) missing: u64,
    /// Points in which all jobs survived.
    pub(crate) survived: u64,
    /// The share of these, 0 to 1.
    pub(crate) survival: Option<Interval>,
    /// The mean of each figure; null without samples.
    pub(crate) means: Named<Option<Interval>>,
}

/// A value and the interval that holds the true one with a probability of 95 %.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Interval {
    /// The value.
    pub(crate) value: f64,
    /// Where the interval begins; null if nowhere.
    pub(crate) low: Option<f64>,
    /// Where it ends; null if nowhere.
    pub(crate) high: Option<f64>,
    /// Number of samples.
    pub(crate) samples: u64,
}

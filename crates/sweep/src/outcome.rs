//! The result of a run, in numbers that are the same at any time and on any machine.

use ferroce_device::{Counter, Mtu};
use ferroce_fabric::topology::NodeId;
use ferroce_fabric::{Simulation, Standing as Ended, Time};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{self, Slowdown};
use serde::{Deserialize, Serialize};

/// Events between two checks of whether to continue.
const EVENTS: u64 = 200_000;

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Every job had finished or failed.
    Over,
    /// The scenario's duration had ended.
    TimeUp,
    /// Jobs were left, but no further event was scheduled.
    Stuck,
    /// The run failed; [`Outcome::error`] says why.
    Failed,
}

/// Takes a simulation at its end, or says why it cannot.
pub(crate) type Keep<'a> = &'a dyn Fn(&Scenario, &Simulation, Ended) -> Result<(), String>;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Outcome {
    /// How it ended.
    pub standing: Standing,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Every message of every job arrived, and no job failed.
    pub survived: bool,
    /// When the last job finished, in picoseconds, if all survived.
    pub ended_ps: Option<u64>,
    /// When the first job failed, in picoseconds.
    pub died_ps: Option<u64>,
    /// Messages.
    pub transfers: u64,
    /// Messages that arrived.
    pub delivered: u64,
    /// Queue pairs that failed.
    pub failures: u64,
    /// Retransmission timers that expired.
    pub timeouts: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Those of them that their receivers had executed, although no answer was lost.
    pub spurious: u64,
    /// CNPs sent.
    pub cnps: u64,
    /// Packets that switches dropped, for lack of room or in a storm of pauses.
    pub dropped: u64,
    /// Packets that links lost, or that were sent to one that was down.
    pub lost: u64,
    /// Packets that switches marked.
    pub marked: u64,
    /// PFC frames.
    pub pauses: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Payload that arrived, bytes.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// How many times longer than in an empty fabric messages that arrived took, in thousandths.
    #[serde(default)]
    pub slowdown: Option<SlowdownMilli>,
}

/// Quantiles of slowdowns, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct SlowdownMilli {
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
}

impl From<Slowdown> for SlowdownMilli {
    fn from(it: Slowdown) -> Self {
        let [p50, p95, p99] = [it.p50, it.p95, it.p99].map(|it| (it * 1000.0).round() as u64);
        Self { p50, p95, p99 }
    }
}

/// A number that reports show for each run.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in tables, with its unit.
    pub name: &'static str,
    /// What it is, as a title in lower case.
    pub doc: &'static str,
    /// The least that it can be.
    pub least: f64,
    /// Computes it from a run and the run it is compared with; `None` if it does not apply.
    pub of: fn(&Outcome, Option<&Outcome>) -> Option<f64>,
}

const PS_PER_MS: f64 = 1e9;
/// Gb/s of a byte in a picosecond.
const GBPS_OF_BYTE_PER_PS: f64 = 8e3;

/// A count, by its name.
macro_rules! count {
    ($name:ident, $doc:literal) => {
        Metric {
            name: stringify!($name),
            doc: $doc,
            least: 0.0,
            of: |it, _| Some(it.$name as f64),
        }
    };
}

/// A quantile of slowdowns, by its name.
macro_rules! slowdown {
    ($name:ident, $quantile:ident, $doc:literal) => {
        Metric {
            name: stringify!($name),
            doc: $doc,
            least: 0.0,
            of: |it, _| {
                let of_survivor = it.slowdown.filter(|_| it.survived);
                Some(of_survivor?.$quantile as f64 / 1000.0)
            },
        }
    };
}

/// All of them.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "ended_ms",
        doc: "when the last job was done, of runs that survived",
        least: 0.0,
        of: |it, _| Some(it.ended_ps? as f64 / PS_PER_MS),
    },
    Metric {
        name: "time_lost_ms",
        doc: "time that jobs lost to faults, of runs that survived",
        least: f64::NEG_INFINITY,
        of: |it, baseline| Some((it.ended_ps? as f64 - baseline?.ended_ps? as f64) / PS_PER_MS),
    },
    Metric {
        name: "died_ms",
        doc: "when the first job died, of runs that did not survive",
        least: 0.0,
        of: |it, _| Some(it.died_ps? as f64 / PS_PER_MS),
    },
    slowdown!(
        slowdown_p50,
        p50,
        "how many times longer than in an empty fabric messages of runs that survived took: the median"
    ),
    slowdown!(
        slowdown_p95,
        p95,
        "how many times longer than in an empty fabric messages of runs that survived took: the 95th percentile"
    ),
    slowdown!(
        slowdown_p99,
        p99,
        "how many times longer than in an empty fabric messages of runs that survived took: the 99th percentile"
    ),
    Metric {
        name: "goodput_gbps",
        doc: "payload that arrived, by the time until the last job was done",
        least: 0.0,
        of: |it, _| Some(it.bytes? as f64 * GBPS_OF_BYTE_PER_PS / it.ended_ps? as f64),
    },
    count!(failures, "queue pairs that failed"),
    count!(timeouts, "retransmission timers that ran out"),
    count!(retransmitted, "packets sent again"),
    count!(
        spurious,
        "packets sent again though the receiver had executed them and no answer was lost"
    ),
    count!(dropped, "packets that switches dropped"),
    count!(lost, "packets that links lost"),
    count!(marked, "packets that switches marked"),
    count!(cnps, "CNPs sent"),
    count!(pauses, "PFC frames"),
    count!(events, "events of the simulation"),
];

impl Outcome {
    /// Runs a scenario; `None` if `goes_on` returned false. What is recorded over time is left out unless `keep`
    /// takes the simulation at its end.
    ///
    /// # Errors
    /// Returns what `keep` returns.
    pub(crate) fn of(
        mut scenario: Scenario,
        goes_on: &dyn Fn() -> bool,
        keep: Option<Keep<'_>>,
    ) -> Result<Option<Self>, String> {
        if keep.is_none() {
            scenario.recording.queues = false;
            scenario.recording.links = false;
            scenario.recording.rates = false;
            scenario.recording.goodput = false;
            scenario.recording.every = scenario.duration;
        }
        let mut simulation = match scenario.simulation() {
            Ok(simulation) => simulation,
            Err(error) => return Ok(Some(Self::failed(error.to_string()))),
        };
        let mtu = scenario.device.mtu;
        // Its transfers take much memory, and the simulation has its own.
        let kept = keep.map(|keep| (keep, scenario));
        let (ended, standing) = loop {
            match simulation.run(EVENTS) {
                Ok(Ended::Running) => {}
                Ok(ended @ Ended::Over) => break (ended, Standing::Over),
                Ok(ended @ Ended::TimeUp) => break (ended, Standing::TimeUp),
                Ok(ended @ Ended::Stuck) => break (ended, Standing::Stuck),
                Err(error) => return Ok(Some(Self::failed(error.to_string()))),
            }
            if !goes_on() {
                return Ok(None);
            }
        };
        if let Some((keep, scenario)) = kept {
            keep(&scenario, &simulation, ended)?;
        }
        Ok(Some(Self::read(&simulation, mtu, standing)))
    }

    fn failed(error: String) -> Self {
        Self {
            standing: Standing::Failed,
            error: Some(error),
            ..Self::nothing()
        }
    }

    fn nothing() -> Self {
        Self {
            standing: Standing::Over,
            error: None,
            survived: false,
            ended_ps: None,
            died_ps: None,
            transfers: 0,
            delivered: 0,
            failures: 0,
            timeouts: 0,
            retransmitted: 0,
            spurious: 0,
            cnps: 0,
            dropped: 0,
            lost: 0,
            marked: 0,
            pauses: 0,
            events: 0,
            bytes: None,
            slowdown: None,
        }
    }

    fn read(simulation: &Simulation, mtu: Mtu, standing: Standing) -> Self {
        let (fabric, player) = (&simulation.fabric, &simulation.player);
        let jobs = &player.job_outcomes;
        let ended: Option<Vec<Time>> = jobs.iter().map(|job| job.ended).collect();
        let died = jobs.iter().filter_map(|job| job.died);
        let died = died.map(|(at, _)| at).min();
        let ended = ended.filter(|_| died.is_none());
        let flows = results::flows(simulation, mtu);
        let arrived = flows.iter().filter(|flow| flow.fct_ns.is_some());
        let mut it = Self {
            standing,
            survived: ended.is_some(),
            ended_ps: ended.and_then(|ended| Some(ended.into_iter().max()?.as_picos())),
            died_ps: died.map(Time::as_picos),
            timeouts: player.timeouts.len() as u64,
            spurious: fabric.spurious(),
            events: simulation.events(),
            bytes: Some(arrived.map(|flow| u64::from(flow.bytes)).sum()),
            slowdown: results::slowdown(&flows).map(SlowdownMilli::from),
            ..Self::nothing()
        };
        for job in jobs {
            it.transfers += u64::from(job.transfers);
            it.delivered += u64::from(job.delivered);
            it.failures += u64::from(job.failures);
        }
        let topology = fabric.topology();
        for host in 0..topology.hosts {
            let counters = fabric.host(host).hca.state().counters();
            it.retransmitted += counters[Counter::RetransmittedPackets as usize];
            it.cnps += counters[Counter::NpCnpSent as usize];
        }
        for switch in topology.hosts..topology.nodes() {
            let counters = fabric.switch(NodeId(switch));
            it.dropped +=
                counters.dropped_full + counters.dropped_lossless + counters.dropped_storm;
            it.marked += counters.marked;
        }
        for line in 0..2 * topology.cables.len() {
            let counters = fabric.line(line / 2, line % 2);
            it.lost += counters.lost + counters.dropped_down;
            it.pauses += counters.pauses;
        }
        it
    }
}

//! The results of a simulation, as figures.
//!
//! | module | purpose |
//! |---|---|
//! | `paths` | the lines that connections cross |
//! | `collisions` | how evenly switches spread the connections of a job |
//! | `links` | what each line carried, and whose bytes they were |

mod collisions;
mod links;
mod paths;

use ferroce_base::time::{Span, Time};
use ferroce_device::{Counter, HistogramConfig, Mtu};
use ferroce_fabric::ideal::jobs::{IdealJob, Paths, of_jobs};
use ferroce_fabric::{
    ConnectionLook, NodeId, Simulation, Standing, Storms, Timeout, Topology, TransferId,
};
use serde::{Deserialize, Serialize};

pub use self::collisions::Spread;
pub use self::links::{BusyLink, Carried, LinkRow, Talker};
pub use self::paths::PathsTaken;
use crate::scenario::Scenario;

/// The summary of a run, for people and programs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// The version of Ferroce.
    pub ferroce_version: String,
    /// The scenario's title.
    pub title: String,
    /// A hash of the scenario without its seed, in hexadecimal digits.
    pub scenario_hash: String,
    /// The seed.
    pub seed: u64,
    /// How the run ended.
    pub ended: Ended,
    /// Simulated time.
    pub simulated_ns: u64,
    /// Events simulated.
    pub events: u64,
    /// Cables crossed by all frames together.
    pub hops: u64,
    /// What the results rest on that no source documents, one sentence each; empty if no CNP was sent.
    pub assumptions: Vec<String>,
    /// Each job.
    pub jobs: Vec<Job>,
    /// Totals for the whole fabric.
    pub totals: Totals,
    /// Flow completion times over ideal ones, of all transfers that completed.
    pub slowdown: Option<Slowdown>,
    /// The longest queue of one priority.
    pub worst_queue: Option<WorstQueue>,
    /// The links, each in one direction, that carried the largest share of what they can; five at most.
    pub busiest_links: Vec<BusyLink>,
    /// The ports that waited for each other in the end, each for the next one, because switches had paused them
    /// in a circle (PFC); null if none did. Named like those of `worst_queue`.
    pub deadlock: Option<Vec<String>>,
    /// The storms of pauses that the watchdog of the switches (`switch.pfc.watchdog`) has found, by queue.
    pub storms: Vec<Storm>,
    /// Waits that ended in a retransmission by adaptive retransmission, in the bins that the device's
    /// histogram has after power-on.
    pub histogram: Vec<Bin>,
    /// Some samples were not taken because there were too many.
    pub samples_cut_short: bool,
    /// The time that was left out because nothing changed in it; null without `fast_forward`.
    pub fast_forward: Option<FastForward>,
}

/// The time that was left out because nothing changed in it. It is included in all other times and counters, but not
/// in `events` and `hops`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FastForward {
    /// All of it.
    pub left_out_ns: u64,
    /// How often time was left out.
    pub times: u32,
    /// How much earlier or later messages may be when time goes on, if rates had gone on to change as they were
    /// changing.
    pub error_ns: u64,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Every job has finished or failed.
    JobsOver,
    /// The scenario's duration ended first.
    TimeUp,
    /// Jobs were left, but no further event was scheduled.
    Stuck,
    /// It was interrupted.
    Interrupted,
}

/// The result of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Job {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub fate: Fate,
    /// Why it failed.
    pub cause: Option<String>,
    /// From its first transfer to the delivery of its last, or to its end.
    pub time_ns: Option<u64>,
    /// The shortest possible time: without queues and losses.
    pub ideal_ns: u64,
    /// The difference, if it finished.
    pub lost_ns: Option<u64>,
    /// Its transfers.
    pub transfers: u32,
    /// Those delivered.
    pub delivered: u32,
    /// Payload of all transfers.
    pub payload_bytes: u64,
    /// Queue pairs that failed.
    pub failures: u32,
    /// Retransmission timers of its queue pairs that expired.
    pub timeouts: u64,
    /// Of its transfers.
    pub slowdown: Option<Slowdown>,
    /// How evenly switches spread its connections over paths of equal cost; null if its packets may take many
    /// paths, or none was sent.
    pub spread: Option<Spread>,
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// All its transfers were delivered.
    Finished,
    /// A queue pair failed, and the job with it.
    Aborted,
    /// The run ended first.
    Unfinished,
}

/// Totals for the whole fabric.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Retransmission timers that expired.
    pub timeouts: u64,
    /// Those of adaptive retransmission.
    pub adaptive_timeouts: u64,
    /// Those that ended a queue pair.
    pub fatal_timeouts: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Those of them that their receivers had executed, although no answer was lost.
    pub spurious: u64,
    /// Those that the cards' own counter counts, `spurious_retransmissions`.
    pub spurious_counted: u64,
    /// Sequence errors that receivers reported.
    pub sequence_naks: u64,
    /// Packets lost for lack of room in a switch, or in a host that takes them slowly.
    pub dropped_full: u64,
    /// The same for priorities that are paused: their headroom is too small.
    pub dropped_lossless: u64,
    /// Packets dropped by the watchdog of the switches, in storms of pauses.
    pub dropped_storm: u64,
    /// Packets lost on cables at random.
    pub lost: u64,
    /// Packets lost because a cable was down.
    pub lost_down: u64,
    /// Packets that arrived with a wrong ICRC.
    pub corrupted: u64,
    /// Packets without a path to their destination.
    pub unreachable: u64,
    /// PFC frames sent.
    pub pauses: u64,
    /// Packets marked.
    pub marked: u64,
    /// CNPs sent.
    pub cnps: u64,
    /// Packets that hosts sent.
    pub packets: u64,
}

/// Flow completion times over ideal ones.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slowdown {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// The longest queue of one priority.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorstQueue {
    /// The cable behind the queue, named from the queue's switch: `leaf0-h3`.
    pub port: String,
    /// Its length.
    pub bytes: u64,
}

/// The storms of pauses of one queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Storm {
    /// The queue's port, named like those of `worst_queue`.
    pub port: String,
    /// Its priority.
    pub priority: u8,
    /// How many there were.
    pub storms: u32,
    /// When the first one was detected.
    pub first_ns: u64,
    /// How long all of them lasted together, from detection to restoration or to the end of the run.
    pub lasted_ns: u64,
    /// Packets dropped in them.
    pub dropped: u64,
}

/// A bin of the histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bin {
    /// The shortest wait that it counts.
    pub low_ns: u64,
    /// The first wait above it; null for the last bin, which has no upper bound.
    pub high_ns: Option<u64>,
    /// Waits in this bin.
    pub count: u64,
}

/// A transfer that was posted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Flow {
    /// Its place in the workload.
    pub transfer: u32,
    /// Its job.
    pub job: u16,
    /// The sending host.
    pub src: u32,
    /// The receiving host.
    pub dst: u32,
    /// Payload.
    pub bytes: u32,
    /// When it was posted.
    pub start_ns: u64,
    /// From the post to the acknowledgement; `None` if it was never acknowledged.
    pub fct_ns: Option<u64>,
    /// From the post to the delivery; `None` if it was not delivered.
    pub delivery_ns: Option<u64>,
    /// The connection that carried it, as an index into [`Results::qps`].
    pub connection: u32,
    /// From the post to the acknowledgement in an empty fabric.
    pub ideal_ns: u64,
}

impl Flow {
    /// How many times longer than ideal it took.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let fct = self.fct_ns?;
        Some(fct as f64 / self.ideal_ns.max(1) as f64)
    }
}

/// A queue pair that has sent: the sender's end of a connection, with its latest numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct QpRow {
    /// Its job.
    pub job: u16,
    /// Its host.
    pub host: u32,
    /// Its number.
    pub qpn: u32,
    /// The host at the other end.
    pub peer: u32,
    /// The number of the queue pair there.
    pub peer_qpn: u32,
    /// Transfers that it was given, or parts of them.
    pub transfers: u32,
    /// Those acknowledged.
    pub acknowledged: u32,
    /// Payload of those acknowledged, bytes.
    pub bytes: u64,
    /// Its retransmission timers that expired.
    pub timeouts: u32,
    /// The sum of their waits.
    pub waited_ns: u64,
    /// How often it failed.
    pub failures: u32,
}

/// A retransmission timer that expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct TimeoutRow {
    /// When.
    pub at_ns: u64,
    /// The host that waited.
    pub host: u32,
    /// Its queue pair.
    pub qpn: u32,
    /// The job of that queue pair.
    pub job: u16,
    /// How long it had waited.
    pub wait_ns: u64,
    /// Whether it was adaptive retransmission's.
    pub adaptive: bool,
    /// Whether the queue pair failed.
    pub fatal: bool,
}

/// The results of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    /// The figures.
    pub summary: Summary,
    /// All transfers that were posted, in the order of the workload.
    pub flows: Vec<Flow>,
    /// All queue pairs that have sent, in the order in which they connected.
    pub qps: Vec<QpRow>,
    /// The path of each.
    pub paths: PathsTaken,
    /// All lines that have carried something or lost it.
    pub links: Vec<LinkRow>,
    /// All timeouts, in order.
    pub timeouts: Vec<TimeoutRow>,
}

impl Summary {
    /// The summary of a scenario's simulation; `standing` says how it ended. It takes less memory than
    /// [all results](Results::new), which have a row for each transfer.
    #[must_use]
    pub fn new(scenario: &Scenario, simulation: &Simulation, standing: Standing) -> Self {
        Results::of(scenario, simulation, standing, |_| ()).summary
    }
}

impl Results {
    /// The results of a scenario's simulation; `standing` says how it ended.
    #[must_use]
    pub fn new(scenario: &Scenario, simulation: &Simulation, standing: Standing) -> Self {
        let mut flows = Vec::new();
        let results = Self::of(scenario, simulation, standing, |flow| flows.push(flow));
        Self { flows, ..results }
    }

    /// The results without rows of transfers, which `tell` gets.
    fn of(
        scenario: &Scenario,
        simulation: &Simulation,
        standing: Standing,
        mut tell: impl FnMut(Flow),
    ) -> Self {
        let mut paths = Paths::new(
            &scenario.topology,
            scenario.device.mtu,
            scenario.switch.latency,
        );
        // Before there is anything else of each transfer.
        let ideal = of_jobs(simulation.player.workload(), &mut paths);
        let mut slowdowns = Slowdowns::new(simulation);
        for flow in flows_along(simulation, &mut paths) {
            slowdowns.add(&flow);
            tell(flow);
        }
        let timeouts = timeouts(simulation);
        let qps = qps(simulation);
        let taken = PathsTaken::of(scenario, simulation);
        let spreads = collisions::of_jobs(scenario, simulation, &taken);
        let links = links::all(scenario, simulation, &qps, &taken);
        let totals = totals(simulation);
        let summary = Summary {
            ferroce_version: env!("CARGO_PKG_VERSION").to_owned(),
            title: scenario.title.clone(),
            scenario_hash: format!("{:016x}", scenario.hash),
            seed: scenario.seed,
            ended: match standing {
                Standing::Over => Ended::JobsOver,
                Standing::TimeUp => Ended::TimeUp,
                Standing::Stuck => Ended::Stuck,
                Standing::Running => Ended::Interrupted,
            },
            simulated_ns: simulation.now().as_nanos(),
            events: simulation.events(),
            hops: simulation.fabric.hops(),
            assumptions: match totals.cnps {
                0 => Vec::new(),
                _ => scenario
                    .assumptions()
                    .into_iter()
                    .map(|it| it.text)
                    .collect(),
            },
            jobs: jobs(simulation, &mut slowdowns, &ideal, spreads),
            totals,
            slowdown: slowdowns.of_all(),
            worst_queue: worst_queue(simulation),
            busiest_links: links::busiest(&scenario.topology, &links, &qps),
            deadlock: deadlock(simulation),
            storms: storms(simulation),
            histogram: histogram(&timeouts),
            samples_cut_short: simulation.samples.is_cut_short,
            fast_forward: simulation.left_out().map(|it| FastForward {
                left_out_ns: it.time.as_nanos(),
                times: it.times,
                error_ns: it.error.as_nanos(),
            }),
        };
        Self {
            summary,
            flows: Vec::new(),
            qps,
            paths: taken,
            links,
            timeouts,
        }
    }
}

/// The transfers of a simulation that were posted, in the order of the workload. `mtu` is that of its queue
/// pairs.
#[must_use]
pub fn flows(simulation: &Simulation, mtu: Mtu) -> Vec<Flow> {
    let fabric = &simulation.fabric;
    let mut paths = Paths::new(fabric.topology(), mtu, fabric.switch_latency());
    flows_along(simulation, &mut paths).collect()
}

fn flows_along(simulation: &Simulation, paths: &mut Paths<'_>) -> impl Iterator<Item = Flow> {
    let transfers = &simulation.player.workload().transfers;
    let outcomes = simulation.player.outcomes.iter();
    let posted = (0..).zip(transfers).zip(outcomes);
    let posted =
        posted.filter(|((_, it), outcome)| !it.is_work() && outcome.started != Time::NEVER);
    posted.map(|((transfer, it), outcome)| Flow {
        transfer,
        job: it.job,
        src: it.src,
        dst: it.dst,
        bytes: it.bytes,
        start_ns: outcome.started.as_nanos(),
        fct_ns: after(outcome.started, outcome.acknowledged),
        delivery_ns: after(outcome.started, outcome.delivered),
        connection: simulation
            .player
            .connection_of(TransferId(transfer))
            .unwrap_or(u32::MAX),
        ideal_ns: paths.round_trip(it.src, it.dst, it.bytes).as_nanos(),
    })
}

/// From one moment to another that may never have come.
fn after(started: Time, then: Time) -> Option<u64> {
    (then != Time::NEVER).then(|| then.since(started).as_nanos())
}

fn qps(simulation: &Simulation) -> Vec<QpRow> {
    let row = |it: &ConnectionLook| QpRow {
        job: it.job,
        host: it.ends[0],
        qpn: it.qpns[0].into(),
        peer: it.ends[1],
        peer_qpn: it.qpns[1].into(),
        transfers: it.transfers,
        acknowledged: it.acknowledged,
        bytes: it.bytes,
        timeouts: it.timeouts,
        waited_ns: it.waited.as_nanos(),
        failures: it.failures,
    };
    simulation.player.connections().map(row).collect()
}

fn timeouts(simulation: &Simulation) -> Vec<TimeoutRow> {
    let row = |it: &Timeout| TimeoutRow {
        at_ns: it.at.as_nanos(),
        host: it.host,
        qpn: it.qpn.into(),
        job: it.job,
        wait_ns: it.expiry.wait.as_nanos(),
        adaptive: it.expiry.adaptive,
        fatal: it.expiry.fatal,
    };
    simulation.player.timeouts.iter().map(row).collect()
}

fn jobs(
    simulation: &Simulation,
    slowdowns: &mut Slowdowns,
    ideal: &[IdealJob],
    spreads: Vec<Option<Spread>>,
) -> Vec<Job> {
    let player = &simulation.player;
    let workload = player.workload();
    let mut bytes = vec![0; workload.jobs.len()];
    for transfer in &workload.transfers {
        bytes[usize::from(transfer.job)] += u64::from(transfer.bytes);
    }
    let mut timeouts = vec![0; workload.jobs.len()];
    for timeout in &player.timeouts {
        timeouts[usize::from(timeout.job)] += 1;
    }
    let outcomes = player.job_outcomes.iter().zip(spreads).enumerate();
    outcomes
        .map(|(job, (outcome, spread))| {
            let ended = outcome.ended.or_else(|| outcome.died.map(|(at, _)| at));
            let time = ended
                .zip(outcome.began)
                .map(|(end, began)| end.since(began));
            let lost = time.map(|time| time.as_nanos().saturating_sub(ideal[job].takes.as_nanos()));
            Job {
                name: workload.jobs[job].clone(),
                fate: match (outcome.ended, outcome.died) {
                    (_, Some(_)) => Fate::Aborted,
                    (Some(_), None) => Fate::Finished,
                    (None, None) => Fate::Unfinished,
                },
                cause: outcome.died.map(|(_, status)| status.name().to_owned()),
                time_ns: time.map(Span::as_nanos),
                ideal_ns: ideal[job].takes.as_nanos(),
                lost_ns: lost.filter(|_| outcome.died.is_none()),
                transfers: outcome.transfers,
                delivered: outcome.delivered,
                payload_bytes: bytes[job],
                failures: outcome.failures,
                timeouts: timeouts[job],
                slowdown: slowdowns.of_job(job),
                spread,
            }
        })
        .collect()
}

fn totals(simulation: &Simulation) -> Totals {
    let (fabric, player) = (&simulation.fabric, &simulation.player);
    let mut totals = Totals::default();
    for timeout in &player.timeouts {
        totals.timeouts += 1;
        totals.adaptive_timeouts += u64::from(timeout.expiry.adaptive);
        totals.fatal_timeouts += u64::from(timeout.expiry.fatal);
    }
    totals.spurious = fabric.spurious();
    let topology = fabric.topology();
    for host in 0..topology.hosts {
        let count = |counter| fabric.host(host).hca.counter(counter);
        totals.retransmitted += count(Counter::RetransmittedPackets);
        totals.spurious_counted += count(Counter::SpuriousRetransmissions);
        totals.sequence_naks += count(Counter::PacketSeqErr);
        totals.corrupted += count(Counter::RxIcrcEncapsulated);
        totals.cnps += count(Counter::NpCnpSent);
        totals.packets += count(Counter::RdmaTxPackets);
    }
    for switch in topology.hosts..topology.nodes() {
        let counters = fabric.switch(NodeId(switch));
        totals.dropped_full += counters.dropped_full;
        totals.dropped_lossless += counters.dropped_lossless;
        totals.dropped_storm += counters.dropped_storm;
        totals.unreachable += counters.unreachable;
        totals.marked += counters.marked;
    }
    for cable in 0..topology.cables.len() {
        for end in 0..2 {
            let counters = fabric.line(cable, end);
            totals.lost += counters.lost;
            totals.lost_down += counters.dropped_down;
            totals.pauses += counters.pauses;
            totals.dropped_full += counters.refused;
        }
    }
    totals
}

fn worst_queue(simulation: &Simulation) -> Option<WorstQueue> {
    let fabric = &simulation.fabric;
    let topology = fabric.topology();
    let ends = (0..topology.cables.len()).flat_map(|cable| [(cable, 0), (cable, 1)]);
    let (bytes, cable, end) = ends
        .map(|(cable, end)| (fabric.queue(cable, end).1, cable, end))
        .filter(|(bytes, ..)| *bytes > 0)
        .max_by_key(|(bytes, cable, end)| (*bytes, std::cmp::Reverse((*cable, *end))))?;
    Some(WorstQueue {
        port: line_name(topology, cable, end),
        bytes,
    })
}

fn deadlock(simulation: &Simulation) -> Option<Vec<String>> {
    let fabric = &simulation.fabric;
    let name = |(cable, end)| line_name(fabric.topology(), cable, end);
    Some(fabric.deadlock()?.into_iter().map(name).collect())
}

fn storms(simulation: &Simulation) -> Vec<Storm> {
    let fabric = &simulation.fabric;
    let of_queue = |it: Storms| Storm {
        port: line_name(fabric.topology(), it.port.0, it.port.1),
        priority: it.priority,
        storms: it.count,
        first_ns: simulation.shown(it.first).as_nanos(),
        lasted_ns: it.lasted.as_nanos(),
        dropped: it.dropped,
    };
    fabric.storms().into_iter().map(of_queue).collect()
}

/// The name of one direction of a cable: the port that it leaves, and the node at its end.
#[must_use]
pub fn line_name(topology: &Topology, cable: usize, end: usize) -> String {
    let to = topology.name(topology.cables[cable].ends[1 - end]);
    format!("{}-{to}", topology.port_name(cable, end))
}

fn histogram(timeouts: &[TimeoutRow]) -> Vec<Bin> {
    let config = HistogramConfig::default();
    let mut counts = vec![0; usize::from(config.bins)];
    for timeout in timeouts.iter().filter(|it| it.adaptive && !it.fatal) {
        counts[config.bin_of(timeout.wait_ns)] += 1;
    }
    let bin = |(bin, count)| {
        let (low_ns, high_ns) = config.edges_ns(bin);
        Bin {
            low_ns,
            high_ns,
            count,
        }
    };
    counts.into_iter().enumerate().map(bin).collect()
}

/// How much longer than ideal the transfers of each job took.
struct Slowdowns(Vec<Vec<f64>>);

impl Slowdowns {
    fn new(simulation: &Simulation) -> Self {
        let jobs = simulation.player.job_outcomes.iter();
        Self(
            jobs.map(|it| Vec::with_capacity(it.acknowledged as usize))
                .collect(),
        )
    }

    fn add(&mut self, flow: &Flow) {
        self.0[usize::from(flow.job)].extend(flow.slowdown());
    }

    fn of_job(&mut self, job: usize) -> Option<Slowdown> {
        quantiles(&mut self.0[job])
    }

    fn of_all(self) -> Option<Slowdown> {
        let all = self.0.into_iter().reduce(|mut all, mut of_job| {
            all.append(&mut of_job);
            all
        });
        quantiles(&mut all?)
    }
}

/// The quantiles of the slowdowns of transfers, by rank.
#[must_use]
pub fn slowdown(flows: &[Flow]) -> Option<Slowdown> {
    let mut all: Vec<f64> = flows.iter().filter_map(Flow::slowdown).collect();
    quantiles(&mut all)
}

fn quantiles(slowdowns: &mut [f64]) -> Option<Slowdown> {
    slowdowns.sort_unstable_by(f64::total_cmp);
    let last = slowdowns.len().checked_sub(1)?;
    let rank = |percent: usize| (last * percent).div_ceil(100);
    let at = |percent| (slowdowns[rank(percent)] * 1000.0).round() / 1000.0;
    Some(Slowdown {
        p50: at(50),
        p95: at(95),
        p99: at(99),
        max: at(100),
    })
}

//! Scenarios: a fabric, the jobs of its hosts, faults, and what to record, as a TOML file.
//!
//! Reading is strict: an unknown key, a value out of range or a host that does not exist is an
//! error with its line. The caller reads the files that a scenario refers to.
//!
//! | module | purpose |
//! |---|---|
//! | `keys` | the table of all keys |
//! | `names` | hosts and cables by name |
//! | `survey` | topologies from what tools write about a fabric |
//! | `topology`, `switches`, `device`, `congestion`, `job`, `fault` | one table of the file each |
//! | `check` | finds what can never happen, or is certainly fatal |
//! | `assumptions` | what results rest on that no source documents |
//! | `load` | whether cables carry the messages that arrive |
//! | `estimate` | the amount of work of a run |
//! | `draft` | new scenarios of a cluster's size |
//! | `schema` | the JSON Schema |
//! | `hash` | identifies a scenario |

mod assumptions;
mod check;
mod congestion;
mod device;
mod draft;
mod estimate;
mod fault;
mod hash;
mod job;
mod keys;
mod load;
mod names;
mod schema;
mod survey;
mod switches;
mod topology;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use ferroce_base::time::{Span, Time};
use ferroce_base::toml_file::{Problems, Reader, Section, parse, plain_table, set};
use ferroce_device::VerbsError;
use ferroce_fabric::ideal::jobs::busiest_host;
use ferroce_fabric::workload::TransferGraph;
use ferroce_fabric::{
    Fabric, FabricConfig, Fault, JobConfig, Player, Recording, Simulation, SwitchConfig, Topology,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::check::Finding;
pub use self::device::{Device, settings_of};
pub use self::draft::{Draft, DraftJob, DraftTopology};
pub use self::estimate::Estimate;
pub use self::fault::FaultSpan;
pub use self::schema::json_schema;

use crate::files::Resolver;
use crate::survey::Notice;

/// A parsed scenario that can be run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// One line for lists and reports, empty if the file has none.
    pub title: String,
    /// The question of the scenario, empty if the file has none.
    pub question: String,
    /// The answer, empty if the file has none.
    pub answer: String,
    /// Seed of everything random.
    pub seed: u64,
    /// The maximum duration of a run.
    pub duration: Span,
    /// The topology.
    pub topology: Topology,
    /// The configuration of all switches.
    pub switch: SwitchConfig,
    /// The NIC of every host.
    pub device: Device,
    /// What hosts send to each other.
    pub workload: Arc<TransferGraph>,
    /// How the jobs of the workload use their connections.
    pub jobs: Vec<JobConfig>,
    /// The faults, each as one span of time.
    pub faults: Vec<FaultSpan>,
    /// The faults as single events.
    pub timeline: Vec<(Time, Fault)>,
    /// What is recorded.
    pub recording: Recording,
    /// By which part, from 0 to 1, rates may be wrong in time that is left out because nothing changes in it; `None`:
    /// none is. See [`Simulation::fast_forward`].
    pub fast_forward: Option<f64>,
    /// Identifies the scenario; the seed and comments do not affect it.
    pub hash: u64,
    /// The lines of the file's keys, by their path.
    lines: BTreeMap<String, usize>,
    /// What of the topology's files was left out, or not understood.
    notices: Vec<Notice>,
}

/// The error for a file that is not a scenario that can be run.
pub type ScenarioError = Problems;

impl Scenario {
    /// Parses a scenario. `resolve` reads the files that it refers to, by the names it uses.
    ///
    /// # Errors
    /// Returns all errors in the scenario.
    pub fn parse(text: &str, resolve: &mut Resolver<'_>) -> Result<Self, ScenarioError> {
        Self::parse_with(text, &[], resolve)
    }

    /// Like [`parse`](Self::parse), with some values replaced or added: paths such as
    /// `job[0].timeout` (`job.timeout` is that of all jobs), and values in TOML syntax. Text that
    /// is not TOML is taken as a string.
    ///
    /// # Errors
    /// Returns all errors in the scenario.
    pub fn parse_with(
        text: &str,
        values: &[(String, String)],
        resolve: &mut Resolver<'_>,
    ) -> Result<Self, ScenarioError> {
        let table = table_with(text, values)?;
        let mut reader = Reader::new(text);
        let mut files = Vec::new();
        let mut resolve = |name: &str| {
            let file = resolve(name)?;
            files.push(file.clone());
            Ok(file)
        };
        let scenario = read_all(&mut reader, table.get_ref(), &mut resolve);
        let lines = reader.end()?;
        let mut scenario =
            scenario.ok_or_else(|| Problems::one(None, "is not a scenario".into()))?;
        scenario.hash = hash::of(plain_table(table.get_ref()), &files);
        scenario.lines = lines;
        Ok(scenario)
    }

    /// Returns the port with a name: its cable, and which end of it (0 or 1). `leaf0-spine1` is
    /// leaf0's port towards spine1, `h3` is a host's port.
    ///
    /// # Errors
    /// Returns the existing names if there is no such port.
    pub fn port(&self, name: &str) -> Result<(usize, usize), String> {
        names::port_named(name, &self.topology)
    }

    /// Creates a simulation of the scenario at time zero.
    ///
    /// # Errors
    /// Returns an error if a device has no room for the objects that each host needs.
    pub fn simulation(&self) -> Result<Simulation, VerbsError> {
        self.simulation_in_parts(1)
    }

    /// The same in at most this many [parts](Fabric::parts), for as many threads. Parts have at least 16 hosts:
    /// smaller ones would take longer to wait for each other than for their packets.
    ///
    /// # Errors
    /// Returns an error if a device has no room for the objects that each host needs.
    pub fn simulation_in_parts(&self, most: usize) -> Result<Simulation, VerbsError> {
        const HOSTS_MIN: usize = 16;
        let most = most.min(self.topology.hosts as usize / HOSTS_MIN);
        let devices = self.device.devices(&self.topology, self.seed);
        let config = FabricConfig {
            topology: self.topology.clone(),
            switch: self.switch.clone(),
            seed: self.seed,
        };
        let fabric = Fabric::in_parts(config, devices, most)?;
        let player = Player::new(Arc::clone(&self.workload), self.jobs.clone());
        let until = Time::ZERO.after(self.duration);
        let recording = Some(self.recording);
        let timeline = self.timeline.clone();
        let mut simulation = Simulation::new(fabric, player, timeline, recording, until);
        if let Some(tolerance) = self.fast_forward {
            simulation.fast_forward(tolerance);
        }
        Ok(simulation)
    }

    /// The line on which a key stands, by its path: `job[0].timeout`; else that of its table.
    fn line(&self, path: &str) -> Option<usize> {
        let parent = || self.lines.get(path.rsplit_once('.')?.0);
        let line = self.lines.get(path).or_else(parent).copied();
        // What is not of the file has none.
        line.filter(|line| *line > 0)
    }
}

fn read_all<'t>(
    reader: &mut Reader<'t>,
    table: &'t DeTable<'t>,
    resolve: &mut Resolver<'_>,
) -> Option<Scenario> {
    let root = reader.root(table, keys::ROOT);
    let mut text = |name| reader.string(&root, name).unwrap_or_default().to_owned();
    let [title, question, answer] = ["title", "question", "answer"].map(&mut text);
    let seed = reader
        .count(&root, "seed", (0, i64::MAX as u64))
        .unwrap_or(1);
    let duration = reader.span(&root, "duration", 1);
    let duration = duration.unwrap_or(Span::from_secs(60));
    let found = topology::read(reader, &root, resolve);
    let device = device::read(reader, &root, resolve);
    let switch = switches::read(
        reader,
        &root,
        found.as_ref().map(|it| &it.topology),
        device.qos.trust,
    );
    let found = found?;
    let jobs = job::read(reader, &root, &found, &device, seed, resolve);
    let topology = found.topology;
    let faults = fault::read(reader, &root, &topology, duration);
    let busy = jobs.as_ref().map_or(Span::ZERO, |(workload, _)| {
        busiest_host(workload, &topology)
    });
    let recording = read_recording(reader, &root, busy.min(duration));
    let fast_forward = read_fast_forward(reader, &root);
    let (workload, jobs) = jobs?;
    Some(Scenario {
        title,
        question,
        answer,
        seed,
        duration,
        timeline: fault::timeline(&faults, &topology),
        topology,
        switch,
        device,
        workload: Arc::new(workload),
        jobs,
        faults,
        recording,
        fast_forward,
        hash: 0,
        lines: BTreeMap::new(),
        notices: found.notices,
    })
}

/// Samples of each kind that are kept unless the file says otherwise.
const SAMPLES: u64 = 200_000;
/// The most that may be kept: more than a disk should take.
const SAMPLES_MAX: u64 = 50_000_000;

/// By how much rates may be wrong in time that is left out: what is more is no result.
const TOLERANCE_MAX: f64 = 0.1;

/// `[record]`; `busy` is about how long there is much to see.
fn read_recording<'t>(reader: &mut Reader<'t>, root: &Section<'t>, busy: Span) -> Recording {
    let section = reader.section(root, "record", keys::RECORD);
    let mut flag = |name, otherwise| reader.flag(&section, name).unwrap_or(otherwise);
    let [queues, links] = ["queues", "links"].map(|name| flag(name, true));
    let [rates, goodput] = ["rates", "goodput"].map(|name| flag(name, false));
    let every = (busy.as_nanos() / 500).clamp(10_000, 1_000_000);
    let every = reader
        .span(&section, "every", 1)
        .unwrap_or_else(|| Span::from_nanos(every));
    let samples = reader
        .count(&section, "samples", (0, SAMPLES_MAX))
        .unwrap_or(SAMPLES);
    Recording {
        every,
        samples_max: usize::try_from(samples).unwrap_or(usize::MAX),
        queues,
        links,
        rates,
        goodput,
    }
}

/// `fast_forward`: by which part rates may be wrong.
fn read_fast_forward<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Option<f64> {
    let given = reader.probability(root, "fast_forward")?;
    let tolerance = given.as_f64();
    if tolerance <= 0.0 || tolerance > TOLERANCE_MAX {
        let must = "must be more than 0%, and 10% at most; leave it out to leave out no time";
        reader.invalid(root, "fast_forward", given, must);
    }
    Some(tolerance)
}

/// Returns the text of a scenario with these values, in the form that [`Scenario::parse_with`]
/// takes; comments are lost.
///
/// # Errors
/// Returns an error if it is not TOML, or has no place for a value.
pub fn text_with(text: &str, values: &[(String, String)]) -> Result<String, ScenarioError> {
    let table = table_with(text, values)?;
    Ok(plain_table(table.get_ref()).to_string())
}

fn table_with<'t>(
    text: &'t str,
    values: &'t [(String, String)],
) -> Result<Spanned<DeTable<'t>>, ScenarioError> {
    let mut table = parse(text)?;
    for (path, value) in values {
        let value = DeValue::parse(value).map_or_else(
            |_| DeValue::String(Cow::Borrowed(value)),
            |value| value.into_inner(),
        );
        set(table.get_mut(), path, &value)
            .map_err(|error| Problems::one(None, format!("cannot set {path}: {error}")))?;
    }
    Ok(table)
}

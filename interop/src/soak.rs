//! Mixed programs on two devices for as long as one likes, while packets are lost, the port goes up and down, and
//! programs are killed and stopped: what the devices hold must not grow.

mod draw;
mod pairs;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_testing::{Dice, Over};
use serde_json::Value;

use crate::http;
use crate::lab::{Lab, Ready, Running, free_port};

pub use self::pairs::End;

/// Pairs of programs at a time.
const WORKERS: u64 = 3;
/// What happens to the packets that the first device sends.
const IMPAIRED: &str = "impair set fr0 loss=0.1% duplicate=0.05% reorder=0.1%:200us";
/// How long its port is down, and how often.
const FLAP: &str = "link set fr0 flap 1x 200ms/1s";
const FLAP_EVERY: Duration = Duration::from_secs(20);
/// Samples of a whole run, and the least time between two.
const SAMPLES: u32 = 360;
const SAMPLE_EVERY_MIN: Duration = Duration::from_secs(1);
/// What a program may gain: sockets of exited processes, two for each of eight places.
const DESCRIPTORS_MAX: f64 = 16.0;
/// Tables and queues, and the allocator's arenas, in MiB.
const MEMORY_MAX: f64 = 4.0;
/// More than a week has.
const PINGS: u32 = 2_000_000_000;

/// What was held, and what had happened, at a moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Seconds from the start.
    pub at: f64,
    /// Of each program that runs the whole time: name, MiB of memory, and descriptors.
    pub residents: Vec<(String, f64, f64)>,
    /// Files of the devices' state, and their bytes in MiB.
    pub state: (usize, f64),
    /// Queue pairs of all programs.
    pub queue_pairs: f64,
    /// Of the first device: packets sent, lost by the impairment, sent again.
    pub packets: [f64; 3],
    /// Pairs of programs that have ended.
    pub ended: f64,
}

/// A run.
#[derive(Debug)]
pub struct Report {
    /// What determines the pairs and their fates; not the order in which the system runs them.
    pub seed: u64,
    /// In order of time.
    pub samples: Vec<Sample>,
    /// By program: pairs that ended in each way.
    pub ended: BTreeMap<String, BTreeMap<End, u64>>,
    /// What programs printed that failed though nothing was done to them.
    pub failures: Vec<String>,
    /// What was left when all programs had ended.
    pub left: Vec<String>,
}

/// Runs programs for as long as `length`, and returns when the last ones have ended.
///
/// # Panics
///
/// Panics if the device cannot be set up, or the programs that run the whole time end early.
pub fn soak(length: Duration, seed: u64) -> Report {
    let mut lab = Lab::new("soak");
    lab.two_devices();
    for (name, value) in pairs::VARIABLES {
        lab.set(name, value);
    }
    let lab = &lab;
    lab.ferroce(IMPAIRED).success();
    // The files of both devices are there from their first use on.
    lab.run("ibv_devinfo").success();
    let files = lab.shared_state().0;
    let metrics = free_port();
    let residents = residents(lab, metrics);
    let begun = Instant::now();
    let over = AtomicBool::new(false);
    let outcomes = Mutex::new(Vec::new());
    let mut samples = Vec::new();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (over, outcomes) = (&over, &outcomes);
            scope.spawn(move || {
                let mut dice = Dice::new(seed * WORKERS + worker);
                while !over.load(Ordering::Relaxed) {
                    let outcome = pairs::run(lab, &mut dice);
                    outcomes.lock().expect("no panic").push(outcome);
                }
            });
        }
        // They end as well if something here fails.
        let _over = Over(&over);
        let every = (length / SAMPLES).max(SAMPLE_EVERY_MIN);
        let mut flapped = begun;
        while begun.elapsed() < length {
            if flapped.elapsed() >= FLAP_EVERY {
                lab.ferroce(FLAP).success();
                flapped = Instant::now();
            }
            let ended = outcomes.lock().expect("no panic").len();
            http::get(metrics, "/metrics");
            samples.push(sample(lab, &residents, begun, ended));
            thread::sleep(every);
        }
    });
    residents
        .into_iter()
        .for_each(|(_, program)| program.kill());
    let mut report = Report {
        seed,
        samples,
        ended: BTreeMap::new(),
        failures: Vec::new(),
        left: left(lab, files),
    };
    for outcome in outcomes.into_inner().expect("no panic") {
        let ways = report.ended.entry(outcome.program).or_default();
        *ways.entry(outcome.end).or_default() += 1;
        report.failures.extend(outcome.failure);
    }
    report
}

/// Programs that run the whole time, and sleep while they wait: pings by SEND, READ and WRITE over shared memory and
/// over UDP, and the exporter.
fn residents(lab: &Lab, metrics: u16) -> Vec<(String, Running)> {
    let mut residents = Vec::new();
    for link in ["auto", "udp"] {
        let (port, address) = (free_port(), lab.address());
        let ping = format!("rping -a {address} -p {port} -S 4096 -V -C {PINGS}");
        let link_option = format!("--link {link}");
        let server = lab.run_with(&link_option, format!("{ping} -s"));
        let server = Ready::Cm(port).wait(lab, server);
        residents.push((format!("rping server, {link}"), server));
        let client = lab.run_with(&link_option, format!("{ping} -c"));
        residents.push((format!("rping client, {link}"), client));
    }
    let exporter = lab.ferroce(format!("serve --metrics 127.0.0.1:{metrics}"));
    let exporter = Ready::Tcp(metrics).wait(lab, exporter);
    residents.push(("ferroce serve".into(), exporter));
    residents
}

fn sample(lab: &Lab, residents: &[(String, Running)], begun: Instant, ended: usize) -> Sample {
    let held = |(name, program): &(String, Running)| {
        let (memory, descriptors) = held(program.pid());
        (name.clone(), memory, descriptors)
    };
    let objects = query(lab, "res show");
    let objects = objects["objects"]
        .as_array()
        .expect("a row for each device");
    let counters = query(lab, "stat show fr0");
    let counter = |name: &str| {
        counters["devices"][0]["counters"][name]
            .as_f64()
            .expect(name)
    };
    let (files, bytes) = lab.shared_state();
    Sample {
        at: begun.elapsed().as_secs_f64(),
        residents: residents.iter().map(held).collect(),
        state: (files, mib(bytes)),
        queue_pairs: objects.iter().filter_map(|row| row["qp"].as_f64()).sum(),
        packets: ["rdma_tx_packets", "impair_lost", "retransmitted_packets"].map(counter),
        ended: ended as f64,
    }
}

/// The MiB of memory that a process has, and the number of its descriptors.
///
/// # Panics
///
/// Panics if it has ended.
fn held(pid: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process at work");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    (
        mib(kib.expect("a program that has not ended") * 1024),
        descriptors as f64,
    )
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn query(lab: &Lab, command: &str) -> Value {
    let shown = lab.ferroce(format!("-j {command}")).success();
    serde_json::from_str(&shown).expect("JSON")
}

/// What is left of programs that have ended.
fn left(lab: &Lab, files: usize) -> Vec<String> {
    let mut left = Vec::new();
    let objects = query(lab, "res show");
    for row in objects["objects"]
        .as_array()
        .expect("a row for each device")
    {
        for kind in ["ctx", "pd", "cq", "qp", "mr", "srq", "cm_id"] {
            if row[kind] != 0 {
                left.push(format!("{} {kind} of {}", row[kind], row["device"]));
            }
        }
    }
    let now = lab.shared_state().0;
    if now != files {
        left.push(format!("{now} files instead of {files}"));
    }
    left
}

/// What is compared: its name, the most in the second quarter and in the last, and by how much it may grow.
#[derive(Clone, Debug)]
pub struct Growth {
    /// What it is, with the unit.
    pub name: String,
    /// The most in the second quarter.
    pub before: f64,
    /// The most in the last quarter.
    pub after: f64,
    /// By how much it may grow.
    pub allowed: f64,
}

impl Growth {
    /// Whether it has grown by more than it may.
    pub fn is_leak(&self) -> bool {
        self.after > self.before + self.allowed
    }
}

impl Report {
    /// All that must not grow. The first quarter is not compared: tables and queues reach their size there.
    pub fn growth(&self) -> Vec<Growth> {
        let count = self.samples.len();
        let most = |quarter: usize, value: &dyn Fn(&Sample) -> f64| {
            let samples = &self.samples[quarter * count / 4..(quarter + 1) * count / 4];
            samples.iter().map(value).fold(0.0, f64::max)
        };
        let compare = |name: String, allowed: f64, value: &dyn Fn(&Sample) -> f64| Growth {
            name,
            before: most(1, value),
            after: most(3, value),
            allowed,
        };
        let mut all = Vec::new();
        let names = self
            .samples
            .first()
            .map_or(&[][..], |first| &first.residents);
        for (at, (name, ..)) in names.iter().enumerate() {
            let memory = format!("memory of {name}, MiB");
            all.push(compare(memory, MEMORY_MAX, &|it| it.residents[at].1));
            let descriptors = format!("descriptors of {name}");
            all.push(compare(descriptors, DESCRIPTORS_MAX, &|it| {
                it.residents[at].2
            }));
        }
        all.push(compare("files of the devices".into(), 0.0, &|it| {
            it.state.0 as f64
        }));
        all.push(compare("shared state, MiB".into(), 0.0, &|it| it.state.1));
        all
    }

    /// Whether nothing failed, leaked or was left.
    pub fn is_clean(&self) -> bool {
        let leaks = self.growth().iter().any(Growth::is_leak);
        self.failures.is_empty() && self.left.is_empty() && !leaks
    }

    /// Writes the picture of the run.
    ///
    /// # Errors
    ///
    /// It cannot be drawn or written.
    pub fn draw(&self, file: &Path) -> Result<(), String> {
        let svg = draw::svg(&self.samples)?;
        fs::write(file, svg).map_err(|error| format!("{}: {error}", file.display()))
    }
}

/// The table of docs/soak.md.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.samples.last().map_or(0.0, |last| last.at);
        let [sent, lost, again] = self.samples.last().map_or([0.0; 3], |last| last.packets);
        writeln!(f, "seed {}, {:.0} minutes", self.seed, seconds / 60.0)?;
        writeln!(
            f,
            "{sent} packets of fr0, {lost} lost, {again} sent again\n"
        )?;
        writeln!(
            f,
            "| pairs of programs | {} |",
            End::ALL.map(End::name).join(" | ")
        )?;
        writeln!(f, "|---|{}", "---:|".repeat(End::ALL.len()))?;
        for (program, ways) in &self.ended {
            let counts = End::ALL.map(|end| ways.get(&end).copied().unwrap_or(0).to_string());
            writeln!(f, "| {program} | {} |", counts.join(" | "))?;
        }
        writeln!(
            f,
            "\n| held | second quarter | last quarter | may grow by |"
        )?;
        writeln!(f, "|---|---:|---:|---:|")?;
        for it in self.growth() {
            let leak = if it.is_leak() { " **leak**" } else { "" };
            let Growth {
                name,
                before,
                after,
                allowed,
            } = it;
            writeln!(f, "| {name} | {before:.1} | {after:.1}{leak} | {allowed} |")?;
        }
        writeln!(f)?;
        for left in &self.left {
            writeln!(f, "left: {left}")?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        Ok(())
    }
}

//! Captures of our own, of impaired queue pairs with a known policy, and what `ferroce identify` makes
//! of them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::lab::{Lab, as_root, until};

/// Processes, and queue pairs in each.
const CROWD: [u32; 2] = [2, 4];
const RETRY_CNT: u8 = 7;
/// The smallest timeout that takes effect.
const FLOOR: u8 = 16;
/// Below this, a profile's waits and those of timeouts are too similar.
const DISTINCT_NS: u64 = 4_000_000;
/// The least number of these that must be decided.
const DECIDED_FROM: usize = 4;
/// How long a link is up before and after its blackout, and impaired before it.
const WHOLE: Duration = Duration::from_millis(700);
const BAD: Duration = Duration::from_millis(1000);

/// What the queue pairs of a capture wait by.
#[derive(Clone, Debug)]
enum Policy {
    Ib,
    Firmware,
    /// A file of `profiles/`.
    Profile(PathBuf),
}

impl Policy {
    /// All of them.
    fn all() -> Vec<Self> {
        let profiles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles");
        let files = fs::read_dir(profiles).expect("profiles of ours");
        let paths = files.map(|file| file.expect("profiles of ours").path());
        let paths: BTreeSet<PathBuf> = paths
            .filter(|path| path.extension().is_some_and(|end| end == "toml"))
            .collect();
        let profiles = paths.into_iter().map(Self::Profile);
        [Self::Ib, Self::Firmware]
            .into_iter()
            .chain(profiles)
            .collect()
    }

    fn options(&self) -> [&str; 2] {
        match self {
            Self::Ib => ["--personality", "ib"],
            Self::Firmware => ["--personality", "firmware"],
            Self::Profile(path) => [
                "--profile",
                path.file_stem()
                    .and_then(|it| it.to_str())
                    .expect("a plain name"),
            ],
        }
    }

    /// The waits that it may use, in nanoseconds.
    fn waits(&self) -> BTreeSet<u64> {
        let Self::Profile(path) = self else {
            return BTreeSet::new();
        };
        let text = fs::read_to_string(path).expect("a profile of ours");
        let mut low = 0;
        let mut waits = BTreeSet::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let value = value.trim().parse::<u32>().unwrap_or_default();
            match key.trim() {
                "timeout_init_low_bound" | "range_low_bound" => low = value,
                "timeout_init_range_size" | "range_size" => {
                    waits.extend((low..=low + value).map(|exponent| 4_000 << exponent));
                }
                _ => {}
            }
        }
        waits
    }
}

/// A capture to make.
#[derive(Clone, Debug)]
pub struct Case {
    policy: Policy,
    timeout: u8,
    /// By tcpdump, which sees frames of segmentation offload; otherwise by `ferroce run --pcap`.
    by_tcpdump: bool,
    /// Whether it begins in the middle of the outage.
    is_late: bool,
    direction: &'static str,
    dark_ms: u64,
    loss: &'static str,
}

impl Case {
    /// Some of each kind, the same for each number. Without root there is no tcpdump.
    #[must_use]
    pub fn numbered(number: usize) -> Self {
        let policies = Policy::all();
        let of = |choices: &[&'static str], step: usize| choices[number / step % choices.len()];
        // Each choice has a step of its own, so that all go with all.
        let by_tcpdump = as_root() && number.is_multiple_of(2);
        Self {
            policy: policies[number % policies.len()].clone(),
            timeout: [14, 16, 18, 17][number / 3 % 4],
            by_tcpdump,
            is_late: by_tcpdump && number % 5 == 4,
            direction: of(&["ingress", "both", "ingress", "egress"], 2),
            dark_ms: [1500, 600, 2500, 0, 1500][number / 2 % 5],
            loss: of(&["", "1%", "", "3%", "", "5%"], 1),
        }
    }
}

/// What `ferroce identify` made of a capture.
#[derive(Debug)]
pub struct Verdict {
    /// What was captured.
    pub case: Case,
    /// Queue pairs that sent something again after a wait.
    pub queue_pairs: usize,
    /// Answers that are certain and wrong.
    pub certain_and_wrong: Vec<String>,
    /// Answers that are likely, and none of the policies that they name is right.
    pub likely_and_wrong: Vec<String>,
    /// Answers that leave it open although they rest on enough waits.
    pub undecided: Vec<String>,
    /// Whether its answer for all of them is at least likely.
    pub is_decided: bool,
}

/// Makes a capture of queue pairs whose link is bad and dark, and has it identified.
///
/// # Panics
///
/// Panics if anything cannot be run, or a program fails.
#[must_use]
pub fn judge(case: Case) -> Verdict {
    let mut lab = Lab::new("captures");
    lab.set("FERROCE_LINK", "udp");
    let file = capture(&lab, &case);
    let file = file.to_str().expect("a plain path");
    let said = lab.ferroce(format!("identify -j {file}")).success();
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let answers = said["queue_pairs"].as_array().expect("answers");
    let text = lab.ferroce(format!("identify {file}")).success();
    let told = |is_one: &dyn Fn(&Value) -> bool| {
        let told = answers.iter().filter(|answer| is_one(answer));
        let told = told.map(|answer| format!("{case:?}: {answer}\n{text}"));
        told.collect::<Vec<_>>()
    };
    let named = |answer: &Value| answer["policies"].as_array().cloned().unwrap_or_default();
    let any_right = |answer: &Value| named(answer).iter().any(|it| is_right(&case, it));
    let only_right = |answer: &Value| named(answer).len() == 1 && any_right(answer);
    Verdict {
        queue_pairs: answers.len(),
        certain_and_wrong: told(&|it| it["sure"] == "certain" && !only_right(it)),
        likely_and_wrong: told(&|it| it["sure"] == "likely" && !any_right(it)),
        undecided: told(&is_undecided),
        is_decided: !text.contains("undecided:") && !text.contains("unknown:"),
        case,
    }
}

fn capture(lab: &Lab, case: &Case) -> PathBuf {
    let program = lab.compile("ladders");
    let end = lab.path().join("end");
    let file = lab.path().join("state/own.pcap");
    let [processes, qps] = CROWD.map(|number| number.to_string());
    let numbers = [case.timeout, RETRY_CNT].map(|number| number.to_string());
    let mut options = case.policy.options().to_vec();
    if !case.by_tcpdump {
        options.extend(["--pcap", "own.pcap"]);
    }
    let mut tcpdump = (case.by_tcpdump && !case.is_late).then(|| Tcpdump::start(lab, &file));
    let running = lab.run_with(
        &options,
        [
            program.to_str().expect("a plain path"),
            &processes,
            &qps,
            &numbers[0],
            &numbers[1],
            end.to_str().expect("a plain path"),
        ],
    );
    let all = (CROWD[0] * CROWD[1]) as usize;
    until("all queue pairs", || {
        let shown = lab.ferroce("-j res show qp fr0 state RTS");
        let shown: Value = serde_json::from_str(&shown.success()).ok()?;
        (shown["objects"].as_array()?.len() == all).then_some(())
    });
    thread::sleep(WHOLE);
    let loss = (!case.loss.is_empty()).then(|| format!("loss={}", case.loss));
    if let Some(loss) = &loss {
        impair(lab, &format!("{loss} --direction {}", case.direction));
        thread::sleep(BAD);
    }
    if case.dark_ms > 0 {
        let dark = format!("down={}ms", case.dark_ms);
        let link: Vec<String> = [Some(dark), loss].into_iter().flatten().collect();
        impair(
            lab,
            &format!("{} --direction {}", link.join(","), case.direction),
        );
    }
    let dark = Duration::from_millis(case.dark_ms);
    thread::sleep(dark / 3);
    if case.is_late {
        tcpdump = Some(Tcpdump::start(lab, &file));
    }
    thread::sleep(dark / 3 * 2 + WHOLE);
    lab.ferroce("impair clear fr0").success();
    thread::sleep(WHOLE);
    fs::write(&end, "").expect("own directory");
    // Queue pairs may have given up.
    let _ = running.finish();
    if let Some(tcpdump) = tcpdump {
        tcpdump.finish();
    }
    file
}

fn impair(lab: &Lab, link: &str) {
    lab.ferroce(format!("impair set fr0 {link}")).success();
}

/// A capture of a lab's packets on the loopback interface.
struct Tcpdump(Child);

impl Tcpdump {
    fn start(lab: &Lab, file: &Path) -> Self {
        let filter = format!("udp port 4791 and host {}", lab.address());
        let mut child = Command::new("tcpdump")
            .args(["-i", "lo", "-U", "-Z", "root", "-B", "16384", "-w"])
            .args([file, Path::new(&filter)])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("apt-get install tcpdump?");
        let mut line = String::new();
        let stderr = child.stderr.as_mut().expect("a pipe");
        let _ = BufReader::new(stderr).read_line(&mut line);
        assert!(line.contains("listening on lo"), "{line}");
        Self(child)
    }

    fn finish(mut self) {
        // What it has not yet read of the kernel's buffer.
        thread::sleep(Duration::from_millis(300));
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let _ = self.0.wait();
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether this is the policy that was captured.
fn is_right(case: &Case, policy: &Value) -> bool {
    let within = |range: &Value, value: u8| {
        let ends = [0, 1].map(|end| range[end].as_u64().unwrap_or_default());
        (ends[0]..=ends[1]).contains(&value.into())
    };
    let has_retries = || within(&policy["retry_cnt"], RETRY_CNT);
    match (&case.policy, policy["kind"].as_str()) {
        (Policy::Ib, Some("ib")) => {
            let readings = policy["readings"].as_array();
            let is_one = |reading: &Value| {
                within(&reading["timeout"], case.timeout)
                    && reading["multiplier"] == 1
                    && reading["minimum_enforced"] != false
            };
            has_retries() && readings.is_some_and(|all| all.iter().any(is_one))
        }
        (Policy::Firmware, Some("firmware")) => {
            has_retries() && within(&policy["timeout"], case.timeout)
        }
        (Policy::Profile(_), Some("profile")) => {
            let cap = case.timeout.max(FLOOR);
            let mut waits = case.policy.waits();
            waits.insert(4_096 << cap);
            let uses = |step: &Value| step["uses"].as_u64().unwrap_or_default();
            let is_one = |step: &&Value| {
                let wait = step["wait_ns"].as_u64().unwrap_or_default();
                waits.iter().any(|one| wait.abs_diff(*one) <= one / 32)
            };
            let steps = policy["steps"].as_array().map_or(&[][..], Vec::as_slice);
            let right: u64 = steps.iter().filter(is_one).map(uses).sum();
            let is_cap = policy["capped_by_timeout"]
                .as_u64()
                .is_none_or(|it| it == u64::from(cap));
            is_cap && right * 10 >= steps.iter().map(uses).sum::<u64>() * 8
        }
        _ => false,
    }
}

/// Whether an answer leaves open what enough waits between retransmissions show.
fn is_undecided(answer: &Value) -> bool {
    let outages = answer["waits_ns"].as_array().map_or(&[][..], Vec::as_slice);
    let between = outages
        .iter()
        .flat_map(|waits| waits.as_array().into_iter().flatten().skip(1));
    let distinct = between.filter(|wait| wait.as_u64().unwrap_or_default() >= DISTINCT_NS);
    let is_open = ["undecided", "unknown"]
        .iter()
        .any(|sure| answer["sure"] == *sure);
    is_open && distinct.count() >= DECIDED_FROM
}

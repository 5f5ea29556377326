//! Queue pairs that are given a profile while they retransmit: their observed and their expected
//! waits.
//!
//! Many queue pairs in several processes send without a break. Their link has repeated blackouts,
//! and each time a profile is applied from outside while all of them retransmit. The captures show
//! when each packet was sent, and `ferroce adp trace` shows when it should have been.
//!
//! | module | purpose |
//! |---|---|
//! | `capture` | finds in the captures which messages were sent, how often, and when |
//! | `ladder` | compares the observed waits with those that `adp trace` prints |

mod capture;
mod ladder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::lab::{Lab, Running, until};
use capture::Message;
pub use ladder::Compared;
use ladder::{Ladder, Moment};

/// Processes, and queue pairs in each of them.
const CROWD: [u32; 2] = [8, 8];
/// The queue pairs' timeout and retry count.
const TIMEOUT: &str = "16";
const RETRY_CNT: &str = "7";
/// How long after the command the link goes dark, and for how long.
const DARK_AFTER: Duration = Duration::from_millis(50);
const DARK: Duration = Duration::from_millis(1200);
/// When the profile is applied, counted from the same command.
const APPLY_AFTER: Duration = Duration::from_millis(450);
/// How long it is light: enough for the last timers of the dark, and for messages that bring the
/// ladders back to where they begin.
const LIGHT: Duration = Duration::from_millis(800);
/// Messages, each sent at most twice, after which a ladder is known to be at its beginning.
const SETTLED_AFTER: usize = 10;
/// How long a packet may take from the timer that sends it to its time in the capture.
const STAMPED_WITHIN: Duration = Duration::from_millis(100);

/// What was seen of all queue pairs.
#[derive(Debug)]
pub struct Observation {
    /// Each wait that began while the link was dark.
    pub compared: Vec<Compared>,
    /// How often a queue pair was not compared during one darkness, since it is not known where on
    /// its ladder it was when that began.
    pub left_out: usize,
    /// How often the queue pairs were to be compared: each during each darkness.
    pub expected: usize,
    /// Messages that were sent, received and found right.
    pub messages: u64,
    /// How often the captures show a queue pair send again.
    pub repeats: u64,
    /// The device's counters by name.
    pub counters: BTreeMap<String, u64>,
    /// The device's histogram.
    pub bins: Vec<Bin>,
}

/// A bin of the histogram.
#[derive(Clone, Copy, Debug)]
pub struct Bin {
    /// Its first wait.
    pub low_ns: u64,
    /// Where the next one begins.
    pub high_ns: u64,
    /// How many waits are in it.
    pub count: u64,
}

impl Observation {
    /// A counter of the device.
    ///
    /// # Panics
    ///
    /// Panics if there is none of that name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters[name]
    }

    /// How many of the compared waits should be in a bin: those of adaptive retransmission.
    pub fn predicted_in(&self, bin: &Bin) -> u64 {
        let is_in = |ns: u64| (bin.low_ns..bin.high_ns).contains(&ns);
        let compared = self.compared.iter();
        let counted = compared.filter(|one| one.adaptive && is_in(one.predicted_ns));
        counted.count() as u64
    }
}

/// Runs the crowd of queue pairs, and applies the profiles of these names, files in `profiles/`, one
/// in each darkness.
///
/// # Panics
///
/// Panics if anything cannot be run, a message is lost or damaged, or a queue pair fails.
pub fn observe(lab: &Lab, profiles: &[&str]) -> Observation {
    let files: Vec<String> = profiles.iter().map(|name| copy(lab, name)).collect();
    lab.exact_timers();
    let program = lab.compile("ladders");
    let end = lab.path().join("end");
    let [processes, qps] = CROWD.map(|number| number.to_string());
    let running = lab.run_with(
        "--pcap ladders.pcapng",
        [
            program.to_str().expect("a plain path"),
            &processes,
            &qps,
            TIMEOUT,
            RETRY_CNT,
            end.to_str().expect("a plain path"),
        ],
    );
    let running = running.patiently((DARK_AFTER + DARK + LIGHT) * files.len() as u32);
    let all = (CROWD[0] * CROWD[1]) as usize;
    until("all queue pairs", || {
        let shown = lab.ferroce("-j res show qp fr0 state RTS");
        let shown: Value = serde_json::from_str(&shown.success()).ok()?;
        (shown["objects"].as_array()?.len() == all).then_some(())
    });
    thread::sleep(LIGHT);
    let shifts: Vec<Shift> = files.iter().map(|file| Shift::make(lab, file)).collect();
    lab.ferroce("impair set fr0 loss=2% --direction ingress")
        .success();
    thread::sleep(LIGHT);
    lab.ferroce("impair clear fr0").success();
    fs::write(&end, "").expect("own directory");
    let output = Output::parse(&Running::success(running));
    assert_eq!(output.qps.len(), all);

    let messages = capture::messages(&lab.path().join("state"));
    let repeats = messages.values().flatten().map(Message::repeats).sum();
    let mut old = Ladder::firmware(lab);
    let mut compared = Vec::new();
    for (number, (shift, file)) in shifts.iter().zip(&files).enumerate() {
        let new = Ladder::from_first_send(lab, file);
        for (qpn, peer) in &output.qps {
            let sent = messages.get(peer).map_or(&[][..], Vec::as_slice);
            if let Some(moment) = shift.moment(sent) {
                let posted_ns = output.posted_before(*qpn, moment.sent_ns[0]);
                let of = (number, *qpn);
                compared.extend(ladder::compare(of, &moment, posted_ns, &old, &new));
            }
        }
        old = vec![Ladder::settled(lab, file)];
    }
    let seen: BTreeSet<_> = compared.iter().map(|one| one.of).collect();
    let expected = all * shifts.len();
    let (counters, bins) = counted(lab);
    Observation {
        left_out: expected - seen.len(),
        expected,
        compared,
        messages: output.messages,
        repeats,
        counters,
        bins,
    }
}

/// A profile of ours where programs of every user can read it.
fn copy(lab: &Lab, name: &str) -> String {
    let profiles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles");
    let file = format!("{name}.toml");
    let copy = lab.path().join(&file);
    fs::copy(profiles.join(&file), &copy).expect("a profile of ours");
    copy.to_str().expect("a plain path").to_owned()
}

/// Counters and bins of the device.
fn counted(lab: &Lab) -> (BTreeMap<String, u64>, Vec<Bin>) {
    let shown = lab.ferroce("stat show -j fr0").success();
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let device = &shown["devices"][0];
    let counter = |(name, value): (&String, &Value)| Some((name.clone(), value.as_u64()?));
    let bins = device["histogram"]["bins"].as_array().expect("bins");
    let bin = |bin: &Value| Bin {
        low_ns: bin["low_ns"].as_u64().expect("a bin begins"),
        high_ns: bin["high_ns"].as_u64().unwrap_or(u64::MAX),
        count: bin["count"].as_u64().expect("a bin counts"),
    };
    let counters = device["counters"].as_object().expect("counters");
    let counters = counters.iter().filter_map(counter).collect();
    (counters, bins.iter().map(bin).collect())
}

/// One darkness, and the profile that was applied in it; nanoseconds since 1970.
#[derive(Debug)]
struct Shift {
    /// Until then it was dark for certain.
    dark_until_ns: u64,
    /// Between these the profile was applied.
    applied_ns: [u64; 2],
}

impl Shift {
    fn make(lab: &Lab, file: &str) -> Self {
        let (begun, begun_ns) = (Instant::now(), now_ns());
        let (dark, after) = (DARK.as_millis(), DARK_AFTER.as_millis());
        let spec = format!("down={dark}ms@{after}ms");
        // Where packets arrive: those that leave are in the captures.
        lab.ferroce(format!("impair set fr0 {spec} --direction ingress"))
            .success();
        sleep_until(begun + APPLY_AFTER);
        let applying_ns = now_ns();
        lab.ferroce(format!("adp apply {file} --device fr0"))
            .success();
        let applied_ns = now_ns();
        sleep_until(begun + DARK_AFTER + DARK + LIGHT);
        Self {
            dark_until_ns: begun_ns + (DARK_AFTER + DARK).as_nanos() as u64,
            applied_ns: [applying_ns, applied_ns],
        }
    }

    /// The message that a queue pair had under way when the profile came; `None` if its ladder may
    /// have been anywhere when the message left.
    fn moment<'a>(&self, messages: &'a [Message]) -> Option<Moment<'a>> {
        let [applying_ns, applied_ns] = self.applied_ns;
        let at = messages.partition_point(|message| message.sent_ns[0] < applying_ns);
        let (message, earlier) = messages[..at].split_last()?;
        let settled = earlier.len() >= SETTLED_AFTER
            && earlier
                .iter()
                .rev()
                .take(SETTLED_AFTER)
                .all(|one| one.repeats() <= 1);
        if !settled || !message.is_whole() || *message.sent_ns.last()? < applied_ns {
            return None;
        }
        // What ends a wait that began in the dark is the next packet, even if it is light then.
        let sent_ns = &message.sent_ns;
        let began = |before_ns: u64| sent_ns.partition_point(|at| *at < before_ns);
        let waits = began(self.dark_until_ns).min(sent_ns.len() - 1);
        // A packet is stamped when it has left. The wait begins a little earlier, and if a core was
        // missing in between, this may be before the profile came.
        let late_ns = applied_ns + STAMPED_WITHIN.as_nanos() as u64;
        let latest = began(late_ns).min(began(applied_ns) + 1);
        Some(Moment {
            sent_ns: &sent_ns[..=waits],
            before: began(applying_ns)..=latest,
        })
    }
}

/// What the program says at its end.
#[derive(Debug, Default)]
struct Output {
    /// Queue pairs, each with its peer.
    qps: BTreeMap<u32, u32>,
    messages: u64,
    /// When each queue pair was given a message that took long.
    slow: BTreeMap<u32, Vec<u64>>,
}

impl Output {
    fn parse(text: &str) -> Self {
        let mut output = Self::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').expect("a line has words");
            let numbers: Vec<u64> = rest.split(' ').flat_map(str::parse).collect();
            match (kind, &numbers[..]) {
                ("qp", &[qpn, peer, messages]) => {
                    output.qps.insert(qpn as u32, peer as u32);
                    output.messages += messages;
                }
                ("slow", &[qpn, posted_ns, _]) => {
                    output.slow.entry(qpn as u32).or_default().push(posted_ns);
                }
                _ => panic!("unexpected: {line}"),
            }
        }
        output
    }

    /// When a queue pair was given the message whose first packet left at `sent_ns`.
    fn posted_before(&self, qpn: u32, sent_ns: u64) -> u64 {
        let posted = self.slow.get(&qpn).into_iter().flatten();
        let posted = posted.filter(|posted_ns| **posted_ns <= sent_ns).max();
        *posted.expect("a message that waited in the dark was slow")
    }
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

fn now_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.expect("a clock after 1970").as_nanos() as u64
}

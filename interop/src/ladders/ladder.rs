//! Observed waits, and those that `ferroce adp trace` prints.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;

use super::{RETRY_CNT, TIMEOUT};
use crate::lab::{Lab, Running};

/// Waits that no darkness here gets to the end of.
const STEPS: usize = 60;
/// What a busy machine may add to one wait: a timer comes late, or its packet leaves late.
const LATE_MAX: Duration = Duration::from_millis(100);
/// Capture and program read the same clock, one of them by way of another that the system adjusts.
const CLOCKS: Duration = Duration::from_millis(1);

/// The waits of a queue pair that hears nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ladder(Vec<Step>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    wait_ns: u64,
    adaptive: bool,
}

impl Ladder {
    /// Those of a device without a profile, one for each initial wait. Progress leads back to it.
    pub(super) fn firmware(lab: &Lab) -> Vec<Self> {
        Self::drawn(lab, "--personality firmware")
    }

    /// Those of a profile from the first wait on, one for each that can be drawn.
    pub(super) fn from_first_send(lab: &Lab, file: &str) -> Vec<Self> {
        Self::drawn(lab, file)
    }

    fn drawn(lab: &Lab, policy: &str) -> Vec<Self> {
        let draw = |draw: u32| {
            let printed = trace(lab, &format!("{policy} --max {STEPS} --draw {draw}"));
            let printed = printed.finish();
            // There is no such draw.
            printed.status.success().then_some(())?;
            let trace = json(&printed.stdout);
            let waits = trace["waits"].as_array().expect("waits");
            Some(Self::of(&trace, waits.iter().map(|wait| &wait["wait_ns"])))
        };
        let ladders: Vec<_> = (0..).map_while(draw).collect();
        assert!(!ladders.is_empty(), "adp trace refuses {policy:?}");
        ladders
    }

    /// That of a profile after much progress.
    pub(super) fn settled(lab: &Lab, file: &str) -> Self {
        let events = [&["t"][..], &["a"; 60], &["t"; STEPS]].concat();
        let trace = json(&trace(lab, &format!("{file} --events {}", events.join(","))).success());
        let states = trace["states"].as_array().expect("states");
        Self::of(&trace, states[60..].iter().map(|state| &state["timer_ns"]))
    }

    /// A wait that is longer than the queue pair's own timeout is none of adaptive retransmission.
    fn of<'a>(trace: &Value, waits: impl Iterator<Item = &'a Value>) -> Self {
        let ack_timeout_ns = trace["ack_timeout_ns"].as_u64().unwrap_or(u64::MAX);
        let step = |wait_ns| Step {
            wait_ns,
            adaptive: wait_ns <= ack_timeout_ns,
        };
        Self(waits.filter_map(Value::as_u64).map(step).collect())
    }
}

fn trace(lab: &Lab, args: &str) -> Running {
    lab.ferroce(format!(
        "adp trace {args} -j --timeout {TIMEOUT} --retry-cnt {RETRY_CNT}"
    ))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// A queue pair in the dark, from its first send on.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    /// When the message left for the first time and again; each interval is a wait.
    pub(super) sent_ns: &'a [u64],
    /// How many of the waits may have begun before the profile was there.
    pub(super) before: RangeInclusive<usize>,
}

/// A wait as seen and as predicted.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Of which darkness, counted from 0, and of which queue pair.
    pub of: (usize, u32),
    /// Which of the waits since the message left first, counted from 0.
    pub place: usize,
    /// Whether the profile was there when it began.
    pub after: bool,
    /// Whether it is one of adaptive retransmission.
    pub adaptive: bool,
    /// How long it should have been.
    pub predicted_ns: u64,
    /// The time between the packets.
    pub observed_ns: u64,
    /// This wait and those before it.
    pub predicted_sum_ns: u64,
    /// From the program's request to the packet that ended this wait.
    pub since_request_ns: u64,
}

impl Compared {
    /// Observed minus predicted. It is negative by as much as the packet before left late.
    pub fn error_ns(&self) -> i64 {
        self.observed_ns.cast_signed() - self.predicted_ns.cast_signed()
    }

    /// Whether it agrees: late by no more than a busy machine may add, and together with the waits
    /// before it never early.
    pub fn agrees(&self) -> bool {
        let (late, clocks) = (LATE_MAX.as_nanos() as i64, CLOCKS.as_nanos() as u64);
        self.error_ns().abs() <= late && self.since_request_ns + clocks >= self.predicted_sum_ns
    }
}

/// Holds a queue pair's waits against its old ladder up to some wait, and a new one from there on:
/// those among the given ones that come nearest.
pub(super) fn compare(
    of: (usize, u32),
    moment: &Moment<'_>,
    posted_ns: u64,
    old: &[Ladder],
    new: &[Ladder],
) -> Vec<Compared> {
    let observed: Vec<u64> = moment
        .sent_ns
        .windows(2)
        .map(|two| two[1] - two[0])
        .collect();
    let mut candidates = Vec::new();
    for before in moment.before.clone() {
        let before = before.min(observed.len());
        for (old, new) in old
            .iter()
            .flat_map(|old| new.iter().map(move |new| (old, new)))
        {
            let steps = old.0.iter().take(before).chain(&new.0);
            let steps: Vec<Step> = steps.take(observed.len()).copied().collect();
            let pairs = steps.iter().zip(&observed);
            let error: u64 = pairs.map(|(step, seen)| step.wait_ns.abs_diff(*seen)).sum();
            candidates.push((error, before, steps));
        }
    }
    let nearest = candidates.into_iter().min_by_key(|(error, ..)| *error);
    let (_, before, steps) = nearest.expect("a range of splits is not empty");
    let mut predicted_sum_ns = 0;
    let compared = steps.iter().enumerate().map(|(place, step)| {
        predicted_sum_ns += step.wait_ns;
        Compared {
            of,
            place,
            after: place >= before,
            adaptive: step.adaptive,
            predicted_ns: step.wait_ns,
            observed_ns: observed[place],
            predicted_sum_ns,
            since_request_ns: moment.sent_ns[place + 1].saturating_sub(posted_ns),
        }
    });
    compared.collect()
}

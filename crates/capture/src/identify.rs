//! Finds the retransmission policies that explain a queue pair's waits.
//!
//! Each kind of policy is fitted to the waits, once with exact timers and once with those of a
//! card, and gets a likelihood; more complicated ones get a penalty. The answer includes all kinds
//! that come close to the best one: nothing is guessed.

mod firmware;
mod likelihood;
mod plain;
mod profile;

use std::ops::RangeInclusive;

use ferroce_time::Span;

pub use plain::Reading;
pub use profile::Step;

use crate::ladder::{Ladder, Start};
use likelihood::Sender;

/// Fewer waits are not enough to exclude what is not known.
const WAITS_MIN: usize = 4;
/// A single wait says nothing at all.
const WAITS_TOLD: usize = 2;
/// By how much a kind of policy must be likelier than the next one, as natural logarithms.
const LIKELY: f64 = 5.0;
const CERTAIN: f64 = 15.0;
/// A policy explains waits if they are as likely as this on average.
const EXPLAINS: f64 = -16.0;
/// Packets sent again sooner than this say nothing of timers: an answer may not have been captured, and
/// queues on the way may have drawn packets apart.
const SHORTEST: Span = Span::from_millis(1);

/// The policies that explain a queue pair's waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// How certain the answer is.
    pub sure: Sure,
    /// Policies that explain all waits, the most likely first.
    pub policies: Vec<Policy>,
    /// The number of waits.
    pub waits: usize,
}

/// How certain an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
    /// No known policy explains the waits, or there are fewer than two.
    No,
    /// Several kinds of policy explain them.
    Undecided,
    /// One kind explains them much better than the others.
    Likely,
    /// Only one kind explains them.
    Certain,
}

/// A policy that explains waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Plain InfiniBand: every wait is the queue pair's timeout, because adaptive retransmission is
    /// off.
    Plain {
        /// The possible meanings of the waits.
        readings: Vec<Reading>,
        /// The retry count.
        retry_cnt: RangeInclusive<u8>,
    },
    /// The firmware's own timeouts: adaptive retransmission without a profile.
    Firmware {
        /// The first wait is 4.096 us doubled this many times.
        first: u8,
        /// The longest adaptive wait is 4.096 us doubled this many times: the timeout with the
        /// enforced minimum. A range if the waits did not reach the maximum.
        top: RangeInclusive<u8>,
        /// Whether some waits are shortened to three quarters, as coarse timers do.
        coarse: bool,
        /// The retry count.
        retry_cnt: RangeInclusive<u8>,
    },
    /// An adaptive retransmission profile.
    Profile {
        /// The waits of the longest sequence, and how often each was used.
        steps: Vec<Step>,
        /// The queue pair's timeout, if it caps the profile's waits: 4.096 us doubled this many
        /// times.
        cap: Option<u8>,
    },
}

/// A policy, and how likely it makes the waits.
struct Explanation {
    score: f64,
    policy: Policy,
}

/// Finds the policies that explain one queue pair's waits.
#[must_use]
pub fn identify(ladders: &[Ladder]) -> Answer {
    let ladders: Vec<&Ladder> = ladders
        .iter()
        .filter(|ladder| is_evidence(ladder))
        .collect();
    let waits = ladders.iter().map(|ladder| ladder.waits.len()).sum();
    let mut found: Vec<Explanation> = [plain::explain, firmware::explain, profile::explain]
        .iter()
        .filter_map(|explain| {
            let of = |sender| explain(&ladders, sender);
            let all = Sender::ALL.into_iter().filter_map(of);
            all.max_by(|one, other| one.score.total_cmp(&other.score))
        })
        .filter(|found| waits >= WAITS_TOLD && found.score >= EXPLAINS * waits_in(waits))
        .collect();
    found.sort_by(|one, other| other.score.total_cmp(&one.score));
    let sure = match &found[..] {
        [] => Sure::No,
        _ if waits < WAITS_MIN => Sure::Undecided,
        [_] => Sure::Certain,
        [best, next, ..] => match best.score - next.score {
            lead if lead >= CERTAIN => Sure::Certain,
            lead if lead >= LIKELY => Sure::Likely,
            _ => Sure::Undecided,
        },
    };
    if sure >= Sure::Likely {
        found.truncate(1);
    } else if let Some(best) = found.first().map(|best| best.score) {
        found.retain(|found| best - found.score < CERTAIN);
    }
    Answer {
        sure,
        policies: found.into_iter().map(|found| found.policy).collect(),
        waits,
    }
}

#[expect(clippy::cast_precision_loss)]
fn waits_in(count: usize) -> f64 {
    count as f64
}

/// The best score, and all options that come near it.
fn best<T>(scored: impl Iterator<Item = (f64, T)>) -> Option<(f64, Vec<T>)> {
    let scored: Vec<(f64, T)> = scored.collect();
    let best = scored
        .iter()
        .map(|(score, _)| *score)
        .max_by(f64::total_cmp)?;
    let near = scored
        .into_iter()
        .filter(|(score, _)| best - score < LIKELY);
    Some((best, near.map(|(_, option)| option).collect()))
}

/// Whether the queue pair went back because of timers, and how long at least one of them ran. A single
/// wait of which only a bound is known says nothing.
fn is_evidence(ladder: &Ladder) -> bool {
    let first = usize::from(ladder.start != Start::Known);
    let known = ladder.waits.get(first..).unwrap_or_default();
    known.iter().any(|wait| *wait >= SHORTEST)
}

/// What lies in both ranges.
fn both(one: &RangeInclusive<u8>, other: &RangeInclusive<u8>) -> RangeInclusive<u8> {
    *one.start().max(other.start())..=*one.end().min(other.end())
}

/// The smallest range that holds both.
fn either(one: &RangeInclusive<u8>, other: &RangeInclusive<u8>) -> RangeInclusive<u8> {
    *one.start().min(other.start())..=*one.end().max(other.end())
}

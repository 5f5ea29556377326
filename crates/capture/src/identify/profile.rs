//! A profile: increasing waits of 4 us times powers of two, at most the queue pair's timeout.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use ferroce_adp::ack_timeout;
use ferroce_base::time::Span;

use super::likelihood::{Sender, within};
use super::{Explanation, Policy};
use crate::ladder::{End, Ladder, Start};

/// What a profile's time base is a multiple of.
const UNIT: Span = Span::from_micros(4);
/// Waits from 128 us, for shorter ones say nothing of timers, to ten days, the longest that makes sense.
const DOUBLINGS: RangeInclusive<u32> = 5..=38;
/// Each step is one of several that could follow.
const STEP: f64 = -2.0;
/// That a queue pair's timeout cuts the waits, and which.
const CAP: f64 = -12.0;

/// A wait, and how often it was used before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The wait.
    pub wait: Span,
    /// How often it was used.
    pub uses: usize,
}

pub(super) fn explain(ladders: &[&Ladder], sender: Sender) -> Option<Explanation> {
    let caps = std::iter::once(None).chain((1..=31).map(Some));
    let caps = caps.filter(|cap| cap.is_none_or(|cap| may_be_cap(cap, ladders)));
    let scored = caps.filter_map(|cap| {
        let timers = timers(cap);
        let paths: Vec<_> = ladders
            .iter()
            .map(|it| climb(it, &timers, sender))
            .collect();
        // One wait is no proof of a cap.
        let is_capped = |timer: &&Span| cap.and_then(ack_timeout) == Some(**timer);
        let capped = paths.iter().flatten().filter(is_capped).count();
        if cap.is_some() && capped < 2 {
            return None;
        }
        let seen = || ladders.iter().zip(&paths);
        let fit: f64 = seen().map(|(ladder, path)| fit(ladder, path, sender)).sum();
        let choices = choices(seen()) + if cap.is_some() { CAP } else { 0.0 };
        let longest = paths.into_iter().max_by_key(Vec::len)?;
        Some((fit, choices, cap, longest))
    });
    let (fit, choices, cap, path) =
        scored.max_by(|one, other| (one.0 + one.1).total_cmp(&(other.0 + other.1)))?;
    Some(Explanation {
        fit,
        choices,
        policy: Policy::Profile {
            steps: steps(&path),
            cap,
        },
    })
}

/// Whether at least two waits are about as long as this timeout: one is no proof of a cap.
fn may_be_cap(cap: u8, ladders: &[&Ladder]) -> bool {
    let cap = ack_timeout(cap).unwrap_or(Span::NEVER);
    let longest = cap / 10 * 13 + Span::from_millis(5);
    let is_near = |wait: &&Span| **wait >= cap / 10 * 8 && **wait <= longest;
    let waits = ladders.iter().flat_map(|ladder| &ladder.waits);
    waits.filter(is_near).nth(1).is_some()
}

/// The waits that are possible, the shortest first.
fn timers(cap: Option<u8>) -> Vec<Span> {
    let cap = cap.and_then(ack_timeout);
    let all = DOUBLINGS.map(|doublings| UNIT.doubled(doublings));
    match cap {
        None => all.collect(),
        Some(cap) => all.take_while(|timer| *timer < cap).chain([cap]).collect(),
    }
}

/// The likeliest timers behind a ladder's waits. They only grow, except after the first: a range may
/// begin below the initial timeout.
fn climb(ladder: &Ladder, timers: &[Span], sender: Sender) -> Vec<Span> {
    let mut scores: Vec<f64> = Vec::new();
    let mut came_from: Vec<Vec<usize>> = Vec::new();
    for at in 0..ladder.waits.len() {
        let before = if at == 0 {
            vec![0; timers.len()]
        } else {
            sources(&scores, at == 1)
        };
        let next = timers.iter().enumerate().map(|(step, timer)| {
            let from = before[step];
            let so_far = match at {
                0 => STEP,
                _ if from == step => scores[from],
                _ => scores[from] + STEP,
            };
            so_far + fit_of(ladder, at, *timer, sender)
        });
        scores = next.collect();
        came_from.push(before);
    }
    let last = scores
        .iter()
        .enumerate()
        .max_by(|one, other| one.1.total_cmp(other.1));
    let Some((mut step, _)) = last else {
        return Vec::new();
    };
    let mut path = Vec::new();
    for before in came_from.iter().rev() {
        path.push(timers[step]);
        step = before[step];
    }
    path.reverse();
    path
}

/// What the steps of these paths cost: each counts once, since all queue pairs have the same profile. A
/// first wait that is not known may be one of the others.
fn choices<'p>(paths: impl Iterator<Item = (&'p &'p Ladder, &'p Vec<Span>)> + Clone) -> f64 {
    let begun = paths
        .clone()
        .filter(|(ladder, _)| ladder.start == Start::Known);
    let begins: BTreeSet<Span> = begun
        .filter_map(|(_, path)| path.first().copied())
        .collect();
    let pairs = paths.flat_map(|(_, path)| path.windows(2));
    let steps: BTreeSet<&[Span]> = pairs.filter(|pair| pair[0] != pair[1]).collect();
    let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    STEP * count(begins.len() + steps.len())
}

/// How well a wait fits a timer.
fn fit_of(ladder: &Ladder, at: usize, timer: Span, sender: Sender) -> f64 {
    let wait = ladder.waits[at];
    let is_fatal = matches!(ladder.end, End::Failed) && at + 1 == ladder.waits.len();
    match at {
        // The total timeout cuts the last wait.
        _ if is_fatal && wait < timer => sender.wait(wait, timer).max(within(wait, timer)),
        0 => sender.first(ladder, timer),
        _ => sender.wait(wait, timer),
    }
}

/// How well a ladder's waits fit these timers.
fn fit(ladder: &Ladder, path: &[Span], sender: Sender) -> f64 {
    let waits = path.iter().enumerate();
    waits
        .map(|(at, timer)| fit_of(ladder, at, *timer, sender))
        .sum()
}

/// For each step the best one to come from: itself or a lower one, or any.
fn sources(scores: &[f64], any: bool) -> Vec<usize> {
    let better = |one: usize, other: usize| {
        if scores[other] > scores[one] {
            other
        } else {
            one
        }
    };
    let best_of_all = (0..scores.len()).reduce(better).unwrap_or(0);
    let mut best_below = 0;
    let of = |step: usize| {
        let other = if any { best_of_all } else { best_below };
        best_below = better(best_below, step);
        if scores[other] + STEP > scores[step] {
            other
        } else {
            step
        }
    };
    (0..scores.len()).map(of).collect()
}

fn steps(path: &[Span]) -> Vec<Step> {
    let runs = path.chunk_by(|one, other| one == other);
    runs.map(|run| Step {
        wait: run[0],
        uses: run.len(),
    })
    .collect()
}

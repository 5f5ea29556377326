//! Plain InfiniBand: the same wait every time.

use std::ops::RangeInclusive;

use ferroce_adp::ack_timeout;
use ferroce_base::time::Span;

use super::likelihood::{Sender, within};
use super::{Explanation, Policy, best, common, either};
use crate::ladder::{End, Ladder, Start};

/// The smallest timeout that cards enforce.
const FLOOR: u8 = 16;
/// A card without the enforced minimum sends nothing after its first wait, which is 0.51 to 1.16 of
/// the timeout (F15): on the wire the first two waits are one.
const FIRST_PERCENT: RangeInclusive<u64> = 150..=217;
/// One of 31 timeouts, once or twice.
const CHOICE: f64 = -4.0;

/// A possible meaning of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The queue pair's timeout.
    pub timeout: RangeInclusive<u8>,
    /// How many times its duration a timer runs; 2 on cards with adaptive retransmission off.
    pub multiplier: u8,
    /// Whether the minimum of 16 is enforced; `None` if that makes no difference.
    pub floor: Option<bool>,
    /// Whether the first wait is longer, as on a card without the enforced minimum.
    pub has_silent_expiry: bool,
}

pub(super) fn explain(ladders: &[&Ladder], sender: Sender) -> Option<Explanation> {
    let options = (1..=31).flat_map(|exponent| [(exponent, false), (exponent, true)]);
    let scored = options.filter_map(|(exponent, is_longer)| {
        let wait = ack_timeout(exponent)?;
        let retry_cnt = common(ladders.iter().map(|ladder| retries(ladder, wait)))?;
        let fit: f64 = ladders
            .iter()
            .map(|it| fit(it, wait, is_longer, sender))
            .sum();
        Some((fit, (exponent, is_longer, retry_cnt)))
    });
    let (fit, options) = best(scored)?;
    let mut readings: Vec<Reading> = Vec::new();
    let mut retry_cnt: Option<RangeInclusive<u8>> = None;
    for (exponent, is_longer, seen) in options {
        for reading in read(exponent, is_longer) {
            // A longer first wait is worth a word only if the wait was not of the usual length.
            let usual = Reading {
                has_silent_expiry: false,
                ..reading.clone()
            };
            if !readings.contains(&reading) && !readings.contains(&usual) {
                readings.push(reading);
            }
        }
        retry_cnt = Some(match retry_cnt {
            None => seen,
            Some(all) => either(&all, &seen),
        });
    }
    Some(Explanation {
        fit,
        choices: CHOICE,
        policy: Policy::Plain {
            readings,
            retry_cnt: retry_cnt?,
        },
    })
}

fn fit(ladder: &Ladder, wait: Span, is_longer: bool, sender: Sender) -> f64 {
    let rest: f64 = ladder
        .waits
        .iter()
        .skip(1)
        .map(|it| sender.wait(*it, wait))
        .sum();
    let Some(first) = ladder.waits.first() else {
        return rest;
    };
    let low = wait / 100 * *FIRST_PERCENT.start();
    let high = wait / 100 * *FIRST_PERCENT.end();
    let is_within = (low..=high).contains(first);
    rest + match is_longer && is_within && ladder.start == Start::Known && sender == Sender::Card {
        true => within(*first, high - low),
        false => sender.first(ladder, wait),
    }
}

/// Retry counts with which a ladder ends as it did.
fn retries(ladder: &Ladder, wait: Span) -> RangeInclusive<u8> {
    let sent = u8::try_from(ladder.waits.len()).unwrap_or(u8::MAX);
    match ladder.end {
        _ if ladder.is_midway => sent..=7,
        End::Silent { for_ns } if Span::from_nanos(for_ns) > wait * 2 => sent..=sent,
        End::Silent { .. } | End::Unknown { .. } | End::Answered { .. } => sent..=7,
        End::Failed => sent.saturating_sub(1)..=sent.saturating_sub(1),
    }
}

fn read(exponent: u8, has_silent_expiry: bool) -> Vec<Reading> {
    let reading = |timeout: RangeInclusive<u8>, multiplier, floor| Reading {
        timeout,
        multiplier,
        floor,
        has_silent_expiry,
    };
    let of = |timeout: u8, multiplier| match timeout {
        0 => Vec::new(),
        // Without the minimum only.
        _ if has_silent_expiry || timeout < FLOOR => {
            vec![reading(timeout..=timeout, multiplier, Some(false))]
        }
        FLOOR => vec![
            reading(1..=FLOOR, multiplier, Some(true)),
            reading(FLOOR..=FLOOR, multiplier, Some(false)),
        ],
        _ => vec![reading(timeout..=timeout, multiplier, None)],
    };
    let mut all = of(exponent, 1);
    // Only with the enforced minimum do cards wait twice as long.
    if !has_silent_expiry && exponent > FLOOR {
        let twice = of(exponent - 1, 2);
        all.extend(
            twice
                .into_iter()
                .filter(|reading| reading.floor != Some(false)),
        );
    }
    all
}

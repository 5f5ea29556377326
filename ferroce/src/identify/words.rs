//! Answers as text and as JSON.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use ferroce_base::time::Span;
use ferroce_capture::{
    Answer, End, Failures, Ladder, Log, Policy, Reading, Start, Step, Sure, Tolerant, Tolerates,
    Way,
};

use super::sure;
use crate::json::capture as json;
use crate::output::lines::Lines;
use crate::output::lines::grouped;

/// The most waits shown of the longest outage.
const WAITS_MAX: usize = 24;
/// The most interpretations of a wait that are listed.
const READINGS_MAX: usize = 5;
/// The most explanations of failures that are shown.
const TOLERATES_MAX: usize = 6;

/// An answer in lines of 80 columns; `left_out` outages are not shown.
pub(super) fn answer(answer: &Answer, ladders: &[Ladder], left_out: u64) -> String {
    let mut lines = Lines::default();
    if let Some(longest) = ladders.iter().max_by_key(|ladder| ladder.weight()) {
        lines.add("waits", &waits(longest));
        if ladders.len() > 1 {
            let all = format!(
                "the longest of {} outages; {} waits in all",
                ladders.len(),
                answer.waits
            );
            lines.add("", &all);
        }
        if left_out > 0 {
            let shorter = format!("{} shorter outages are left out", grouped(left_out));
            lines.add("", &shorter);
        }
    }
    lines.add("answer", &verdict(answer));
    let labels = match answer.sure {
        Sure::Likely => ["policy", "or"],
        _ => ["policy"; 2],
    };
    for (at, policy) in answer.policies.iter().enumerate() {
        let (kind, facts) = in_words(policy);
        lines.add(labels[at.min(1)], kind);
        for fact in facts {
            lines.add("", &fact);
        }
    }
    lines.text
}

fn verdict(answer: &Answer) -> String {
    match (answer.sure, answer.policies.len()) {
        (Sure::No, _) if answer.waits < 2 => {
            "unknown: one wait says nothing; capture a longer outage".to_owned()
        }
        (Sure::No, _) => {
            "unknown: neither plain InfiniBand, a card's firmware nor a profile explains these waits"
                .to_owned()
        }
        (Sure::Undecided, 1) => format!(
            "undecided: one policy explains {}, which is too few to exclude others",
            waits_in_words(answer.waits)
        ),
        (Sure::Undecided, kinds) => format!(
            "undecided: {kinds} kinds of policy explain {}",
            waits_in_words(answer.waits)
        ),
        (Sure::Likely, 1) => format!(
            "likely: it explains {} much better than other policies",
            waits_in_words(answer.waits)
        ),
        (Sure::Likely, kinds) => format!(
            "likely: the simplest of {kinds} kinds of policy that explain {}",
            waits_in_words(answer.waits)
        ),
        (Sure::Certain, _) => format!(
            "certain: no other kind of policy explains {}",
            waits_in_words(answer.waits)
        ),
    }
}

fn waits_in_words(count: usize) -> String {
    match count {
        1 => "the only wait".to_owned(),
        count => format!("the {count} waits"),
    }
}

/// `8.2 ms x2, 16.8 ms`
fn waits(ladder: &Ladder) -> String {
    let mut parts: Vec<(String, usize)> = Vec::new();
    for wait in &ladder.waits {
        let wait = wait.about().to_string();
        match parts.last_mut() {
            Some((last, uses)) if *last == wait => *uses += 1,
            _ => parts.push((wait, 1)),
        }
    }
    let left_out = parts.len().saturating_sub(WAITS_MAX);
    let shown = parts
        .iter()
        .take(WAITS_MAX)
        .map(|(wait, uses)| times(wait, *uses));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if left_out > 0 {
        let _ = write!(text, ", and {left_out} more");
    }
    match ladder.start {
        Start::Known => {}
        Start::NotBefore => text += " (the first may have been shorter)",
        Start::Unknown => text += " (the first is not known)",
    }
    match ladder.end {
        End::Answered { .. } => text + ", then answered",
        End::Silent { for_ns: 0 } => text,
        End::Unknown { for_ns } | End::Silent { for_ns } => {
            format!(
                "{text}, then nothing for {}",
                Span::from_nanos(for_ns).about()
            )
        }
        End::Failed => text + ", the last one fatal",
    }
}

fn times(wait: &str, uses: usize) -> String {
    match uses {
        1 => wait.to_owned(),
        uses => format!("{wait} x{uses}"),
    }
}

/// A policy's name, and what is known of it.
fn in_words(policy: &Policy) -> (&'static str, Vec<String>) {
    match policy {
        Policy::Plain {
            readings,
            retry_cnt,
        } => {
            let mut facts: Vec<String> = match readings.len() {
                0..=READINGS_MAX => readings.iter().map(reading).collect(),
                _ => vec!["QP timeout not known".to_owned()],
            };
            facts.push(retries(retry_cnt));
            ("plain InfiniBand: no adaptive retransmission", facts)
        }
        Policy::Firmware {
            first,
            top,
            coarse,
            retry_cnt,
        } => {
            let begins = match first.and_then(ferroce_adp::ack_timeout) {
                Some(begins) => format!("begins with {} and doubles", begins.about()),
                None => "doubles, its beginning was not captured".to_owned(),
            };
            let mut facts = vec![format!(
                "{begins}{}",
                if *coarse {
                    "; some waits are cut to 3/4, as a card's coarse timer does"
                } else {
                    ""
                },
            )];
            facts.push(match (*top.start(), *top.end()) {
                (16, 16) => {
                    "QP timeout 1 to 16: the enforced minimum of 16 makes them the same".to_owned()
                }
                (16, 31) => "QP timeout not known: the waits do not reach it".to_owned(),
                (low, high) if low == high => format!("QP timeout {low}"),
                (16, high) => format!("QP timeout at most {high}"),
                (low, 31) => format!("QP timeout at least {low}"),
                (low, high) => format!("QP timeout {low} to {high}"),
            });
            facts.push(retries(retry_cnt));
            (
                "a card's firmware: adaptive retransmission without a profile",
                facts,
            )
        }
        Policy::Profile { steps, cap } => {
            let shown = steps.iter().take(WAITS_MAX);
            let shown = shown.map(|Step { wait, uses }| times(&wait.about().to_string(), *uses));
            let mut facts = vec![format!(
                "its waits: {}",
                shown.collect::<Vec<_>>().join(", ")
            )];
            if let Some(cap) = cap {
                facts.push(match cap {
                    16 => "cut by the QP timeout: 1 to 16, or no minimum and 16".to_owned(),
                    cap => format!("cut by the QP timeout {cap}"),
                });
            }
            ("a profile of adaptive retransmission", facts)
        }
    }
}

fn reading(reading: &Reading) -> String {
    let timeout = range(&reading.timeout);
    let mut text = format!("QP timeout {timeout}");
    match (reading.floor, *reading.timeout.end()) {
        (Some(true), _) => text += " with the enforced minimum of 16",
        (Some(false), _) => text += " without the enforced minimum",
        (None, _) => {}
    }
    if reading.multiplier > 1 {
        let _ = write!(
            text,
            ", a timer running for {} times as long",
            reading.multiplier
        );
    }
    if reading.has_silent_expiry {
        text += ", a longer first wait as cards have it";
    }
    text
}

fn retries(retry_cnt: &RangeInclusive<u8>) -> String {
    match (*retry_cnt.start(), *retry_cnt.end()) {
        (0, 7) => "retry_cnt not known".to_owned(),
        (low, 7) if low < 7 => format!("retry_cnt at least {low}"),
        _ => format!("retry_cnt {}", range(retry_cnt)),
    }
}

fn range(range: &RangeInclusive<u8>) -> String {
    match (range.start(), range.end()) {
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low} to {high}"),
    }
}

/// Failures of a log, in lines.
pub(super) fn failures(log: &Log, found: Option<&Failures>) -> String {
    let mut lines = Lines::default();
    let count: usize = log.failures.values().map(Vec::len).sum();
    let mut seen = format!("{count} in {} lines with the error", grouped(log.errors));
    if log.untimed > 0 {
        let _ = write!(seen, ", {} without a time", grouped(log.untimed));
    }
    lines.add("failures", &seen);
    let Some(found) = found else {
        lines.add(
            "answer",
            "unknown: one failure alone says nothing; what counts is the time from one failure to the next",
        );
        return lines.text;
    };
    let again = match found.repeated {
        1 => "not repeated".to_owned(),
        n => format!("{n} times"),
    };
    lines.add(
        "apart",
        &format!("{} s, {again}", found.gap.as_nanos() as f64 / 1e9),
    );
    let verdict = match (found.policies.len(), found.repeated) {
        (0, _) => {
            "unknown: no policy tolerates silence exactly so long; the program may have waited before it tried again"
        }
        (_, 1) => "undecided: it may be chance, for the time was seen once",
        (1, _) => "likely: one policy tolerates silence exactly so long",
        _ => "undecided between these, the commonest first:",
    };
    lines.add("answer", verdict);
    for tolerates in found.policies.iter().take(TOLERATES_MAX) {
        let Tolerates {
            policy,
            timeout,
            retry_cnt,
            total,
        } = tolerates;
        let kind = match policy {
            Tolerant::Firmware => "a card's firmware".to_owned(),
            Tolerant::Plain { multiplier, floor } => {
                let timer = match multiplier {
                    1 => String::new(),
                    n => format!(", timers {n} times as long"),
                };
                let floor = match floor {
                    Some(true) => ", minimum of 16 enforced",
                    Some(false) => ", no minimum",
                    None => "",
                };
                format!("plain InfiniBand{timer}{floor}")
            }
        };
        let line = format!(
            "{kind}: timeout {}, retry_cnt {retry_cnt} fail after {} s",
            range(timeout),
            total.as_nanos() as f64 / 1e9
        );
        lines.add("policy", &line);
    }
    lines.text
}

/// An answer for programs, and which way of a capture it is of.
pub(super) fn document(
    way: Option<&Way>,
    answer: &Answer,
    ladders: &[Ladder],
    left_out: u64,
) -> json::Answer {
    let waits = |ladder: &Ladder| ladder.waits.iter().map(|wait| wait.as_nanos()).collect();
    json::Answer {
        from: way.map(|way| way.key.from.to_string()),
        to: way.map(|way| way.key.to.to_string()),
        src_qpn: way.and_then(|way| Some(way.src_qp?.value())),
        dest_qpn: way.map(|way| way.key.dest_qp.value()),
        sure: sure(answer),
        waits: answer.waits,
        outages_left_out: left_out,
        waits_ns: ladders.iter().map(waits).collect(),
        policies: answer.policies.iter().map(policy).collect(),
    }
}

fn ends(range: &RangeInclusive<u8>) -> [u8; 2] {
    [*range.start(), *range.end()]
}

fn policy(policy: &Policy) -> json::Policy {
    match policy {
        Policy::Plain {
            readings,
            retry_cnt,
        } => json::Policy::Ib {
            readings: readings
                .iter()
                .map(|it| json::Reading {
                    timeout: ends(&it.timeout),
                    multiplier: it.multiplier,
                    minimum_enforced: it.floor,
                    longer_first_wait: it.has_silent_expiry,
                })
                .collect(),
            retry_cnt: ends(retry_cnt),
        },
        Policy::Firmware {
            first,
            top,
            coarse,
            retry_cnt,
        } => json::Policy::Firmware {
            first_wait_ns: first.and_then(ferroce_adp::ack_timeout).map(Span::as_nanos),
            timeout: if *top.start() == 16 {
                [1, *top.end()]
            } else {
                ends(top)
            },
            coarse_timer: *coarse,
            retry_cnt: ends(retry_cnt),
        },
        Policy::Profile { steps, cap } => json::Policy::Profile {
            steps: steps
                .iter()
                .map(|step| json::Step {
                    wait_ns: step.wait.as_nanos(),
                    uses: step.uses,
                })
                .collect(),
            capped_by_timeout: *cap,
        },
    }
}

/// What a log says, for programs.
pub(super) fn log_document(log: &Log, found: Option<&Failures>) -> json::Failures {
    let policies = found.map_or(&[][..], |found| &found.policies);
    let failures = log.failures.iter();
    json::Failures {
        lines: log.lines,
        errors: log.errors,
        untimed: log.untimed,
        failures_ns: failures
            .map(|(peer, at)| (peer.clone(), at.clone()))
            .collect(),
        apart_ns: found.map(|found| found.gap.as_nanos()),
        repeated: found.map_or(0, |found| found.repeated),
        policies: policies.iter().map(tolerates).collect(),
    }
}

fn tolerates(it: &Tolerates) -> json::Tolerates {
    let (kind, multiplier, minimum_enforced) = match it.policy {
        Tolerant::Firmware => ("firmware", None, Some(true)),
        Tolerant::Plain { multiplier, floor } => ("ib", Some(multiplier), floor),
    };
    json::Tolerates {
        kind,
        multiplier,
        minimum_enforced,
        timeout: ends(&it.timeout),
        retry_cnt: it.retry_cnt,
        total_ns: it.total.as_nanos(),
    }
}

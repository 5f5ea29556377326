//! Finds policies from the time between failures: a program that retries immediately fails again
//! after as long as its policy tolerates silence.

use std::ops::RangeInclusive;

use ferroce_adp::ack_timeout;
use ferroce_base::time::Span;

/// The smallest timeout that cards enforce.
const FLOOR: u8 = 16;
/// How far times may be from what a policy says, in ten thousandths, early and late: a program takes
/// a moment to try again.
const EARLY: u64 = 10;
const LATE: u64 = 30;
/// Retry counts as programs set them, the commonest first.
const RETRY_CNTS: [u8; 7] = [7, 6, 5, 4, 3, 2, 1];

/// A policy that tolerates silence for about the observed time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tolerates {
    /// The kind of policy.
    pub policy: Tolerant,
    /// The queue pair's timeout.
    pub timeout: RangeInclusive<u8>,
    /// Its retry count.
    pub retry_cnt: u8,
    /// How long it tolerates silence.
    pub total: Span,
}

/// A kind of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerant {
    /// The firmware's own timeouts.
    Firmware,
    /// Plain InfiniBand: every wait is the timeout.
    Plain {
        /// How many times the timeout's duration a timer runs.
        multiplier: u8,
        /// Whether the minimum of 16 is enforced; `None` if that makes no difference.
        floor: Option<bool>,
    },
}

/// The policies that explain the times between failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures {
    /// The time that occurs repeatedly, or else the shortest.
    pub gap: Span,
    /// How many times have that length, within a thousandth.
    pub repeated: usize,
    /// Policies that tolerate silence for that long, the most common first.
    pub policies: Vec<Tolerates>,
}

/// Finds the policies that explain the times between failures. Returns `None` if there are no
/// times.
#[must_use]
pub fn explain_failures(gaps: &[Span]) -> Option<Failures> {
    let like = |one: Span| {
        gaps.iter()
            .filter(|gap| is_near(**gap, one, EARLY, EARLY))
            .count()
    };
    // The one that repeats most, the shortest of those.
    let key = |gap: &&Span| (like(**gap), std::cmp::Reverse(**gap));
    let gap = *gaps.iter().max_by_key(key)?;
    let policies = candidates().filter(|it| is_near(gap, it.total, EARLY, LATE));
    Some(Failures {
        gap,
        repeated: like(gap),
        policies: policies.collect(),
    })
}

fn is_near(gap: Span, total: Span, early: u64, late: u64) -> bool {
    gap + total / 10_000 * early >= total && gap <= total + total / 10_000 * late
}

fn candidates() -> impl Iterator<Item = Tolerates> {
    RETRY_CNTS.into_iter().flat_map(|retry_cnt| {
        let firmware = (FLOOR..=31).map(move |top| Tolerates {
            policy: Tolerant::Firmware,
            timeout: if top == FLOOR { 1..=FLOOR } else { top..=top },
            retry_cnt,
            total: n(top) * 2 * u64::from(retry_cnt),
        });
        let plain = [1, 2].into_iter().flat_map(move |multiplier| {
            (1..=31).filter_map(move |timeout| {
                let (timeouts, floor) = match timeout {
                    // Only with the enforced minimum do cards wait twice as long.
                    _ if multiplier == 2 && timeout < FLOOR => return None,
                    FLOOR => (1..=FLOOR, Some(true)),
                    timeout if timeout < FLOOR => (timeout..=timeout, Some(false)),
                    timeout => (timeout..=timeout, None),
                };
                Some(Tolerates {
                    policy: Tolerant::Plain { multiplier, floor },
                    timeout: timeouts,
                    retry_cnt,
                    total: n(timeout) * u64::from(multiplier) * (u64::from(retry_cnt) + 1),
                })
            })
        });
        firmware.chain(plain)
    })
}

fn n(timeout: u8) -> Span {
    ack_timeout(timeout).unwrap_or(Span::NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mooncake issue 35 (spec card-faults, section 2): four errors in one log.
    #[test]
    fn a_firmware_with_the_enforced_minimum() {
        let gaps = [3_757_829, 3_758_142, 3_758_080].map(Span::from_micros);
        let found = explain_failures(&gaps).unwrap();
        assert_eq!(found.repeated, 3);
        let first = &found.policies[0];
        assert_eq!(first.policy, Tolerant::Firmware);
        assert_eq!((first.timeout.clone(), first.retry_cnt), (1..=16, 7));
        // It may as well be another retry count of plain InfiniBand.
        assert!(found.policies.len() > 1);
    }

    #[test]
    fn times_that_fit_nothing() {
        let found = explain_failures(&[Span::from_secs(1)]).unwrap();
        assert_eq!((found.repeated, found.policies.len()), (1, 0));
        assert_eq!(explain_failures(&[]), None);
    }
}

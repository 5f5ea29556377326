//! Policies beside each other, over many outages, in virtual time.
//!
//! One queue pair at a time: something is outstanding when the link goes down, which is the worst
//! moment, and it has made enough progress before to be at the lower end of its ladder. It is back
//! when the first retransmission leaves on a link that is up. Packets that are lost on a link that
//! is up are not modelled here.

use std::vec::Vec;

use ferroce_time::{Span, Time};

use crate::policy::{Policy, QpTimeouts};
use crate::state::{Expiry, RetryState};

/// Acknowledgements that take a ladder back to its lower end: more than any has steps.
const PROGRESS: usize = 1_024;

/// Once and again the link goes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Train {
    /// How long it is down each time.
    pub down: Span,
    /// How long it is up in between.
    pub up: Span,
    /// How many times it goes down.
    pub count: u32,
}

impl Train {
    /// A single outage.
    #[must_use]
    pub const fn once(down: Span) -> Self {
        Self {
            down,
            up: Span::NEVER,
            count: 1,
        }
    }

    /// The outage that this moment lies in, if it does: when it ends.
    fn ends_after(&self, at: Time) -> Option<Time> {
        let since = at.since(Time::ZERO);
        let period = self.down + self.up;
        let flap = since / period;
        if flap >= self.count.into() || since - period * flap >= self.down {
            return None;
        }
        Some(Time::ZERO.after(period * flap + self.down))
    }

    /// When the link goes down next; `None` if it does not any more.
    fn next_down(&self, at: Time) -> Option<Time> {
        let period = self.down + self.up;
        let flap = at.since(Time::ZERO) / period + 1;
        (flap < self.count.into()).then(|| Time::ZERO.after(period * flap))
    }
}

/// What became of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Whether it never gave up.
    pub survived: bool,
    /// How long it made no progress, all outages together.
    pub lost: Span,
    /// How long the link had been up before the QP used it, the worst time.
    pub resumed_after: Span,
    /// How many times it retransmitted into a link that was down.
    pub retransmissions: u64,
}

/// Lets a queue pair live through a train of outages. Its number decides what it draws.
#[must_use]
pub fn fate(policy: &Policy, qp: QpTimeouts, qpn: u32, train: &Train) -> Fate {
    let mut found = Fate {
        survived: true,
        lost: Span::ZERO,
        resumed_after: Span::ZERO,
        retransmissions: 0,
    };
    let mut state = RetryState::new(policy, qp, qpn);
    let mut down = Time::ZERO;
    loop {
        for _ in 0..PROGRESS {
            state.on_progress(policy, down);
        }
        let Some(resumed) = resumed(policy, &mut state, down, train, &mut found) else {
            found.survived = false;
            return found;
        };
        found.lost += resumed.since(down);
        match train.next_down(resumed) {
            Some(next) => down = next,
            None => return found,
        }
    }
}

/// When the first retransmission leaves on a link that is up; `None` if the QP gives up before.
fn resumed(
    policy: &Policy,
    state: &mut RetryState,
    down: Time,
    train: &Train,
    found: &mut Fate,
) -> Option<Time> {
    let limit = state.total(policy).unwrap_or(Span::NEVER);
    let mut now = down;
    let mut ended = train.ends_after(down);
    loop {
        let wait = state.wait(policy, now)?;
        // Equal waits that all end while the link is down are taken at once.
        let dark = ended.map_or(Span::ZERO, |end| end.since(now));
        let room = dark.min(limit - now.since(down)) - Span::from_picos(1);
        let repeats = state
            .repeats(policy)
            .min(room / wait.max(Span::from_picos(1)));
        if repeats > 0 {
            state.skip(repeats);
            now = now.after(wait * repeats);
            found.retransmissions = found.retransmissions.saturating_add(repeats);
            continue;
        }
        now = now.after(wait);
        let sends = match state.on_timeout(policy, now) {
            Expiry::Fatal => return None,
            Expiry::Initial => false,
            Expiry::Retransmit { .. } => true,
        };
        match train.ends_after(now) {
            Some(end) => {
                ended = Some(end);
                found.retransmissions += u64::from(sends);
            }
            None if sends => {
                let up = ended.map_or(Span::ZERO, |end| now.since(end));
                found.resumed_after = found.resumed_after.max(up);
                return Some(now);
            }
            None => {}
        }
    }
}

/// How the jobs of a policy fared. What dies has lost [`Span::NEVER`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fared {
    /// The share of jobs that survived, 0 to 1.
    pub survived: f64,
    /// Time without progress, of all jobs: median and 99 of 100.
    pub lost: [Span; 2],
    /// How long the link had been up before it was used, of the jobs that survived: the same.
    pub resumed_after: [Span; 2],
    /// Retransmissions into a link that was down, on average.
    pub retransmissions: f64,
}

/// Lets one queue pair live through each of the trains.
#[must_use]
pub fn compare(policy: &Policy, qp: QpTimeouts, trains: &[Train]) -> Fared {
    let fates: Vec<Fate> = (0u32..)
        .zip(trains)
        .map(|(qpn, train)| fate(policy, qp, qpn, train))
        .collect();
    let survivors = fates.iter().filter(|fate| fate.survived);
    let lost = fates.iter().map(|fate| match fate.survived {
        true => fate.lost,
        false => Span::NEVER,
    });
    let count = fates.len().max(1) as f64;
    let retransmissions: f64 = fates.iter().map(|fate| fate.retransmissions as f64).sum();
    Fared {
        survived: survivors.clone().count() as f64 / count,
        lost: percentiles(lost.collect()),
        resumed_after: percentiles(survivors.map(|fate| fate.resumed_after).collect()),
        retransmissions: retransmissions / count,
    }
}

/// Median and 99 of 100; [`Span::NEVER`] of nothing.
fn percentiles(mut spans: Vec<Span>) -> [Span; 2] {
    spans.sort_unstable();
    [50, 99].map(|percent| {
        let at = (spans.len() * percent).div_ceil(100).saturating_sub(1);
        spans.get(at).copied().unwrap_or(Span::NEVER)
    })
}

/// So many outages with a lognormal length: evenly spread over its quantiles, so that nothing is
/// drawn.
#[must_use]
pub fn lognormal(median: Span, p99: Span, count: u32) -> Vec<Train> {
    /// The standard normal distribution's 99th percentile.
    const Z99: f64 = 2.326_347_874_040_841;
    let sigma = (p99.as_picos() as f64 / median.as_picos().max(1) as f64).ln() / Z99;
    let length = |at: u32| {
        let quantile = (f64::from(at) + 0.5) / f64::from(count);
        let ps = median.as_picos() as f64 * (sigma * normal_quantile(quantile)).exp();
        // Saturates, and is never negative.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let ps = ps as u64;
        Train::once(Span::from_picos(ps.max(1)))
    };
    (0..count).map(length).collect()
}

/// The standard normal distribution's quantile, by bisection of its distribution function.
fn normal_quantile(quantile: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        match normal(middle) < quantile {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high)
}

/// The standard normal distribution function: the series of Marsaglia (2004), exact to the last
/// digits of a double.
fn normal(z: f64) -> f64 {
    let (mut sum, mut term, mut n) = (z, z, 1.0);
    while sum + term != sum && n < 1_000.0 {
        n += 2.0;
        term *= z * z / n;
        sum += term;
    }
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (0.5 + sum * density).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_normal_distribution() {
        for (quantile, z) in [
            (0.5, 0.0),
            (0.99, 2.326_348),
            (0.01, -2.326_348),
            (0.975, 1.959_964),
        ] {
            let found = normal_quantile(quantile);
            assert!((found - z).abs() < 1e-5, "{quantile}: {found}");
        }
    }

    #[test]
    fn a_lognormal_distribution_has_its_median_and_its_tail() {
        let outages = lognormal(Span::from_millis(300), Span::from_secs(20), 1_000);
        let near = |at: usize, ms: u64| {
            let found = outages[at].down.as_nanos() / 1_000_000;
            assert!(found.abs_diff(ms) <= ms / 20, "{at}: {found}");
        };
        near(500, 300);
        near(990, 20_000);
        assert!(outages.is_sorted_by_key(|train| train.down));
    }
}

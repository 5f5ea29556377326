//! The results of a policy's jobs.

use ferroce_adp::{Policy, QpTimeouts};
use ferroce_base::random::mix;
use ferroce_base::time::Span;
use rayon::prelude::*;

use crate::outages::Train;
use crate::pair::{Fate, Link, TrialError, fate};

/// The result of a job that experienced outages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The result of its queue pair.
    pub fate: Fate,
    /// The number of outages it experienced.
    pub outages: u32,
}

impl Job {
    fn lost_per_outage(&self) -> Span {
        self.fate.lost / u64::from(self.outages.max(1))
    }
}

/// The results of a policy's jobs. A job that dies has lost [`Span::NEVER`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fared {
    /// The number of jobs.
    pub jobs: usize,
    /// The share of them that survived, 0 to 1.
    pub survived: f64,
    /// Time lost per outage, for all jobs: median and 99th percentile.
    pub lost: [Span; 2],
    /// Mean time lost per outage, for jobs that survived.
    pub lost_mean: Span,
    /// How long the link had been up again before anything was sent, for jobs that survived: median
    /// and 99th percentile.
    pub resumed_after: [Span; 2],
    /// Mean number of retransmissions per outage.
    pub retransmissions: f64,
    /// Mean number of these that were spurious.
    pub spurious: f64,
    /// Spurious retransmissions as a share of all packets sent.
    pub spurious_share: f64,
}

impl Fared {
    /// Returns the mean time lost per outage, if the death of a job costs this much.
    #[must_use]
    pub fn cost(&self, death: Span) -> Span {
        let mean = self.survived * self.lost_mean.as_picos() as f64
            + (1.0 - self.survived) * death.as_picos() as f64;
        // The cast saturates.
        Span::from_picos(mean as u64)
    }

    /// Computes the figures of these jobs.
    #[must_use]
    pub fn of(jobs: &[Job]) -> Self {
        let survivors: Vec<_> = jobs.iter().filter(|it| it.fate.survived).collect();
        let lost = jobs.iter().map(|it| match it.fate.survived {
            true => it.lost_per_outage(),
            false => Span::NEVER,
        });
        let picos = survivors
            .iter()
            .map(|it| it.lost_per_outage().as_picos() as f64);
        let lost_mean = picos.sum::<f64>() / survivors.len().max(1) as f64;
        let resumed = survivors.iter().map(|it| it.fate.resumed_after);
        let outages: f64 = jobs.iter().map(|it| f64::from(it.outages)).sum();
        let outages = outages.max(1.0);
        let sum = |of: fn(&Fate) -> u64| jobs.iter().map(|it| of(&it.fate) as f64).sum::<f64>();
        let spurious = sum(|it| it.spurious);
        Self {
            jobs: jobs.len(),
            survived: survivors.len() as f64 / jobs.len().max(1) as f64,
            lost: percentiles(lost.collect()),
            // The cast saturates.
            lost_mean: Span::from_picos(lost_mean as u64),
            resumed_after: percentiles(resumed.collect()),
            retransmissions: sum(|it| it.retransmissions) / outages,
            spurious: spurious / outages,
            spurious_share: spurious / sum(|it| it.packets).max(1.0),
        }
    }
}

/// Runs one queue pair through each of the trains, on all processors.
///
/// # Errors
/// Returns an error if the policy retransmits more often than can be simulated, or not at all.
pub fn jobs(
    policy: &Policy,
    qp: QpTimeouts,
    link: &Link,
    trains: &[Train],
    seed: u64,
) -> Result<Vec<Job>, TrialError> {
    let job = |(at, train): (usize, &Train)| {
        let seed = mix(seed, at as u64);
        let mut policy = *policy;
        policy.seed = seed;
        let fate = fate(&policy, qp, link, train, seed)?;
        Ok(Job {
            fate,
            outages: train.count,
        })
    };
    trains.par_iter().enumerate().map(job).collect()
}

/// Computes the figures of [these jobs](jobs).
///
/// # Errors
/// As for [`jobs`].
pub fn compare(
    policy: &Policy,
    qp: QpTimeouts,
    link: &Link,
    trains: &[Train],
    seed: u64,
) -> Result<Fared, TrialError> {
    Ok(Fared::of(&jobs(policy, qp, link, trains, seed)?))
}

/// Median and 99 of 100; [`Span::NEVER`] of nothing.
fn percentiles(mut spans: Vec<Span>) -> [Span; 2] {
    spans.sort_unstable();
    [50, 99].map(|percent| {
        let at = (spans.len() * percent).div_ceil(100).saturating_sub(1);
        spans.get(at).copied().unwrap_or(Span::NEVER)
    })
}

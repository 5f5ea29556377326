//! The results of a run: samples over time, and figures for its phases.

use std::ops::Range;

/// What the limiters and the queue were like at one time, and what was carried since the last one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    /// Since the start of the run.
    pub(crate) at_ns: u64,
    /// Since the sample before.
    pub(crate) since_ns: u64,
    /// Bytes in the queue of the bottleneck.
    pub(crate) queue_bytes: u64,
    /// One for each queue pair.
    pub(crate) flows: Vec<FlowSample>,
}

impl Sample {
    /// What a queue pair carried since the sample before, bit/s.
    pub(crate) fn bps(&self, flow: usize) -> f64 {
        self.flows[flow].bytes as f64 * 8e9 / self.since_ns.max(1) as f64
    }

    /// Samples that follow each other as one: bytes and times are summed, the greatest queue counts,
    /// the last limit, the mean alpha. `None` if there are none.
    pub(crate) fn merged(samples: &[Self]) -> Option<Self> {
        let mut one = samples.last()?.clone();
        one.since_ns = samples.iter().map(|sample| sample.since_ns).sum();
        one.queue_bytes = samples.iter().map(|sample| sample.queue_bytes).max()?;
        for (n, flow) in one.flows.iter_mut().enumerate() {
            flow.bytes = samples.iter().map(|sample| sample.flows[n].bytes).sum();
            let alphas: f64 = samples.iter().map(|sample| sample.flows[n].alpha).sum();
            flow.alpha = alphas / samples.len() as f64;
        }
        Some(one)
    }
}

/// One queue pair in a [`Sample`].
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct FlowSample {
    /// Payload that has arrived since the last sample.
    pub(crate) bytes: u64,
    /// What its limiter allows, bit/s; `None` without one.
    pub(crate) limit_bps: Option<u64>,
    /// The limiter's estimate of congestion, 0 to 1; 0 without one.
    pub(crate) alpha: f64,
}

/// A time in which the same queue pairs send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Phase {
    /// Nanoseconds since the start of the run.
    pub(crate) span: Range<u64>,
    /// The queue pairs that send.
    pub(crate) flows: Range<usize>,
}

impl Phase {
    /// The phases of a run of `flows` queue pairs: they join one after the other in the first third,
    /// send together in the second, and in the last one the first half of them has left. A single one
    /// sends all the time.
    pub(crate) fn plan(flows: usize, length_ns: u64) -> Vec<Self> {
        if flows == 1 {
            let span = 0..length_ns;
            return vec![Self { span, flows: 0..1 }];
        }
        let third_ns = length_ns / 3;
        let joins = flows as u64 - 1;
        let mut phases: Vec<Self> = (0..joins)
            .map(|n| Self {
                span: third_ns * n / joins..third_ns * (n + 1) / joins,
                flows: 0..n as usize + 1,
            })
            .collect();
        phases.push(Self {
            span: third_ns..2 * third_ns,
            flows: 0..flows,
        });
        phases.push(Self {
            span: 2 * third_ns..length_ns,
            flows: flows / 2..flows,
        });
        phases
    }
}

/// A whole run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Course {
    pub(crate) phases: Vec<Phase>,
    pub(crate) samples: Vec<Sample>,
    /// Packets that the bottleneck marked, and packets that it dropped because its queue was full.
    pub(crate) marked: u64,
    pub(crate) dropped: u64,
    /// CNPs that the sender has handled.
    pub(crate) cnps: u64,
    /// Whether every byte that arrived was right.
    pub(crate) verified: bool,
}

/// Figures of the second half of a phase, when its queue pairs had settled.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PhaseFigures {
    /// Payload of each queue pair that sends, bit/s.
    pub(crate) shares_bps: Vec<f64>,
    /// What the limiters allowed all of them together, bit/s; `None` if one had no limit.
    pub(crate) allowed_bps: Option<f64>,
    /// Jain's index of the shares: 1 if all are alike, 1/n if one has everything.
    pub(crate) jain: f64,
    /// Bytes in the queue.
    pub(crate) queue_mean: f64,
    pub(crate) queue_max: u64,
}

impl PhaseFigures {
    /// All of them together, bit/s.
    pub(crate) fn sum_bps(&self) -> f64 {
        self.shares_bps.iter().sum()
    }

    /// The smallest and the greatest share, bit/s.
    pub(crate) fn extremes_bps(&self) -> (f64, f64) {
        let shares = || self.shares_bps.iter().copied();
        (
            shares().fold(f64::INFINITY, f64::min),
            shares().fold(0.0, f64::max),
        )
    }
}

impl Course {
    /// The samples taken in a span of time, of which the end counts and the start does not.
    pub(crate) fn samples_in(&self, span: &Range<u64>) -> &[Sample] {
        let until = |ns| self.samples.partition_point(|sample| sample.at_ns <= ns);
        &self.samples[until(span.start)..until(span.end)]
    }

    /// Whether a queue pair sends at a time.
    pub(crate) fn sends(&self, flow: usize, at_ns: u64) -> bool {
        self.phases
            .iter()
            .any(|phase| phase.span.contains(&at_ns) && phase.flows.contains(&flow))
    }

    /// The figures of a phase, from the samples of its second half.
    pub(crate) fn figures(&self, phase: &Phase) -> PhaseFigures {
        let settled_ns = u64::midpoint(phase.span.start, phase.span.end);
        let samples = self.samples_in(&(settled_ns..phase.span.end));
        let all = Sample::merged(samples);
        let share = |flow| all.as_ref().map_or(0.0, |all| all.bps(flow));
        let shares_bps: Vec<f64> = phase.flows.clone().map(share).collect();
        let queues: u64 = samples.iter().map(|sample| sample.queue_bytes).sum();
        PhaseFigures {
            allowed_bps: allowed(samples, &phase.flows),
            jain: jain(&shares_bps),
            shares_bps,
            queue_mean: queues as f64 / samples.len().max(1) as f64,
            queue_max: all.map_or(0, |all| all.queue_bytes),
        }
    }
}

/// The mean of what the limiters allowed the queue pairs of a phase together. A queue pair that had no
/// limit at one time could have sent everything.
fn allowed(samples: &[Sample], flows: &Range<usize>) -> Option<f64> {
    let mut sum = 0.0;
    for sample in samples {
        for flow in &sample.flows[flows.clone()] {
            sum += flow.limit_bps? as f64;
        }
    }
    (!samples.is_empty()).then(|| sum / samples.len() as f64)
}

fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_join_then_share_then_leave() {
        let phase = |span, flows| Phase { span, flows };
        assert_eq!(
            Phase::plan(2, 9_000),
            [
                phase(0..3_000, 0..1),
                phase(3_000..6_000, 0..2),
                phase(6_000..9_000, 1..2)
            ]
        );
        assert_eq!(Phase::plan(1, 9_000), [phase(0..9_000, 0..1)]);
        let four = Phase::plan(4, 9_000);
        assert_eq!(four[1], phase(1_000..2_000, 0..2));
        assert_eq!(four[4], phase(6_000..9_000, 2..4));
    }

    #[test]
    fn figures_are_those_of_the_second_half() {
        let phases = Phase::plan(2, 3_000_000_000);
        let sample = |n: u64| Sample {
            at_ns: n * 250_000_000,
            since_ns: 250_000_000,
            queue_bytes: n,
            flows: [n, 2 * n]
                .map(|bytes| FlowSample {
                    bytes,
                    ..FlowSample::default()
                })
                .into(),
        };
        let course = Course {
            phases: phases.clone(),
            samples: (1..=12).map(sample).collect(),
            marked: 0,
            dropped: 0,
            cnps: 0,
            verified: true,
        };
        // Samples at 1.75 and 2 s.
        let together = course.figures(&phases[1]);
        assert_eq!(together.shares_bps, [15.0 * 16.0, 30.0 * 16.0]);
        assert!((together.jain - 0.9).abs() < 1e-9);
        assert_eq!((together.queue_mean, together.queue_max), (7.5, 8));
        assert_eq!(course.figures(&phases[2]).jain, 1.0);
    }
}

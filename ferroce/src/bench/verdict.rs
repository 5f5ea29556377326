//! Ratios and what is said of them.

use ferroce_bench::load::Noise;
use ferroce_bench::ratio::{Ratio, Verdict};

use super::plan::{Plan, Target};
use super::rounds::Figures;

/// What is said of one goal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) target: Target,
    /// As measured.
    pub(super) ratio: Ratio,
    pub(super) verdict: Verdict,
    /// Whether there would be a verdict on a quiet machine with the same figures.
    is_lost_in_noise: bool,
}

/// What is said of all goals.
#[derive(Debug)]
pub(super) struct Verdicts(pub(super) Vec<Judged>);

impl Verdicts {
    pub(super) fn of(plan: &Plan, figures: &Figures) -> Self {
        let judged = plan.targets.iter().filter_map(|target| {
            let pairs = figures.of(target.of).zip(figures.of(target.beside));
            Some(judge(*target, Ratio::of(pairs)?, &figures.noise))
        });
        Self(judged.collect())
    }

    /// Whether other programs may have turned a verdict.
    pub(super) fn is_too_noisy(&self) -> bool {
        self.0.iter().any(|it| it.is_lost_in_noise)
    }
}

fn judge(target: Target, ratio: Ratio, noise: &Noise) -> Judged {
    let verdict = target.goal.verdict(&ratio.widened(noise.error()));
    Judged {
        target,
        ratio,
        verdict,
        is_lost_in_noise: verdict != target.goal.verdict(&ratio),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_takes_only_verdicts_that_it_could_turn() {
        let quiet = Noise {
            idle: Some(2.0),
            waited: 0.0,
            spread: 0.1,
        };
        let loud = Noise {
            idle: Some(1.0),
            ..quiet
        };
        let target = Plan::new(&["WRITE 64".to_owned()]).unwrap().targets[0];
        let judged = |value: f64, noise: &Noise| {
            let ratio = Ratio::of([(value, 1.0); 5]).unwrap();
            let judged = judge(target, ratio, noise);
            (judged.verdict, judged.is_lost_in_noise)
        };
        // The goal is 0.85, and half of a processor is gone.
        assert_eq!(judged(0.9, &quiet), (Verdict::Met, false));
        assert_eq!(judged(0.9, &loud), (Verdict::CannotTell, true));
        assert_eq!(judged(0.7, &loud), (Verdict::CannotTell, true));
        assert_eq!(judged(0.5, &loud), (Verdict::Missed, false));
        assert_eq!(judged(1.4, &loud), (Verdict::Met, false));
    }
}

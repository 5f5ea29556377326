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
}

/// Judges all ratios that have goals, as far as they could be measured.
///
/// A ratio may be off by the error of a noisy machine: its interval is widened by it.
pub(super) fn judge(plan: &Plan, figures: &Figures) -> Vec<Judged> {
    let judged = plan.targets.iter().filter_map(|target| {
        let pairs = figures.of(target.of).zip(figures.of(target.beside));
        Some(Judged::of(*target, Ratio::of(pairs)?, &figures.noise))
    });
    judged.collect()
}

impl Judged {
    fn of(target: Target, ratio: Ratio, noise: &Noise) -> Self {
        Self {
            target,
            ratio,
            verdict: target.goal.verdict(&ratio.widened(noise.error())),
        }
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
        let verdict = |value: f64, noise: &Noise| {
            let ratio = Ratio::of([(value, 1.0); 5]).unwrap();
            Judged::of(target, ratio, noise).verdict
        };
        // The goal is 0.85, and half of each processor is gone.
        assert_eq!(verdict(0.9, &quiet), Verdict::Met);
        assert_eq!(verdict(0.9, &loud), Verdict::CannotTell);
        assert_eq!(verdict(0.7, &loud), Verdict::CannotTell);
        assert_eq!(verdict(0.5, &loud), Verdict::Missed);
        assert_eq!(verdict(1.4, &loud), Verdict::Met);
    }
}

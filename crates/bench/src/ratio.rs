//! Ratios of figures that were measured in turn, and what may be said of them.

use crate::median;

/// How sure the interval of a ratio is.
pub const CONFIDENCE: f64 = 0.9;

/// A ratio over several rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The median of the ratios within each round.
    pub median: f64,
    /// Where the median of very many rounds lies with [`CONFIDENCE`], if the rounds are independent. Of too
    /// few rounds to say that, all that was seen.
    pub low: f64,
    /// The other end.
    pub high: f64,
    /// Whether there were enough rounds.
    pub is_sure: bool,
}

impl Ratio {
    /// Of the figures of each round; `None` without rounds.
    ///
    /// The interval lies between two of the ratios in order: `n` ratios fall below the true median as `n`
    /// coins fall heads up, whatever their distribution (the confidence interval of the sign test).
    #[must_use]
    pub fn of(rounds: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let mut ratios: Vec<f64> = rounds.into_iter().map(|(of, to)| of / to).collect();
        ratios.sort_by(f64::total_cmp);
        let outside = outside(ratios.len());
        let skip = outside.unwrap_or(0);
        Some(Self {
            median: median(ratios.iter().copied()),
            low: *ratios.get(skip)?,
            high: *ratios.get(ratios.len() - 1 - skip)?,
            is_sure: outside.is_some(),
        })
    }

    /// With an interval that is wider on both sides by a share.
    #[must_use]
    pub fn widened(self, share: f64) -> Self {
        Self {
            low: self.low / (1.0 + share),
            high: self.high * (1.0 + share),
            ..self
        }
    }
}

/// How many of `n` values in order lie outside the interval at each end; `None` if even all of them are
/// not enough.
fn outside(n: usize) -> Option<usize> {
    let mut heads = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut beyond = heads;
    let mut outside = None;
    for k in 0..n.div_ceil(2) {
        // `beyond` is how probable it is that at most `k` coins of `n` fall heads up.
        if 1.0 - 2.0 * beyond < CONFIDENCE {
            break;
        }
        outside = Some(k);
        heads *= (n - k) as f64 / (k + 1) as f64;
        beyond += heads;
    }
    outside
}

/// What a ratio is to reach.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// This, or more.
    AtLeast(f64),
    /// This, or less.
    AtMost(f64),
}

/// What is said of a ratio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The whole interval reaches the goal.
    Met,
    /// None of it does.
    Missed,
    /// Some of it does, or there were too few rounds for an interval.
    CannotTell,
}

impl Goal {
    /// What to say of a ratio.
    #[must_use]
    pub fn verdict(self, ratio: &Ratio) -> Verdict {
        let reaches = |value: f64| match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        };
        match (reaches(ratio.low), reaches(ratio.high)) {
            _ if !ratio.is_sure => Verdict::CannotTell,
            (true, true) => Verdict::Met,
            (false, false) => Verdict::Missed,
            _ => Verdict::CannotTell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(values: &[f64]) -> Ratio {
        Ratio::of(values.iter().map(|value| (*value, 1.0))).unwrap()
    }

    #[test]
    fn intervals_are_those_of_the_sign_test() {
        // Tables of the sign test begin with five values at 90 %, and leave out one of eight.
        let known = [
            (4, None),
            (5, Some(0)),
            (7, Some(0)),
            (8, Some(1)),
            (11, Some(2)),
            (20, Some(5)),
        ];
        for (n, expected) in known {
            assert_eq!(outside(n), expected, "{n}");
        }
        assert_eq!(outside(0), None);
    }

    #[test]
    fn a_ratio_is_a_median_between_two_others() {
        let found = ratio(&[0.5, 0.9, 0.3, 0.7, 0.6]);
        assert_eq!((found.median, found.low, found.high), (0.6, 0.3, 0.9));
        assert!(found.is_sure);
        let eight = ratio(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 80.0]);
        assert_eq!((eight.low, eight.high), (2.0, 7.0));
        assert_eq!(Ratio::of([]), None);
    }

    #[test]
    fn a_goal_within_the_interval_gets_no_verdict() {
        let found = ratio(&[0.5, 0.9, 0.3, 0.7, 0.6]);
        for (goal, expected) in [
            (Goal::AtLeast(0.3), Verdict::Met),
            (Goal::AtLeast(0.31), Verdict::CannotTell),
            (Goal::AtLeast(0.9), Verdict::CannotTell),
            (Goal::AtLeast(0.91), Verdict::Missed),
            (Goal::AtMost(0.9), Verdict::Met),
            (Goal::AtMost(0.6), Verdict::CannotTell),
            (Goal::AtMost(0.29), Verdict::Missed),
        ] {
            assert_eq!(goal.verdict(&found), expected, "{goal:?}");
        }
    }

    #[test]
    fn a_wider_interval_takes_verdicts_away() {
        let found = ratio(&[1.0; 5]);
        assert_eq!(Goal::AtLeast(0.9).verdict(&found), Verdict::Met);
        let wider = found.widened(0.25);
        assert_eq!((wider.low, wider.high, wider.median), (0.8, 1.25, 1.0));
        assert_eq!(Goal::AtLeast(0.9).verdict(&wider), Verdict::CannotTell);
        assert_eq!(Goal::AtLeast(0.5).verdict(&wider), Verdict::Met);
        assert_eq!(Goal::AtMost(0.5).verdict(&wider), Verdict::Missed);
    }

    #[test]
    fn few_rounds_give_no_verdict() {
        let found = ratio(&[1.0; 4]);
        assert!(!found.is_sure);
        assert_eq!(Goal::AtLeast(0.1).verdict(&found), Verdict::CannotTell);
    }
}

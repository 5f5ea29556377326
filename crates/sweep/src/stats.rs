//! Means and shares of samples, each with its 95 % confidence interval.

use serde::Serialize;

/// A value and the interval that contains the true one with a probability of 95 %.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The lower bound of the interval.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// The number of samples.
    pub samples: u64,
}

impl Estimate {
    /// Returns the estimate of a value that cannot be below `least`: its interval begins there at the
    /// earliest.
    #[must_use]
    pub fn at_least(self, least: f64) -> Self {
        Self {
            low: self.low.max(least),
            ..self
        }
    }
}

/// Returns the mean, with Student's t interval, or `None` without samples. With one sample, the
/// interval is infinite.
#[must_use]
pub fn mean(samples: &[f64]) -> Option<Estimate> {
    let count = samples.len() as u64;
    let n = count as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let half = match count {
        0 => return None,
        1 => f64::INFINITY,
        _ => {
            let squares: f64 = samples.iter().map(|it| (it - mean).powi(2)).sum();
            student(count - 1) * (squares / (n - 1.0) / n).sqrt()
        }
    };
    Some(Estimate {
        value: mean,
        low: mean - half,
        high: mean + half,
        samples: count,
    })
}

/// Returns the share `hits` / `count`, with Wilson's interval, or `None` without samples.
#[must_use]
pub fn share(hits: u64, count: u64) -> Option<Estimate> {
    if count == 0 {
        return None;
    }
    let (n, p) = (count as f64, hits as f64 / count as f64);
    let below = 1.0 + Z * Z / n;
    let middle = (p + Z * Z / (2.0 * n)) / below;
    let half = Z / below * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    Some(Estimate {
        value: p,
        low: if hits == 0 { 0.0 } else { middle - half },
        high: if hits == count { 1.0 } else { middle + half },
        samples: count,
    })
}

/// The 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// The same of Student's t with 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010,
    2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687,
    2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
];

/// Beyond the table by the expansion of Cornish and Fisher, which is right to four digits there.
fn student(freedom: u64) -> f64 {
    let in_table = usize::try_from(freedom).ok();
    let in_table = in_table.and_then(|freedom| T.get(freedom - 1));
    in_table.copied().unwrap_or_else(|| {
        let n = freedom as f64;
        let first = (Z.powi(3) + Z) / (4.0 * n);
        let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * n * n);
        Z + first + second
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 5e-4 * b.abs().max(1.0), "{a} {b}");
    }

    #[test]
    fn intervals_are_those_of_the_books() {
        // A textbook's ten weights.
        let mean = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        near(mean.value, 3.0);
        near(mean.high - mean.value, 2.7764 * (2.5_f64 / 5.0).sqrt());
        // 31, 40, 120 degrees of freedom.
        for (freedom, t) in [(31, 2.0395), (40, 2.0211), (120, 1.9799)] {
            near(student(freedom), t);
        }
        // Wilson for 8 of 10.
        let share = share(8, 10).unwrap();
        near(share.low, 0.4902);
        near(share.high, 0.9433);
    }

    #[test]
    fn ends_are_as_they_should_be() {
        assert_eq!(mean(&[]), None);
        assert_eq!(share(0, 0), None);
        assert!(mean(&[1.0]).unwrap().high.is_infinite());
        let none = share(0, 20).unwrap();
        assert!(none.low == 0.0 && none.high > 0.1 && none.high < 0.2);
        let all = share(20, 20).unwrap();
        assert!(all.high == 1.0 && all.low < 0.9 && all.low > 0.8);
        let few = mean(&[0.0, 0.0, 9.0]).unwrap();
        assert!(few.low < 0.0 && few.at_least(0.0).low == 0.0);
        assert_eq!(few.at_least(f64::NEG_INFINITY), few);
        let same = mean(&[2.0; 4]).unwrap();
        assert!(same.low == 2.0 && same.high == 2.0);
    }
}

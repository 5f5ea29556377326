//! Distributions of times, as operators write them.

use std::fmt;
use std::str::FromStr;

use ferroce_base::time::Span;
use ferroce_base::units::TIME;
use thiserror::Error;

/// No time of a distribution is longer.
const DAY_NS: u64 = 24 * 3_600 * 1_000_000_000;
/// The maximum number of values in a list.
pub const LIST_MAX: usize = 100_000;

/// The reason why a text is not a list or distribution of times.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
#[error("{}{what}: {reason}", line.map_or(String::new(), |line| format!("line {line}: ")))]
pub struct ReadError {
    /// The line, counted from 1, if the text has lines.
    pub line: Option<usize>,
    /// The field and its value.
    pub what: String,
    /// What is wrong, and what to write instead.
    pub reason: String,
}

impl ReadError {
    pub(crate) fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            line: None,
            what: what.into(),
            reason: reason.into(),
        }
    }
}

/// A distribution of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Times {
    /// Always the same.
    Same(Span),
    /// The logarithm is normally distributed.
    Lognormal {
        /// Half of all are shorter.
        median: Span,
        /// 99 of 100 are shorter; at least the median.
        p99: Span,
    },
    /// Each of these with equal probability, in order of length; at least one.
    List(Vec<Span>),
}

impl Times {
    /// Returns the time that the given share of values, 0 to 1, is shorter than.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Span {
        match self {
            Self::Same(time) => *time,
            Self::Lognormal { median, p99 } => lognormal(*median, *p99, share),
            Self::List(times) => {
                // Below the length for a share below 1, which the minimum sees to.
                let at = (share * times.len() as f64) as usize;
                times[at.min(times.len() - 1)]
            }
        }
    }

    /// Returns the share of values that is longer than this.
    #[must_use]
    pub fn share_above(&self, time: Span) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            match self.quantile(middle) > time {
                true => high = middle,
                false => low = middle,
            }
        }
        // What is as long as the shortest or the longest of all is not between them.
        if high < 1e-9 {
            1.0
        } else if low > 1.0 - 1e-9 {
            0.0
        } else {
            1.0 - low
        }
    }

    /// Reads a list of times, one per line: in seconds, or with a unit. Text after a `#` is
    /// ignored.
    ///
    /// # Errors
    /// Returns an error with the line that is wrong.
    pub fn from_lines(text: &str) -> Result<Self, ReadError> {
        let lines = (1..).zip(text.lines()).map(|(line, text)| {
            let text = text.split('#').next().unwrap_or_default();
            (Some(line), text.trim())
        });
        Self::list(lines.filter(|(_, text)| !text.is_empty()))
    }

    fn list<'a>(items: impl Iterator<Item = (Option<usize>, &'a str)>) -> Result<Self, ReadError> {
        let times = items.take(LIST_MAX + 1).map(|(line, text)| {
            let is_bare = text.ends_with(|c: char| c.is_ascii_digit());
            let unit = if is_bare { "s" } else { "" };
            let time = time("time", &format!("{text}{unit}"));
            time.map_err(|error| ReadError { line, ..error })
        });
        let mut times: Vec<Span> = times.collect::<Result<_, _>>()?;
        if times.is_empty() || times.len() > LIST_MAX {
            let found = match times.len() {
                0 => "no time".to_owned(),
                _ => format!("more than {LIST_MAX} times"),
            };
            return Err(ReadError::new(
                found,
                format!("must be 1 to {LIST_MAX}, one on each line, in seconds or with a unit"),
            ));
        }
        times.sort_unstable();
        Ok(Self::List(times))
    }
}

impl FromStr for Times {
    type Err = ReadError;

    /// `20us`, `lognormal:median=20us,p99=1ms` or `list:300ms,2s,20`.
    fn from_str(text: &str) -> Result<Self, ReadError> {
        match text.split_once(':') {
            Some(("lognormal", of)) => {
                let [median, p99] = settings("lognormal", of, ["median", "p99"])?;
                let (median, p99) = (time("median", median)?, time("p99", p99)?);
                if p99 < median {
                    return Err(ReadError::new(
                        format!("p99={}", p99.about()),
                        format!("must be at least the median, {}", median.about()),
                    ));
                }
                Ok(Self::Lognormal { median, p99 })
            }
            Some(("list", of)) => Self::list(of.split(',').map(|text| (None, text.trim()))),
            _ => time("time", text).map(Self::Same),
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(time) => write!(f, "{}", time.about()),
            Self::Lognormal { median, p99 } => {
                write!(
                    f,
                    "lognormal: median {}, p99 {}",
                    median.about(),
                    p99.about()
                )
            }
            Self::List(times) => write!(
                f,
                "{} times, median {}, longest {}",
                times.len(),
                times[(times.len() - 1) / 2].about(),
                times[times.len() - 1].about()
            ),
        }
    }
}

/// The values of all these names, each given once.
pub(crate) fn settings<'a, const N: usize>(
    what: &str,
    text: &'a str,
    names: [&str; N],
) -> Result<[&'a str; N], ReadError> {
    let example = match what {
        "flaps" => "flaps:down=2s,up=5s,count=10",
        _ => "lognormal:median=300ms,p99=20s",
    };
    let bad = |reason: String| ReadError::new(what, format!("{reason}; write {example}"));
    let mut values = [None; N];
    for setting in text.split(',') {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| bad(format!("{setting:?} is not NAME=VALUE")))?;
        let at = names.iter().position(|known| *known == name.trim());
        let at = at.ok_or_else(|| bad(format!("unknown {name:?}")))?;
        if values[at].replace(value.trim()).is_some() {
            return Err(bad(format!("{name} is given more than once")));
        }
    }
    match values.iter().position(Option::is_none) {
        Some(at) => Err(bad(format!("missing {}", names[at]))),
        None => Ok(values.map(Option::unwrap_or_default)),
    }
}

pub(crate) fn time(name: &str, text: &str) -> Result<Span, ReadError> {
    let ns = TIME.read_in(text.trim(), 1_000..=DAY_NS);
    ns.map(Span::from_nanos)
        .map_err(|invalid| ReadError::new(format!("{name} {text:?}"), invalid.to_string()))
}

fn lognormal(median: Span, p99: Span, share: f64) -> Span {
    /// The standard normal distribution's 99th percentile.
    const Z99: f64 = 2.326_347_874_040_841;
    let sigma = (p99.as_picos() as f64 / median.as_picos().max(1) as f64).ln() / Z99;
    let ps = median.as_picos() as f64 * (sigma * normal_quantile(share)).exp();
    // The cast saturates.
    Span::from_picos((ps as u64).max(1))
}

/// The standard normal distribution's quantile, by bisection of its distribution function.
fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        match normal(middle) < share {
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
        for (share, z) in [
            (0.5, 0.0),
            (0.99, 2.326_348),
            (0.01, -2.326_348),
            (0.975, 1.959_964),
        ] {
            let found = normal_quantile(share);
            assert!((found - z).abs() < 1e-5, "{share}: {found}");
        }
    }

    #[test]
    fn a_lognormal_distribution_has_its_median_and_its_tail() {
        let times: Times = "lognormal:median=300ms,p99=20s".parse().unwrap();
        let near = |share: f64, ms: u64| {
            let found = times.quantile(share).as_nanos() / 1_000_000;
            assert!(found.abs_diff(ms) <= 1 + ms / 1_000, "{share}: {found}");
        };
        near(0.5, 300);
        near(0.99, 20_000);
    }

    #[test]
    fn shares_above_are_the_inverse_of_quantiles() {
        let list: Times = "list:1s,2s,3s,4s".parse().unwrap();
        for (ms, share) in [
            (500, 1.0),
            (1_000, 0.75),
            (2_500, 0.5),
            (4_000, 0.0),
            (5_000, 0.0),
        ] {
            let found = list.share_above(Span::from_millis(ms));
            assert!((found - share).abs() < 1e-6, "{ms}: {found}");
        }
        let times: Times = "lognormal:median=300ms,p99=20s".parse().unwrap();
        for share in [0.5, 0.01, 0.001] {
            let found = times.share_above(times.quantile(1.0 - share));
            assert!((found / share - 1.0).abs() < 1e-3, "{share}: {found}");
        }
        let same = Times::Same(Span::from_secs(1));
        let shares = [999, 1_000].map(|ms| same.share_above(Span::from_millis(ms)));
        assert!(shares[0] == 1.0 && shares[1] == 0.0);
    }

    #[test]
    fn lists_are_read_in_order_of_length() {
        let times = Times::from_lines("2\n# a comment\n 300ms # another\n20s\n").unwrap();
        let expected = [300, 2_000, 20_000].map(Span::from_millis);
        assert_eq!(times, Times::List(expected.into()));
        assert_eq!("list:2,300ms,20s".parse(), Ok(times));
    }

    #[test]
    fn errors_name_their_line() {
        let error = Times::from_lines("1\n\nten\n").unwrap_err();
        assert_eq!(error.line, Some(3));
        assert!(
            error
                .to_string()
                .starts_with("line 3: time \"ten\": must be a time")
        );
        let said = |text: &str| text.parse::<Times>().unwrap_err().to_string();
        assert_eq!(
            said("lognormal:median=2s"),
            "lognormal: missing p99; write lognormal:median=300ms,p99=20s"
        );
        assert_eq!(
            said("lognormal:median=2s,p99=1s"),
            "p99=1 s: must be at least the median, 2 s"
        );
        assert!(said("list:").contains("time \"\""), "{}", said("list:"));
        assert!(Times::from_lines("# nothing\n").is_err());
    }
}

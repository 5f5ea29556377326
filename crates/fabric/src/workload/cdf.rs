//! Distributions of sizes.

use ferroce_base::units::Decimal;

use super::plan::MESSAGE_BYTES_MAX;
use super::random::Stream;
use crate::text::{ReadError, Words, integer};

/// A distribution of sizes: between its points they are equally likely.
///
/// ```
/// use ferroce_fabric::workload::Cdf;
/// let web_search = Cdf::published("WebSearch").unwrap();
/// assert_eq!(web_search.mean(), 1_711_250);
/// assert_eq!(web_search.quantile(500_000_000), 73_076);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cdf {
    /// Sizes and the share of those that are not larger, in parts of [`ALL`].
    points: Vec<(u64, u64)>,
}

/// The share of all.
const ALL: u64 = 1_000_000_000;

/// Names and texts of the published ones.
const PUBLISHED: [(&str, &str); 6] = [
    ("WebSearch", include_str!("cdf/websearch.txt")),
    ("FbHdp", include_str!("cdf/fbhdp.txt")),
    ("AliStorage2019", include_str!("cdf/alistorage2019.txt")),
    ("GoogleRPC2008", include_str!("cdf/googlerpc2008.txt")),
    ("Solar2022", include_str!("cdf/solar2022.txt")),
    ("DataMining", include_str!("cdf/datamining.txt")),
];

impl Cdf {
    /// The names of those that others have published.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PUBLISHED.into_iter().map(|(name, _)| name)
    }

    /// One that others have published; its file says where. Upper and lower case are the same.
    #[must_use]
    pub fn published(name: &str) -> Option<Self> {
        let all = PUBLISHED.into_iter();
        let (_, text) = all.into_iter().find(|it| it.0.eq_ignore_ascii_case(name))?;
        // A test reads them all.
        Self::read(text).ok()
    }

    /// Reads a file as HPCC's traffic generator has it: a line for each point, with a size in bytes and
    /// the share of those that are not larger in percent. Both grow from line to line, the share from 0
    /// to 100. What follows `#` is a comment.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let mut points: Vec<(u64, u64)> = Vec::new();
        let mut last = 1;
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default();
            if content.trim().is_empty() {
                continue;
            }
            last = line;
            let point = read_point(line, content)?;
            match points.last() {
                None if point.1 != 0 => {
                    let message = "the share of the first point must be 0; begin with \"0 0\"";
                    return Err(ReadError::new(line, message));
                }
                Some(before) if point.0 <= before.0 || point.1 < before.1 => {
                    let message = "sizes must grow from line to line, and shares must not fall";
                    return Err(ReadError::new(line, message));
                }
                _ => points.push(point),
            }
        }
        match points.last() {
            Some((_, ALL)) => Ok(Self { points }),
            _ => Err(ReadError::new(
                last,
                "the share of the last point must be 100 (percent)",
            )),
        }
    }

    /// The mean size, rounded.
    #[must_use]
    pub fn mean(&self) -> u64 {
        let twice: u128 = self
            .points
            .windows(2)
            .map(|it| u128::from(it[0].0 + it[1].0) * u128::from(it[1].1 - it[0].1))
            .sum();
        let all = u128::from(ALL);
        ((twice + all) / (2 * all)) as u64
    }

    /// The size that this number of 10^9 do not exceed, rounded down, but at least a byte.
    #[must_use]
    pub fn quantile(&self, share: u32) -> u64 {
        self.at(u128::from(share.min(ALL as u32)) << FINE_BITS)
    }

    /// A size.
    pub(super) fn draw(&self, random: &mut Stream) -> u64 {
        let all = u128::from(ALL) << FINE_BITS;
        self.at((u128::from(random.bits()) * all) >> 64)
    }

    /// The size for a share in parts of [`ALL`] times 2 to the power of [`FINE_BITS`].
    fn at(&self, share: u128) -> u64 {
        let fine = |share: u64| u128::from(share) << FINE_BITS;
        let above = self.points.partition_point(|point| fine(point.1) < share);
        let above = above.clamp(1, self.points.len() - 1);
        let (low, high) = (self.points[above - 1], self.points[above]);
        let (part, whole) = (share - fine(low.1), fine(high.1) - fine(low.1));
        let step = u128::from(high.0 - low.0) * part;
        // Without a whole the share is that of the first point.
        let step = step.checked_div(whole).unwrap_or(0);
        (low.0 + step as u64).max(1)
    }
}

/// Shares are interpolated this much finer than points are given.
const FINE_BITS: u32 = 32;

fn read_point(line: usize, content: &str) -> Result<(u64, u64), ReadError> {
    let mut words = Words::new(content);
    let located = |error: ReadError| ReadError { line, ..error };
    let bytes = words.next("a size in bytes").map_err(located)?;
    let bytes = integer(line, "size", bytes, 0, MESSAGE_BYTES_MAX)?;
    let share = words.next("a share in percent").map_err(located)?;
    let percent: Option<Decimal> = share.parse().ok();
    let parts = percent.and_then(|it| it.times(ALL / 100));
    let parts = parts.filter(|parts| *parts <= ALL).ok_or_else(|| {
        let must = "a percentage from 0 to 100 with at most 7 decimals";
        ReadError::invalid(line, "share", share, must)
    })?;
    match words.next("") {
        Ok(more) => Err(ReadError::invalid(
            line,
            "point",
            more,
            "a size and a share",
        )),
        Err(_) => Ok((bytes, parts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ones_have_the_published_means() {
        let mean = |name| Cdf::published(name).unwrap().mean();
        assert_eq!(mean("WebSearch"), 1_711_250);
        assert_eq!(mean("fbhdp"), 120_421);
        assert_eq!(mean("AliStorage2019"), 40_870);
        // With 13 of 843 points; all of them have 2,892.
        assert_eq!(mean("GoogleRPC2008"), 4_777);
        for name in Cdf::names() {
            assert!(Cdf::published(name).is_some(), "{name}");
        }
        assert_eq!(Cdf::published("nothing"), None);
    }

    #[test]
    fn quantiles_are_interpolated() {
        let median = |name| Cdf::published(name).unwrap().quantile(500_000_000);
        assert_eq!(median("WebSearch"), 73_076);
        assert_eq!(median("FbHdp"), 700);
        assert_eq!(median("AliStorage2019"), 6_339);
        let it = Cdf::published("DataMining").unwrap();
        assert_eq!(it.quantile(0), 100);
        assert_eq!(it.quantile(u32::MAX), 1_000_000_000);
        assert_eq!(Cdf::published("FbHdp").unwrap().quantile(0), 1);
    }

    #[test]
    fn draws_have_the_mean() {
        let cdf = Cdf::published("WebSearch").unwrap();
        let mut random = Stream::new(1);
        let sum: u64 = (0..100_000).map(|_| cdf.draw(&mut random)).sum();
        let mean = sum / 100_000;
        assert!((1_680_000..1_740_000).contains(&mean), "{mean}");
    }

    #[test]
    fn mistakes_have_a_line() {
        let error = |text| Cdf::read(text).unwrap_err().to_string();
        assert_eq!(
            error("# none\n"),
            "line 1: the share of the last point must be 100 (percent)"
        );
        assert_eq!(
            error("5 10\n9 100"),
            "line 1: the share of the first point must be 0; begin with \"0 0\""
        );
        assert_eq!(
            error("0 0\n\n5 50 # half\n5 100"),
            "line 4: sizes must grow from line to line, and shares must not fall"
        );
        assert_eq!(
            error("0 0\n5 101"),
            "line 2: invalid share \"101\": must be a percentage from 0 to 100 with at most 7 decimals"
        );
        assert_eq!(
            error("0 0\n5"),
            "line 2: the file ends where a share in percent was expected"
        );
        assert_eq!(
            error("0 0\n-5 50"),
            "line 2: invalid size \"-5\": must be an integer from 0 to 68719476736"
        );
        assert_eq!(
            error("0 0 0"),
            "line 1: invalid point \"0\": must be a size and a share"
        );
    }
}

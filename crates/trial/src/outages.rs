//! Outages: their lengths, or links that flap.

use std::fmt;
use std::str::FromStr;

use ferroce_base::random::{mix, share};
use ferroce_base::time::Span;

use crate::times::{ReadError, Times, settings, time};

/// How often a link may flap in one trial.
const FLAPS_MAX: u32 = 1_000;

/// A link that goes down one or more times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// How long it is down each time.
    pub down: Span,
    /// How long it is up in between.
    pub up: Span,
    /// How often it goes down.
    pub count: u32,
}

impl Train {
    /// Creates a single outage.
    #[must_use]
    pub const fn once(down: Span) -> Self {
        Self {
            down,
            up: Span::ZERO,
            count: 1,
        }
    }
}

/// The outages that jobs experience.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outages {
    /// Each job experiences one outage, with a length from this distribution.
    Lengths(Times),
    /// Each job experiences this train.
    Flaps(Train),
}

impl Outages {
    /// Creates a train for each of `count` jobs. Lengths are spread evenly over their distribution.
    /// The seed determines the position of each within its part, so other seeds give other lengths
    /// of the same distribution.
    #[must_use]
    pub fn trains(&self, count: u32, seed: u64) -> Vec<Train> {
        let train = |at: u32| match self {
            Self::Flaps(train) => *train,
            Self::Lengths(times) => {
                let within = share(mix(seed, at.into()));
                let quantile = (f64::from(at) + within) / f64::from(count);
                Train::once(times.quantile(quantile))
            }
        };
        (0..count).map(train).collect()
    }
}

impl FromStr for Outages {
    type Err = ReadError;

    /// `flaps:down=2s,up=5s,count=10`, or lengths as [`Times`] are written.
    fn from_str(text: &str) -> Result<Self, ReadError> {
        let Some(of) = text.strip_prefix("flaps:") else {
            return text.parse().map(Self::Lengths);
        };
        let [down, up, count] = settings("flaps", of, ["down", "up", "count"])?;
        let (down, up) = (time("down", down)?, time("up", up)?);
        let allowed = |count: &u32| (1..=FLAPS_MAX).contains(count);
        let count = count.parse().ok().filter(allowed).ok_or_else(|| {
            ReadError::new(
                format!("count {count:?}"),
                format!("must be 1 to {FLAPS_MAX}"),
            )
        })?;
        Ok(Self::Flaps(Train { down, up, count }))
    }
}

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lengths(times) => write!(f, "{times}"),
            Self::Flaps(Train { down, up, count }) => write!(
                f,
                "{count} times down for {} and up for {}",
                down.about(),
                up.about()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_give_other_lengths_of_the_same_distribution() {
        let outages: Outages = "lognormal:median=300ms,p99=20s".parse().unwrap();
        let [one, other] = [1, 2].map(|seed| outages.trains(1_000, seed));
        assert_ne!(one, other);
        assert_eq!(one, outages.trains(1_000, 1));
        for trains in [one, other] {
            assert!(trains.is_sorted_by_key(|train| train.down));
            let median = trains[500].down.as_nanos() / 1_000_000;
            assert!(median.abs_diff(300) < 5, "{median}");
        }
    }

    #[test]
    fn trains_are_read_and_what_is_wrong_is_said() {
        let train = Train {
            down: Span::from_millis(20),
            up: Span::from_secs(5),
            count: 10,
        };
        let text = "flaps:up=5s,down=20ms,count=10";
        assert_eq!(text.parse(), Ok(Outages::Flaps(train)));
        let said = |text: &str| text.parse::<Outages>().unwrap_err().to_string();
        assert_eq!(
            said("flaps:up=5s,down=20ms,count=0"),
            "count \"0\": must be 1 to 1000"
        );
        assert_eq!(
            said("flaps:up=5s,down=20ms,up=3s"),
            "flaps: up is given more than once; write flaps:down=2s,up=5s,count=10"
        );
    }
}

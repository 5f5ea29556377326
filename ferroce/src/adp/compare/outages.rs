//! Outages as operators say them.

use std::fs;

use ferroce_adp::compare::{Train, lognormal};
use ferroce_time::Span;
use ferroce_units::TIME;

use crate::output::Failure;

/// The outages, and what they are.
pub(super) struct Outages {
    pub(super) trains: Vec<Train>,
    pub(super) text: String,
}

const DAY_NS: u64 = 24 * 3_600 * 1_000_000_000;

/// Outages of a list or file.
const LENGTHS_MAX: usize = 100_000;

/// Flaps of all queue pairs together.
const FLAPS_MAX: u64 = 1_000_000;

impl Outages {
    pub(super) fn read(text: &str, count: u32) -> Result<Self, Failure> {
        match text.split_once(':') {
            Some(("lognormal", of)) => Self::lognormal(of, count),
            Some(("flaps", of)) => Self::flaps(of, count),
            Some(("list", of)) => Self::list(text, of.split(',')),
            _ => Self::file(text),
        }
    }

    fn lognormal(of: &str, count: u32) -> Result<Self, Failure> {
        let [median, p99] = settings("lognormal", of, ["median", "p99"])?;
        let (median, p99) = (time("median", median)?, time("p99", p99)?);
        if p99 < median {
            return Err(Failure::input(format_args!(
                "--outages lognormal: p99={p99} is less than median={median}; write a longer p99"
            )));
        }
        let trains = lognormal(median, p99, count);
        let longest = trains.last().map_or(Span::ZERO, |train| train.down);
        let text = format!(
            "{count} outages, lognormal: median {}, p99 {}, longest {}",
            median.about(),
            p99.about(),
            longest.about()
        );
        Ok(Self { trains, text })
    }

    fn flaps(of: &str, queue_pairs: u32) -> Result<Self, Failure> {
        let [down, up, count] = settings("flaps", of, ["down", "up", "count"])?;
        let (down, up) = (time("down", down)?, time("up", up)?);
        let most = (FLAPS_MAX / u64::from(queue_pairs)).max(1);
        let count = count
            .parse()
            .ok()
            .filter(|n| (1..=most).contains(&u64::from(*n)));
        let Some(count) = count else {
            return Err(Failure::input(format_args!(
                "--outages flaps: count must be 1 to {most}, with --count {queue_pairs} queue pairs"
            )));
        };
        let train = Train { down, up, count };
        let text = format!(
            "{queue_pairs} queue pairs, {count} times down for {} and up for {}",
            down.about(),
            up.about()
        );
        let trains = vec![train; queue_pairs as usize];
        Ok(Self { trains, text })
    }

    fn file(path: &str) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::input(format_args!(
                "--outages {path}: cannot read it: {error}; name a file of lengths, or write \
                 lognormal:median=300ms,p99=20s, list:300ms,2s or flaps:down=2s,up=5s,count=10"
            ))
        })?;
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim());
        Self::list(path, lines.filter(|line| !line.is_empty()))
    }

    fn list<'a>(whose: &str, lengths: impl Iterator<Item = &'a str>) -> Result<Self, Failure> {
        let trains = lengths.take(LENGTHS_MAX + 1).map(|length| {
            let is_bare = length.ends_with(|c: char| c.is_ascii_digit());
            let with_unit = if is_bare {
                format!("{length}s")
            } else {
                length.to_owned()
            };
            Ok(Train::once(time(whose, &with_unit)?))
        });
        let trains: Vec<Train> = trains.collect::<Result<_, Failure>>()?;
        let mut lengths: Vec<Span> = trains.iter().map(|train| train.down).collect();
        lengths.sort_unstable();
        let (Some(longest), 1..=LENGTHS_MAX) = (lengths.last(), lengths.len()) else {
            return Err(Failure::input(format_args!(
                "--outages {whose}: has {} lengths; must be 1 to {LENGTHS_MAX}",
                lengths.len()
            )));
        };
        let text = format!(
            "{} outages, median {}, longest {}",
            lengths.len(),
            lengths[(lengths.len() - 1) / 2].about(),
            longest.about()
        );
        Ok(Self { trains, text })
    }
}

/// The values of all these names, each given once.
fn settings<'a, const N: usize>(
    what: &str,
    text: &'a str,
    names: [&str; N],
) -> Result<[&'a str; N], Failure> {
    let bad = |reason: &str| {
        Failure::input(format_args!(
            "--outages {what}: {reason}; write {}",
            match what {
                "flaps" => "flaps:down=2s,up=5s,count=10",
                _ => "lognormal:median=300ms,p99=20s",
            }
        ))
    };
    let mut values = [None; N];
    for setting in text.split(',') {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| bad(&format!("{setting:?} is not NAME=VALUE")))?;
        let at = names.iter().position(|known| *known == name.trim());
        let at = at.ok_or_else(|| bad(&format!("{name:?} is unknown")))?;
        if values[at].replace(value.trim()).is_some() {
            return Err(bad(&format!("{name} is given twice")));
        }
    }
    if let Some(at) = values.iter().position(Option::is_none) {
        return Err(bad(&format!("{} is missing", names[at])));
    }
    Ok(values.map(Option::unwrap_or_default))
}

fn time(whose: &str, text: &str) -> Result<Span, Failure> {
    let ns = TIME.read_in(text.trim(), 1_000..=DAY_NS);
    ns.map(Span::from_nanos)
        .map_err(|invalid| Failure::input(format_args!("--outages: {whose} {text:?} {invalid}")))
}

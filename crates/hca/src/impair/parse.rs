//! Impairments as text.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ferroce_dcqcn::{CongestionPoint, Rate};
use ferroce_transport::Time;
use thiserror::Error;

use super::units::{bps, bytes, length, nanos, number, percent, probability, rate, time};
use super::{Blackout, Bottleneck, BurstLoss, Impairment};

/// Why a text is not an impairment.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ImpairmentParseError {
    /// A part without a name that means something.
    #[error(
        "{field:?} is no part of an impairment, allowed are {}; for example {EXAMPLE}",
        names()
    )]
    UnknownField {
        /// What was found.
        field: String,
    },
    /// A part whose value makes no sense.
    #[error("{field} is {value:?}, allowed is {allowed}; for example {example}")]
    BadValue {
        /// Name of the part.
        field: &'static str,
        /// What was found.
        value: String,
        /// What is allowed.
        allowed: &'static str,
        /// A part as it may be.
        example: &'static str,
    },
    /// A part that may come once came again.
    #[error("{field} comes twice, allowed is once; only down may be repeated, for example {DOWN}")]
    Twice {
        /// Name of the part.
        field: &'static str,
    },
    /// A queue without a rate at which it drains.
    #[error("red and limit are of a queue, which needs a rate; for example {QUEUE}")]
    NoRate,
}

const EXAMPLE: &str = "loss=1%,delay=50us, or none";
const DOWN: &str = "down=200ms@3s,down=1s@10s";
const QUEUE: &str = "rate=1Gbit,red=5KB:200KB:1%";
const NONE: &str = "none";

/// A part of an impairment.
struct Part {
    name: &'static str,
    allowed: &'static str,
    example: &'static str,
    read: fn(&mut Impairment, &str) -> Option<()>,
    write: fn(&Impairment) -> Vec<String>,
}

/// In the order in which they are written.
const PARTS: &[Part] = &[
    Part {
        name: "loss",
        allowed: PROBABILITY,
        example: "loss=1% or loss=0.01",
        read: |it, text| probability(text).map(|p| it.loss = p),
        write: |it| chance(it.loss),
    },
    Part {
        name: "burst",
        allowed: "the probability of a burst for each packet and, after a colon, the mean number \
                  of packets it loses, 1 or more",
        example: "burst=0.1%:20",
        read: |it, text| {
            let (enter, length) = text.split_once(':')?;
            let burst = BurstLoss {
                enter: probability(enter)?,
                mean_length: number(length).filter(|n| *n >= 1.0)?,
            };
            it.burst = Some(burst);
            Some(())
        },
        write: |it| {
            let text = |burst: BurstLoss| format!("{}:{}", percent(burst.enter), burst.mean_length);
            it.burst.map(text).into_iter().collect()
        },
    },
    Part {
        name: "duplicate",
        allowed: PROBABILITY,
        example: "duplicate=0.1%",
        read: |it, text| probability(text).map(|p| it.duplicate = p),
        write: |it| chance(it.duplicate),
    },
    Part {
        name: "corrupt",
        allowed: PROBABILITY,
        example: "corrupt=0.01%",
        read: |it, text| probability(text).map(|p| it.corrupt = p),
        write: |it| chance(it.corrupt),
    },
    Part {
        name: "ecn",
        allowed: PROBABILITY,
        example: "ecn=5%",
        read: |it, text| probability(text).map(|p| it.ecn_mark = p),
        write: |it| chance(it.ecn_mark),
    },
    Part {
        name: "rate",
        allowed: "a rate in bit, kbit, Mbit or Gbit a second, 1kbit to 4294967295Mbit",
        example: "rate=1Gbit",
        read: |it, text| {
            let rate = bps(text).filter(|bps| RATES.contains(bps))?;
            queue(it).rate = Rate::from_bps(rate);
            Some(())
        },
        write: |it| of_queue(it, |queue| Some(rate(queue.rate.bps()))),
    },
    Part {
        name: "red",
        allowed: "the queue's length from which on packets are marked, the one above which all are, \
                  in B, KB or MB, and the share marked at the latter, in steps of 0.0001%",
        example: "red=5KB:200KB:1%",
        read: |it, text| {
            let (kmin, rest) = text.split_once(':')?;
            let (kmax, share) = rest.split_once(':')?;
            let (kmin, kmax, share) = (bytes(kmin)?, bytes(kmax)?, ppm(share)?);
            queue(it).red = Some(CongestionPoint::new(kmin, kmax, share).ok()?);
            Some(())
        },
        write: |it| {
            of_queue(it, |queue| {
                let red = queue.red?;
                let [kmin, kmax] = [red.kmin(), red.kmax()].map(length);
                Some(format!("{kmin}:{kmax}:{}", percent(red.pmax())))
            })
        },
    },
    Part {
        name: "limit",
        allowed: "what the queue holds, in B, KB or MB, up to 4294967295B",
        example: "limit=1MB",
        read: |it, text| bytes(text).map(|bytes| queue(it).limit_bytes = bytes),
        write: |it| {
            of_queue(it, |queue| {
                let bytes = queue.limit_bytes;
                (bytes != Bottleneck::LIMIT_BYTES).then(|| length(bytes))
            })
        },
    },
    Part {
        name: "delay",
        allowed: TIME,
        example: "delay=50us",
        read: |it, text| nanos(text).map(|ns| it.delay_ns = ns),
        write: |it| span(it.delay_ns),
    },
    Part {
        name: "jitter",
        allowed: TIME,
        example: "jitter=10us",
        read: |it, text| nanos(text).map(|ns| it.jitter_ns = ns),
        write: |it| span(it.jitter_ns),
    },
    Part {
        name: "reorder",
        allowed: "the probability that a packet is held back and, after a colon, how long",
        example: "reorder=0.5%:200us",
        read: |it, text| {
            let (reorder, time) = text.split_once(':')?;
            (it.reorder, it.reorder_ns) = (probability(reorder)?, nanos(time)?);
            Some(())
        },
        write: |it| {
            if it.reorder == 0.0 && it.reorder_ns == 0 {
                return Vec::new();
            }
            vec![format!("{}:{}", percent(it.reorder), time(it.reorder_ns))]
        },
    },
    Part {
        name: "down",
        allowed: "how long nothing passes and, after an @, from when on",
        example: DOWN,
        read: |it, text| {
            let (length, from) = text.split_once('@')?;
            it.blackouts.push(Blackout {
                from: Time::from_nanos(nanos(from)?),
                length_ns: nanos(length)?,
            });
            Some(())
        },
        write: |it| {
            let text = |b: &Blackout| format!("{}@{}", time(b.length_ns), time(b.from.as_nanos()));
            it.blackouts.iter().map(text).collect()
        },
    },
];

const PROBABILITY: &str = "a probability, 0 to 1 or 0% to 100%";
const TIME: &str = "a time in ns, us, ms or s";

const RATES: RangeInclusive<u64> = Bottleneck::RATE_MIN.bps()..=Rate::MAX.bps();

/// The bottleneck to which a part belongs. The part with the rate may be yet to come.
fn queue(impairment: &mut Impairment) -> &mut Bottleneck {
    let new = Bottleneck::new(Rate::from_bps(0));
    impairment.bottleneck.get_or_insert(new)
}

fn of_queue(it: &Impairment, text: impl Fn(&Bottleneck) -> Option<String>) -> Vec<String> {
    it.bottleneck.as_ref().and_then(text).into_iter().collect()
}

/// Whole parts per million.
fn ppm(text: &str) -> Option<u32> {
    let ppm = probability(text)? * 1e6;
    let whole = ppm.round();
    ((ppm - whole).abs() < 1e-6).then_some(whole as u32)
}

fn chance(probability: f64) -> Vec<String> {
    let text = (probability != 0.0).then(|| percent(probability));
    text.into_iter().collect()
}

fn span(ns: u64) -> Vec<String> {
    (ns > 0).then(|| time(ns)).into_iter().collect()
}

fn names() -> String {
    let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
    names.join(", ")
}

impl FromStr for Impairment {
    type Err = ImpairmentParseError;

    fn from_str(text: &str) -> Result<Self, ImpairmentParseError> {
        let mut impairment = Self::default();
        if text.trim() == NONE {
            return Ok(impairment);
        }
        let mut seen = Vec::new();
        for piece in text.split(',') {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            let (name, value) = (name.trim(), value.trim());
            let part = PARTS.iter().find(|part| part.name == name);
            let part = part.ok_or_else(|| ImpairmentParseError::UnknownField {
                field: name.to_owned(),
            })?;
            if name != "down" && seen.contains(&name) {
                return Err(ImpairmentParseError::Twice { field: part.name });
            }
            seen.push(name);
            (part.read)(&mut impairment, value).ok_or_else(|| ImpairmentParseError::BadValue {
                field: part.name,
                value: value.to_owned(),
                allowed: part.allowed,
                example: part.example,
            })?;
        }
        if impairment
            .bottleneck
            .is_some_and(|queue| queue.rate.bps() == 0)
        {
            return Err(ImpairmentParseError::NoRate);
        }
        Ok(impairment)
    }
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for part in PARTS {
            for value in (part.write)(self) {
                write!(f, "{separator}{}={value}", part.name)?;
                separator = ",";
            }
        }
        if separator.is_empty() {
            f.write_str(NONE)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Impairment {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn complaint(text: &str) -> String {
        text.parse::<Impairment>().unwrap_err().to_string()
    }

    #[test]
    fn every_part_is_understood() {
        let expected = Impairment {
            loss: 0.01,
            burst: Some(BurstLoss {
                enter: 0.001,
                mean_length: 20.0,
            }),
            duplicate: 0.001,
            corrupt: 0.0001,
            ecn_mark: 0.05,
            bottleneck: Some(Bottleneck {
                rate: Rate::from_mbps(2_500),
                limit_bytes: 1_000_000,
                red: CongestionPoint::new(5_000, 200_000, 10_000).ok(),
            }),
            delay_ns: 50_000,
            jitter_ns: 10_000,
            reorder: 0.005,
            reorder_ns: 200_000,
            blackouts: vec![Blackout {
                from: Time::from_nanos(3_000_000_000),
                length_ns: 200_000_000,
            }],
        };
        let text = "loss=1%,delay=50us,jitter=10us,reorder=0.5%:200us,duplicate=0.1%,\
                    corrupt=0.01%,ecn=5%,burst=0.1%:20,down=200ms@3s,red=5KB:200KB:1%,limit=1MB,\
                    rate=2.5Gbit";
        assert_eq!(parse(text), expected);
        assert_eq!(parse(&expected.to_string()), expected);
        assert_eq!(expected.check(), Ok(()));
    }

    #[test]
    fn numbers_and_times_come_in_several_forms() {
        for text in ["loss=0.015", "loss=1.5%", "loss=1.5e-2", " loss = 1.5 % "] {
            assert_eq!(parse(text).loss, 0.015, "{text}");
        }
        for text in [
            "delay=1500000ns",
            "delay=1500us",
            "delay=1.5ms",
            "delay=0.00150s",
        ] {
            assert_eq!(parse(text).delay_ns, 1_500_000, "{text}");
        }
        for nothing in ["none", " none ", "delay=0", "loss=0", "loss=0%,jitter=0us"] {
            assert_eq!(parse(nothing), Impairment::default(), "{nothing}");
        }
        assert_eq!(Impairment::default().to_string(), "none");
    }

    #[test]
    fn blackouts_may_be_several_and_can_be_moved() {
        let impairment = parse("down=1ms@2ms,down=3s@4s").beginning_at(Time::from_nanos(5));
        let spans: Vec<_> = impairment
            .blackouts
            .iter()
            .map(|b| (b.from.as_nanos(), b.length_ns))
            .collect();
        assert_eq!(
            spans,
            [(2_000_005, 1_000_000), (4_000_000_005, 3_000_000_000)]
        );
    }

    #[test]
    fn complaints_name_the_field_the_value_what_is_allowed_and_an_example() {
        assert_eq!(
            complaint("loss=150%"),
            "loss is \"150%\", allowed is a probability, 0 to 1 or 0% to 100%; for example \
             loss=1% or loss=0.01"
        );
        assert_eq!(
            complaint("delay=50"),
            "delay is \"50\", allowed is a time in ns, us, ms or s; for example delay=50us"
        );
        assert_eq!(
            complaint("loss=1%,speed=3"),
            "\"speed\" is no part of an impairment, allowed are loss, burst, duplicate, corrupt, \
             ecn, rate, red, limit, delay, jitter, reorder, down; for example loss=1%,delay=50us, or none"
        );
        assert_eq!(
            complaint("ecn=1%,ecn=2%"),
            "ecn comes twice, allowed is once; only down may be repeated, for example \
             down=200ms@3s,down=1s@10s"
        );
        assert_eq!(
            complaint("rate=4294968Gbit"),
            "rate is \"4294968Gbit\", allowed is a rate in bit, kbit, Mbit or Gbit a second, 1kbit \
             to 4294967295Mbit; for example rate=1Gbit"
        );
        assert_eq!(
            parse("rate=4294967295Mbit,limit=4294967295B").check(),
            Ok(())
        );
        assert_eq!(
            complaint("limit=1MB"),
            "red and limit are of a queue, which needs a rate; for example \
             rate=1Gbit,red=5KB:200KB:1%"
        );
        assert_eq!(
            complaint("down=3s"),
            "down is \"3s\", allowed is how long nothing passes and, after an @, from when on; \
             for example down=200ms@3s,down=1s@10s"
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            ",",
            "loss",
            "loss=",
            "loss=x",
            "loss=-1%",
            "loss=nan",
            "loss=inf",
            "loss=1e400",
            "loss=1e1%",
            "loss=1%%",
            "Loss=1%",
            "loss=1%,",
            "none,loss=1%",
            "delay=1",
            "delay=-1us",
            "delay=1.us.",
            "delay=0.5ns",
            "delay=us",
            "delay=1min",
            "delay=99999999999999999999ns",
            "delay=18446744074s",
            "delay=0.00000000000000000000000000000000000000000000001s",
            "reorder=1%",
            "reorder=1%:5",
            "reorder=1us:1%",
            "burst=1%",
            "burst=1%:0.5",
            "burst=1%:inf",
            "burst=1%:-2",
            "rate=0",
            "rate=1",
            "rate=1Gb",
            "rate=999bit",
            "rate=5000000Gbit",
            "red=5KB:200KB:1%",
            "rate=1Gbit,red=200KB:5KB:1%",
            "rate=1Gbit,red=5KB:200KB",
            "rate=1Gbit,red=5KB:200KB:1.00001%",
            "rate=1Gbit,limit=5GB",
            "rate=1Gbit,limit=5000MB",
            "down=1s",
            "down=1s@",
            "down=@1s",
            "down=1s@1s@1s",
        ] {
            assert!(text.parse::<Impairment>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(
            probabilities in prop::array::uniform6(prop_oneof![Just(0.0), 0.0..=1.0]),
            times in prop::array::uniform3(prop_oneof![Just(0), 0..5_000_000_000_u64, any::<u64>()]),
            mean_length in prop::option::of(1.0..1e6),
            blackouts in prop::collection::vec(any::<(u64, u64)>(), 0..3),
            queue in prop::option::of((RATES, any::<[u32; 3]>(), prop::option::of(0..=1_000_000_u32))),
        ) {
            let [loss, enter, duplicate, corrupt, ecn_mark, reorder] = probabilities;
            let [delay_ns, jitter_ns, reorder_ns] = times;
            let impairment = Impairment {
                loss,
                burst: mean_length.map(|mean_length| BurstLoss { enter, mean_length }),
                duplicate,
                corrupt,
                ecn_mark,
                bottleneck: queue.map(|(bps, [limit_bytes, a, b], ppm)| Bottleneck {
                    rate: Rate::from_bps(bps),
                    limit_bytes,
                    red: ppm.map(|ppm| CongestionPoint::new(a.min(b), a.max(b), ppm).unwrap()),
                }),
                delay_ns,
                jitter_ns,
                reorder,
                reorder_ns,
                blackouts: blackouts
                    .into_iter()
                    .map(|(from, length_ns)| Blackout { from: Time::from_nanos(from), length_ns })
                    .collect(),
            };
            prop_assert_eq!(impairment.to_string().parse(), Ok(impairment));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-z0-9=,:@%.e+-]{0,40}|\\PC{0,40}") {
            if let Ok(impairment) = text.parse::<Impairment>() {
                prop_assert_eq!(impairment.check(), Ok(()));
                prop_assert_eq!(impairment.to_string().parse(), Ok(impairment));
            }
        }
    }
}

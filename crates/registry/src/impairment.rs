//! Link impairments as text: a list of parts, or `none`.
//!
//! Probabilities, times, rates and sizes have the usual form ([`ferroce_base::units`]):
//!
//! ```
//! use ferroce_registry::impairment;
//!
//! let text = "loss=1%,burst=0.1%:20,duplicate=0.1%,corrupt=0.01%,ecn=5%,rate=1Gbit,\
//!             red=5KB:200KB:1%,limit=1MB,delay=50us,jitter=10us,reorder=0.5%:200us,\
//!             down=200ms@3s,down=1s@10s,carrier";
//! let impairment = impairment::parse(text).unwrap();
//! assert_eq!(impairment.loss, 0.01);
//! assert_eq!(impairment.bottleneck.unwrap().rate.bps(), 1_000_000_000);
//! assert_eq!(impairment::text(&impairment), text);
//! ```

use std::ops::RangeInclusive;

use ferroce_base::units::{DECIMAL_SIZE, Decimal, Invalid, Probability, RATE, TIME};
use ferroce_dcqcn::CongestionPoint;
use ferroce_device::impair::{Blackout, Bottleneck, BurstLoss};
use ferroce_device::{Impairment, Rate, Span, Time};
use thiserror::Error;

/// Why a text is not an impairment.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A part without a name that means something.
    #[error(
        "unknown impairment {name:?}; expected one of {}; for example {EXAMPLE}",
        list()
    )]
    Unknown {
        /// What was found.
        name: String,
    },
    /// A part whose value makes no sense.
    #[error("invalid {name} {value:?}: {invalid}")]
    Invalid {
        /// Name of the part.
        name: &'static str,
        /// What was found.
        value: String,
        /// What it must be.
        invalid: Invalid,
    },
    /// A part that may come once came again.
    #[error("{name} given more than once; only down may be repeated, for example {DOWN}")]
    Twice {
        /// Name of the part.
        name: &'static str,
    },
    /// A queue without a rate at which it drains.
    #[error("red and limit require rate; for example {QUEUE}")]
    NoRate,
    /// A port that is to notice outages of which there are none.
    #[error("carrier requires down; for example {CARRIER}")]
    NoOutage,
}

const EXAMPLE: &str = "loss=1%,delay=50us, or none";
const DOWN: &str = "down=200ms@3s,down=1s@10s";
const CARRIER: &str = "down=200ms@3s,carrier";
const QUEUE: &str = "rate=1Gbit,red=5KB:200KB:1%";
const NONE: &str = "none";

/// The keys of impairments.
pub fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

/// Whether a word begins an impairment: a key, alone or with its value.
pub fn is_key(word: &str) -> bool {
    let name = word.split(['=', ',']).next().unwrap_or_default();
    name == NONE || PARTS.iter().any(|part| part.name == name)
}

/// Whether a word is an impairment without a value.
pub fn is_flag(word: &str) -> bool {
    [NONE, "carrier"].contains(&word)
}

/// The impairment that a text describes.
pub fn parse(text: &str) -> Result<Impairment, ParseError> {
    let mut impairment = Impairment::default();
    if text.trim() == NONE {
        return Ok(impairment);
    }
    let mut seen = Vec::new();
    for piece in text.split(',') {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        let (name, value) = (name.trim(), value.trim());
        let part = PARTS.iter().find(|part| part.name == name);
        let part = part.ok_or_else(|| ParseError::Unknown {
            name: name.to_owned(),
        })?;
        if name != "down" && seen.contains(&name) {
            return Err(ParseError::Twice { name: part.name });
        }
        seen.push(name);
        (part.read)(&mut impairment, value).map_err(|invalid| ParseError::Invalid {
            name: part.name,
            value: value.to_owned(),
            invalid,
        })?;
    }
    match impairment.bottleneck {
        Some(queue) if queue.rate.bps() == 0 => Err(ParseError::NoRate),
        _ if impairment.carrier && impairment.blackouts.is_empty() => Err(ParseError::NoOutage),
        _ => Ok(impairment),
    }
}

/// The text of an impairment, which is read as the same one.
pub fn text(impairment: &Impairment) -> String {
    let parts = PARTS.iter().flat_map(|part| {
        let values = (part.write)(impairment).into_iter();
        values.map(|value| match value.is_empty() {
            true => part.name.to_owned(),
            false => format!("{}={value}", part.name),
        })
    });
    let parts: Vec<_> = parts.collect();
    match parts.is_empty() {
        true => NONE.to_owned(),
        false => parts.join(","),
    }
}

/// A part of an impairment.
struct Part {
    name: &'static str,
    read: fn(&mut Impairment, &str) -> Result<(), Invalid>,
    write: fn(&Impairment) -> Vec<String>,
}

/// A part that is one value.
macro_rules! part {
    ($name:literal, $field:ident, $read:ident, $write:ident) => {
        Part {
            name: $name,
            read: |it, text| {
                it.$field = $read(text)?;
                Ok(())
            },
            write: |it| $write(it.$field),
        }
    };
}

/// In the order in which they are written.
const PARTS: &[Part] = &[
    part!("loss", loss, probability, chance),
    Part {
        name: "burst",
        read: |it, text| {
            let burst = burst(text);
            it.burst = Some(burst.ok_or_else(|| {
                Invalid::must_be(
                    "the probability of a burst for each packet and the mean number of packets it \
                     loses, 1 or more, for example 0.1%:20",
                )
            })?);
            Ok(())
        },
        write: |it| {
            let text = |burst: BurstLoss| format!("{}:{}", percent(burst.enter), burst.mean_length);
            it.burst.map(text).into_iter().collect()
        },
    },
    part!("duplicate", duplicate, probability, chance),
    part!("corrupt", corrupt, probability, chance),
    part!("ecn", ecn_mark, probability, chance),
    Part {
        name: "rate",
        read: |it, text| {
            queue(it).rate = Rate::from_bps(RATE.read_in(text, RATES)?);
            Ok(())
        },
        write: |it| of_queue(it, |queue| Some(RATE.write(queue.rate.bps()))),
    },
    Part {
        name: "red",
        read: |it, text| {
            queue(it).red = Some(red(text).ok_or_else(|| {
                Invalid::must_be(
                    "the queue's length from which packets are marked, the one above which all \
                     are, and the share marked just below that, in steps of 0.0001%, for example \
                     5KB:200KB:1%",
                )
            })?);
            Ok(())
        },
        write: |it| {
            of_queue(it, |queue| {
                let red = queue.red?;
                let [kmin, kmax] = [red.kmin(), red.kmax()].map(|it| DECIMAL_SIZE.write(it.into()));
                Some(format!("{kmin}:{kmax}:{}", percent(red.pmax())))
            })
        },
    },
    Part {
        name: "limit",
        read: |it, text| {
            let bytes = DECIMAL_SIZE.read_in(text, 0..=u32::MAX.into())?;
            queue(it).limit_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            Ok(())
        },
        write: |it| {
            of_queue(it, |queue| {
                let bytes = queue.limit_bytes;
                (bytes != Bottleneck::LIMIT_BYTES).then(|| DECIMAL_SIZE.write(bytes.into()))
            })
        },
    },
    part!("delay", delay, time, span),
    part!("jitter", jitter, time, span),
    Part {
        name: "reorder",
        read: |it, text| {
            let held = text
                .split_once(':')
                .and_then(|(share, by)| Some((probability(share).ok()?, time(by).ok()?)));
            (it.reorder, it.reorder_by) = held.ok_or_else(|| {
                Invalid::must_be(
                    "the probability that a packet is held back, and for how long, for example \
                     0.5%:200us",
                )
            })?;
            Ok(())
        },
        write: |it| {
            if it.reorder == 0.0 && it.reorder_by == Span::ZERO {
                return Vec::new();
            }
            let by = TIME.write(it.reorder_by.as_nanos());
            vec![format!("{}:{by}", percent(it.reorder))]
        },
    },
    Part {
        name: "down",
        read: |it, text| {
            // Without a time it begins at once.
            let (length, from) = text.split_once('@').unwrap_or((text, "0s"));
            let outage = time(length).and_then(|length| {
                let from = Time::ZERO.after(time(from)?);
                Ok(Blackout { from, length })
            });
            it.blackouts.push(outage.map_err(|_| {
                Invalid::must_be(
                    "how long the link is down and, after an @, from when on if not at once, for \
                     example 400ms or 200ms@3s",
                )
            })?);
            Ok(())
        },
        write: |it| {
            let text = |outage: &Blackout| {
                let times = [outage.length.as_nanos(), outage.from.as_nanos()];
                let [length, from] = times.map(|ns| TIME.write(ns));
                format!("{length}@{from}")
            };
            it.blackouts.iter().map(text).collect()
        },
    },
    Part {
        name: "carrier",
        read: |it, text| {
            it.carrier = true;
            match text {
                "" => Ok(()),
                _ => Err(Invalid::must_be(
                    "without a value, for example down=200ms@3s,carrier",
                )),
            }
        },
        write: |it| Vec::from_iter(it.carrier.then(String::new)),
    },
];

const RATES: RangeInclusive<u64> = Bottleneck::RATE_MIN.bps()..=Rate::MAX.bps();

fn probability(text: &str) -> Result<f64, Invalid> {
    Ok(text.parse::<Probability>()?.as_f64())
}

fn burst(text: &str) -> Option<BurstLoss> {
    let (enter, length) = text.split_once(':')?;
    let length: Decimal = length.trim().parse().ok()?;
    let burst = BurstLoss {
        enter: probability(enter).ok()?,
        mean_length: length.as_f64(),
    };
    (length >= Decimal::ONE && burst.mean_length.is_finite()).then_some(burst)
}

fn red(text: &str) -> Option<CongestionPoint> {
    let (kmin, rest) = text.split_once(':')?;
    let (kmax, share) = rest.split_once(':')?;
    let length = |text| u32::try_from(DECIMAL_SIZE.read(text).ok()?).ok();
    let ppm = share.parse::<Probability>().ok()?.parts(1_000_000)?;
    CongestionPoint::new(length(kmin)?, length(kmax)?, ppm).ok()
}

/// The bottleneck to which a part belongs. The part with the rate may be yet to come.
fn queue(impairment: &mut Impairment) -> &mut Bottleneck {
    let new = Bottleneck::new(Rate::from_bps(0));
    impairment.bottleneck.get_or_insert(new)
}

fn of_queue(it: &Impairment, text: impl Fn(&Bottleneck) -> Option<String>) -> Vec<String> {
    it.bottleneck.as_ref().and_then(text).into_iter().collect()
}

fn percent(probability: f64) -> String {
    let probability = Probability::from_f64(probability);
    probability.unwrap_or(Probability::ZERO).to_string()
}

fn chance(probability: f64) -> Vec<String> {
    let text = (probability != 0.0).then(|| percent(probability));
    text.into_iter().collect()
}

fn time(text: &str) -> Result<Span, Invalid> {
    Ok(Span::from_nanos(TIME.read(text)?))
}

fn span(span: Span) -> Vec<String> {
    let text = (span > Span::ZERO).then(|| TIME.write(span.as_nanos()));
    text.into_iter().collect()
}

fn list() -> String {
    names().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Impairment {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn complaint(text: &str) -> String {
        parse(text).unwrap_err().to_string()
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
            delay: Span::from_micros(50),
            jitter: Span::from_micros(10),
            reorder: 0.005,
            reorder_by: Span::from_micros(200),
            blackouts: vec![Blackout {
                from: Time::from_nanos(3_000_000_000),
                length: Span::from_millis(200),
            }],
            carrier: true,
        };
        let all = "loss=1%,delay=50us,jitter=10us,reorder=0.5%:200us,duplicate=0.1%,\
                    corrupt=0.01%,ecn=5%,burst=0.1%:20,carrier,down=200ms@3s,red=5KB:200KB:1%,limit=1MB,\
                    rate=2.5Gbit";
        assert_eq!(parsed(all), expected);
        assert_eq!(parsed(&text(&expected)), expected);
        assert_eq!(expected.check(), Ok(()));
    }

    #[test]
    fn numbers_and_times_come_in_several_forms() {
        for text in ["loss=0.015", "loss=1.5%", "loss=1.5e-2", " loss = 1.5 % "] {
            assert_eq!(parsed(text).loss, 0.015, "{text}");
        }
        for text in [
            "delay=1500000ns",
            "delay=1500us",
            "delay=1.5ms",
            "delay=0.00150s",
        ] {
            assert_eq!(parsed(text).delay, Span::from_micros(1_500), "{text}");
        }
        for nothing in ["none", " none ", "delay=0", "loss=0", "loss=0%,jitter=0us"] {
            assert_eq!(parsed(nothing), Impairment::default(), "{nothing}");
        }
        assert_eq!(text(&Impairment::default()), "none");
    }

    #[test]
    fn words_that_begin_impairments_are_known() {
        for part in PARTS {
            assert!(is_key(part.name), "{}", part.name);
        }
        for word in ["loss=1%,delay=50us", "carrier,loss=1%", "none"] {
            assert!(is_key(word), "{word}");
        }
        assert!(!is_key("fr0") && !is_key(""));
        let takes_none = |part: &&Part| (part.read)(&mut Impairment::default(), "").is_ok();
        let flags: Vec<_> = PARTS.iter().filter(takes_none).map(|it| it.name).collect();
        assert!(flags.iter().all(|name| is_flag(name)), "{flags:?}");
    }

    #[test]
    fn blackouts_may_be_several_and_can_be_moved() {
        let impairment = parsed("down=1ms@2ms,down=3s@4s").beginning_at(Time::from_nanos(5));
        let spans: Vec<_> = impairment
            .blackouts
            .iter()
            .map(|b| (b.from.as_nanos(), b.length.as_nanos()))
            .collect();
        assert_eq!(
            spans,
            [(2_000_005, 1_000_000), (4_000_000_005, 3_000_000_000)]
        );
    }

    #[test]
    fn an_outage_without_a_time_begins_at_once() {
        assert_eq!(parsed("down=400ms"), parsed("down=400ms@0s"));
        assert_eq!(text(&parsed("down=400ms")), "down=400ms@0");
    }

    #[test]
    fn complaints_name_field_value_range_and_an_example() {
        for (text, told) in [
            (
                "loss=150%",
                "invalid loss \"150%\": must be a probability between 0 and 1 (or 0% to 100%)",
            ),
            (
                "delay=50",
                "invalid delay \"50\": must be a time in ns, us, ms, s or min, for example 50us",
            ),
            (
                "loss=1%,speed=3",
                "unknown impairment \"speed\"; expected one of loss, burst, duplicate, corrupt, ecn, rate, \
             red, limit, delay, jitter, reorder, down, carrier; for example loss=1%,delay=50us, or none",
            ),
            (
                "ecn=1%,ecn=2%",
                "ecn given more than once; only down may be repeated, for example \
             down=200ms@3s,down=1s@10s",
            ),
            (
                "rate=4294968Gbit",
                "invalid rate \"4294968Gbit\": must be a rate in bit, kbit, Mbit or Gbit a second, from \
             1kbit to 4294967295Mbit, for example 2.5Gbit",
            ),
            (
                "limit=1MB",
                "red and limit require rate; for example rate=1Gbit,red=5KB:200KB:1%",
            ),
            (
                "loss=1%,carrier",
                "carrier requires down; for example down=200ms@3s,carrier",
            ),
            (
                "down=1s@1s,carrier=1",
                "invalid carrier \"1\": must be without a value, for example down=200ms@3s,carrier",
            ),
            (
                "down=3",
                "invalid down \"3\": must be how long the link is down and, after an @, from when on if \
             not at once, for example 400ms or 200ms@3s",
            ),
        ] {
            assert_eq!(complaint(text), told);
        }
        let most = parsed("rate=4294967295Mbit,limit=4294967295B");
        assert_eq!(most.check(), Ok(()));
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
            "loss=1%%",
            "Loss=1%",
            "loss=1%,",
            "none,loss=1%",
            "delay=1",
            "delay=-1us",
            "delay=1.us.",
            "delay=0.5ns",
            "delay=us",
            "delay=1h",
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
            "down=1",
            "down=1s@",
            "down=@1s",
            "down=1s@1s@1s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_write_is_read_back(
            probabilities in prop::array::uniform6(prop_oneof![Just(0.0), 0.0..=1.0]),
            times in prop::array::uniform3(prop_oneof![Just(0), 0..5_000_000_000_u64, any::<u64>()]),
            mean_length in prop::option::of(1.0..1e6),
            blackouts in prop::collection::vec(any::<(u64, u64)>(), 0..3),
            carrier in any::<bool>(),
            queue in prop::option::of((RATES, any::<[u32; 3]>(), prop::option::of(0..=1_000_000_u32))),
        ) {
            let [loss, enter, duplicate, corrupt, ecn_mark, reorder] = probabilities;
            let [delay, jitter, reorder_by] = times.map(Span::from_nanos);
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
                delay,
                jitter,
                reorder,
                reorder_by,
                carrier: carrier && !blackouts.is_empty(),
                blackouts: blackouts
                    .into_iter()
                    .map(|(from, length)| Blackout {
                        from: Time::from_nanos(from),
                        length: Span::from_nanos(length),
                    })
                    .collect(),
            };
            prop_assert_eq!(parse(&text(&impairment)), Ok(impairment));
        }

        #[test]
        fn no_text_makes_it_panic(spec in "[a-z0-9=,:@%.e+-]{0,40}|\\PC{0,40}") {
            if let Ok(impairment) = parse(&spec) {
                prop_assert_eq!(impairment.check(), Ok(()));
                prop_assert_eq!(parse(&text(&impairment)), Ok(impairment));
            }
        }
    }
}
